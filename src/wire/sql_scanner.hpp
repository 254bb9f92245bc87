// Reads the text of SQL statements as it streams by, for what a fence has to know: comments that carry a tag, and with which
// words each statement begins. No parser: it knows where literals, quoted names, dollar quotes and comments begin and
// end, as PostgreSQL's scan.l does, and nothing of what lies between.
//
// Whether a backslash escapes a quote in '…' depends on standard_conforming_strings, which may change ahead of the text;
// so the text is read both ways at once, and what either way finds counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

class sql_scanner {
 public:
  static constexpr std::size_t words_kept = 6;        // of each statement, where it begins
  static constexpr std::size_t word_bytes_max = 24;   // longer words are cut
  static constexpr std::size_t statements_kept = 64;  // what comes behind them only sets `more_statements`
  static constexpr std::size_t tags_kept = 4;
  static constexpr std::size_t tag_bytes_max = 8192;

  struct findings {
    // The texts behind `fence:` of comments `/*fence:…*/` outside literals, blanks around them cut off; each text once.
    std::vector<std::string> tags;
    bool too_many_tags = false;  // more than tags_kept different ones, or one longer than tag_bytes_max
    // The first words of each statement (identifiers and keywords, upper case, up to the first thing that is neither a
    // word nor a blank nor a comment), e.g. {"PREPARE", "TRANSACTION"}. Empty statements are left out.
    std::vector<std::vector<std::string>> statements;
    bool more_statements = false;

    // A statement begins with these words.
    [[nodiscard]] bool begins_with(std::string_view first, std::string_view second = {}) const;
  };

  void feed(std::string_view bytes);
  // What was found up to here; a last statement needs no semicolon. Both ways of reading are merged: first what the way
  // without backslash escapes found, then what only the other one did.
  [[nodiscard]] findings found() const;
  // The text ends inside a literal or comment in both ways of reading: the server will say that it is unterminated.
  [[nodiscard]] bool unterminated() const;
  void reset();

 private:
  // … to be designed by whoever implements it
};

[[nodiscard]] sql_scanner::findings scan_sql(std::string_view sql);

}  // namespace fencegate::wire
