// Reads the text of SQL statements as it streams by, for what a fence has to know: comments that carry a tag, and with
// which words each statement begins. No parser: it knows where literals, quoted names, dollar quotes and comments begin
// and end, as PostgreSQL's scan.l does, and nothing of what lies between.
//
// Whether a backslash escapes a quote in '…' depends on standard_conforming_strings, which may change ahead of the text;
// so the text is read both ways at once, and what either way finds counts. The text has to be in an encoding in which
// every byte of a character beyond ASCII is 0x80 or above: UTF-8 is one; SJIS, BIG5, GBK, GB18030, UHC and JOHAB are not.
#pragma once

#include "wire/sql_lane.hpp"

#include <cstddef>
#include <string_view>

namespace fencegate::wire {

class sql_scanner {
 public:
  static constexpr std::size_t words_kept = sql_limits::words_kept;
  static constexpr std::size_t word_bytes_max = sql_limits::word_bytes_max;
  static constexpr std::size_t statements_kept = sql_limits::statements_kept;
  static constexpr std::size_t tags_kept = sql_limits::tags_kept;
  static constexpr std::size_t tag_bytes_max = sql_limits::tag_bytes_max;

  using findings = sql_findings;

  // A NUL ends the text; what is fed behind it is not read.
  void feed(std::string_view bytes);
  // What was found up to here; a last statement needs no semicolon. Both ways of reading are merged: first what the way
  // without backslash escapes found, then what only the other one did (up to as many statements again).
  [[nodiscard]] findings found() const;
  // The text ends inside a literal or comment in both ways of reading: the server will say that it is unterminated.
  [[nodiscard]] bool unterminated() const;
  void reset();

 private:
  void part();
  void share_statements(const sql_findings& from, sql_findings& to) const;
  void compare();

  // Together they read as one until a backslash stands in a plain literal; then each reads for itself until both are in
  // the same state again.
  sql_lane plain_{false};
  sql_lane escaped_{true};
  sql_findings plain_found_;
  sql_findings escaped_found_;  // up to where they last agreed
  bool parted_ = false;
  bool ever_parted_ = false;
  std::size_t joined_at_ = 0;     // from this statement of plain_found_ on, both have read the same again
  std::size_t stretch_ = 0;       // the bytes between two comparisons
  std::size_t stretch_left_ = 0;  // until the next one
  bool over_ = false;
};

[[nodiscard]] sql_scanner::findings scan_sql(std::string_view sql);
// How often the text has this, which is given in upper case: in any case and anywhere, be it in a literal.
[[nodiscard]] std::size_t mentions(std::string_view text, std::string_view what);

}  // namespace fencegate::wire
