// One field of an HTTP head, and when two names are the same.
#pragma once

#include "base/ascii.hpp"

#include <algorithm>
#include <string_view>

namespace fencegate {

struct header_field {
  std::string_view name;   // as it came
  std::string_view value;  // without the blanks around it
};

// Field names are ASCII, and compared without case (RFC 9110 section 5.1).
[[nodiscard]] constexpr bool same_field_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

// The same with '_' for '-': behind CGI and its heirs both are one name (HTTP_X_FENCING_TOKEN), so that what counts for
// the fence may not come past it under the other.
[[nodiscard]] constexpr bool looks_like_field_name(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '_' ? '-' : ascii_lower(c); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [plain](char x, char y) { return plain(x) == plain(y); });
}

template <class Names>
[[nodiscard]] constexpr bool looks_like_any(std::string_view name, const Names& names) {
  return std::any_of(names.begin(), names.end(), [name](std::string_view n) { return looks_like_field_name(n, name); });
}

}  // namespace fencegate
