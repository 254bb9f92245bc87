// Bytes that a peer chose, made fit for an error line or a log line: printable ASCII, and not too many of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::fence {

// Bytes outside 0x20 … 0x7e become '?'. What is longer than `bytes_max` is cut there and ends in "...".
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t bytes_max);

}  // namespace fencegate::fence
