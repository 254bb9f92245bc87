// How the text of a statement begins: its very first comment, which may carry a tag, and its first words. No literal can
// stand in front of either, so neither standard_conforming_strings nor the encoding decides how they are read (a byte of
// a comment's delimiters is part of no character in any of them), and nothing that a program quotes is ever read here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

struct sql_lead {
  // What stands behind `fence:` in the comment `/*fence:…*/` in front of which nothing but blanks stands; blanks around
  // it cut off.
  std::optional<std::string_view> tag;
  // The first words, upper case, behind blanks, comments and `;`, up to the first thing that is neither a word nor a
  // blank nor a comment. {"PREPARE", "TRANSACTION"}; none for `(SELECT 1)`.
  std::vector<std::string> words;
  // The text ends before it is known whether it begins with a tag.
  bool undecided = false;

  [[nodiscard]] bool begins_with(std::string_view first, std::string_view second = {}) const;
};

[[nodiscard]] sql_lead read_sql_lead(std::string_view sql);

// What of the text stands behind blanks and comments, and behind semicolons where they count as blanks, too. A comment that
// does not end takes all of it.
[[nodiscard]] std::string_view behind_blanks(std::string_view sql, bool semicolons);

}  // namespace fencegate::wire
