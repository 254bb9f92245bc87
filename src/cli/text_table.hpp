// Rows of text in columns, for people.
#pragma once

#include "base/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

using text_table = std::vector<std::vector<std::string>>;

// What a server keeps may hold anything: a terminal gets "?" for what it would obey, or could not show.
inline std::string shown_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto bytes = std::max<std::size_t>(utf8_character_bytes(text), 1);
    const auto one = text.substr(0, bytes);
    out += is_shown_text(one) ? one : "?";
    text.remove_prefix(bytes);
  }
  return out;
}

// REQUIRES: a first row, and no row is longer.
inline void print_table(text_table rows, std::ostream& out) {
  std::vector<std::size_t> widths(rows.front().size());
  for (auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = shown_text(row[i]);
      widths[i] = std::max(widths[i], row[i].size());
    }
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      out << row[i] << (i + 1 == row.size() ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
}

}  // namespace fencegate::cli
