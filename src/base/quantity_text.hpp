// Durations and counts as texts: in a configuration, on a command line, in a request.
#pragma once

#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate {

// "25s", "500ms", "5m", "1h": digits and a unit; "0" needs none. Errors: anything else, or more than 30 days.
[[nodiscard]] result<std::chrono::milliseconds> parse_duration(std::string_view text);
// In the largest unit of which it is a whole number.
[[nodiscard]] std::string write_duration(std::chrono::milliseconds duration);

// Decimal digits only.
[[nodiscard]] result<std::int64_t> parse_count(std::string_view text, std::int64_t least, std::int64_t most);

}  // namespace fencegate
