// Names that a configuration gives to its parts: those of gates are label values of metrics, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace fencegate {

// 1 to 64 letters, digits, `_`, `.` and `-`.
[[nodiscard]] inline bool is_name(std::string_view text) {
  constexpr std::size_t name_bytes_max = 64;
  return !text.empty() && text.size() <= name_bytes_max && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

// It stands in paths of the API.
[[nodiscard]] inline bool is_writer_name(std::string_view text) { return is_name(text) && text != "." && text != ".."; }

}  // namespace fencegate
