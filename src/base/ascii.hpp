// Letters of ASCII, whatever the locale is.
#pragma once

namespace fencegate {

[[nodiscard]] constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace fencegate
