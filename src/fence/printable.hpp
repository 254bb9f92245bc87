// Bytes that a peer chose, made fit for an error line or a log line: printable ASCII, and not too many of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::fence {

// Bytes outside 0x20 … 0x7e become '?'. What is longer than `bytes_max` is cut there and ends in "...".
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t bytes_max);

inline constexpr std::size_t quoted_bytes_max = 80;

// The same in single quotes. An object and no function, so that nobody means std::quoted by the same name.
struct quotation {
  [[nodiscard]] std::string operator()(std::string_view text) const {
    return "'" + printable(text, quoted_bytes_max) + "'";
  }
};
inline constexpr quotation quoted;

}  // namespace fencegate::fence
