// Where the statements of a message lie. A convenience: each goes to the server as a message of its own, which takes one
// statement only; so what is cut in the wrong place is refused there, and runs nowhere.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace fencegate::wire {

struct sql_piece {
  std::string_view text;
  std::size_t at = 0;  // its first byte in the message
};

// The statements, without the semicolons between them and without those that hold nothing; {""} when all do.
// `backslashes`: they escape in '…' (standard_conforming_strings=off). Follows PostgreSQL's scan.l and psqlscan.l: literals,
// quoted names, dollar quotes, comments, parentheses (CREATE RULE) and BEGIN ATOMIC … END.
[[nodiscard]] std::vector<sql_piece> split_sql(std::string_view sql, bool backslashes);

}  // namespace fencegate::wire
