// JSON of a peer, read strictly: of two members with one name, readers take one or the other, and so there may be none.
#pragma once

#include "base/result.hpp"

#include <boost/json/value.hpp>

#include <cstddef>
#include <string_view>

namespace fencegate::wire {

// One value (RFC 8259). Errors, which say where: no JSON, objects and arrays within each other deeper than `depth_max`, a
// member's name twice in one object. Whole numbers up to 2^63−1 are exact (int64).
[[nodiscard]] result<boost::json::value> parse_strict_json(std::string_view text, std::size_t depth_max);

}  // namespace fencegate::wire
