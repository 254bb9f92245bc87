// Rows of text in columns, for people.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace fencegate::cli {

using text_table = std::vector<std::vector<std::string>>;

// REQUIRES: a first row, and no row is longer.
inline void print_table(const text_table& rows, std::ostream& out) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      out << row[i] << (i + 1 == row.size() ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
}

}  // namespace fencegate::cli
