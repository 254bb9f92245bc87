// The field `traceparent` of a request: which trace it is a part of (https://www.w3.org/TR/trace-context/).
#pragma once

#include "base/header_field.hpp"

#include <span>
#include <string_view>

namespace fencegate::wire {

// Its value, into the fields; "" where there is none, there are several, or it is malformed. Of versions to come, the parts
// that version 00 has are what must be well-formed.
[[nodiscard]] std::string_view trace_parent_of(std::span<const header_field> fields);

}  // namespace fencegate::wire
