#include "wire/sql_pieces.hpp"

#include "wire/sql_bytes.hpp"
#include "wire/sql_lead.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::wire {

std::optional<sql_piece> sql_pieces::next() {
  while (begin_ <= sql_.size()) {
    while (at_ < sql_.size() && step()) {
    }
    const auto one = end_piece();
    if (behind_blanks(one.text, false).empty()) continue;
    any_ = true;
    return one;
  }
  if (std::exchange(any_, true)) return std::nullopt;
  return sql_piece{};
}

// false: the statement ends here.
bool sql_pieces::step() {
  const char c = sql_[at_];
  switch (class_of(c)) {
    case byte_class::quote:
    case byte_class::double_quote: quoted(c, c == '\'' && backslashes_); return true;
    case byte_class::dash:
    case byte_class::slash: comment(); return true;
    case byte_class::dollar: dollar(); return true;
    case byte_class::word: word(); return true;
    case byte_class::digit: pass_while(in_number); return true;
    case byte_class::semicolon:
      if (parentheses_ == 0 && bodies_ == 0) return false;
      break;
    default:
      if (c == '(') ++parentheses_;
      if (c == ')' && parentheses_ != 0) --parentheses_;
      break;
  }
  ++at_;
  return true;
}

// A doubled quote ends the literal and begins it again.
void sql_pieces::quoted(char quote, bool backslashes) {
  do {
    for (++at_; at_ < sql_.size() && sql_[at_] != quote; ++at_)
      if (backslashes && sql_[at_] == '\\') ++at_;
    at_ = std::min(at_ + 1, sql_.size());
  } while (at_ < sql_.size() && sql_[at_] == quote);
}

// A literal ends, and goes on behind blanks with a new line among them, in which `--…` counts as a blank, `/*…*/` does not.
bool sql_pieces::goes_on() {
  bool new_line = false;
  std::size_t at = at_;
  while (at < sql_.size()) {
    if (sql_.substr(at).starts_with("--"))
      at = std::min(sql_.size(), sql_.find_first_of("\r\n", at));
    else if (is_sql_blank(sql_[at]))
      new_line = class_of(sql_[at++]) == byte_class::line_end || new_line;
    else
      break;
  }
  if (!new_line || at >= sql_.size() || sql_[at] != '\'') return false;
  at_ = at;
  return true;
}

void sql_pieces::comment() {
  const auto left = sql_.substr(at_);
  const bool begins = left.starts_with("--") || left.starts_with("/*");
  at_ = begins ? sql_.size() - behind_blanks(left, false).size() : at_ + 1;
}

void sql_pieces::dollar() {
  std::size_t end = at_ + 1;
  if (end < sql_.size() && class_of(sql_[end]) != byte_class::digit)
    while (end < sql_.size() && in_delimiter(sql_[end])) ++end;
  if (end >= sql_.size() || sql_[end] != '$') {
    ++at_;
    return;
  }
  const auto delimiter = sql_.substr(at_, end + 1 - at_);
  const auto closed = sql_.find(delimiter, end + 1);
  at_ = closed == std::string_view::npos ? sql_.size() : closed + delimiter.size();
}

void sql_pieces::word() {
  const std::size_t begin = at_;
  pass_while(in_word);
  std::string text(sql_.substr(begin, at_ - begin));
  std::transform(text.begin(), text.end(), text.begin(), upper);
  if (text == "E" && at_ < sql_.size() && sql_[at_] == '\'') {
    do {
      quoted('\'', true);
    } while (goes_on());
    return;
  }
  const bool makes_routine = is_routine();
  if (words_.size() < words_kept) words_.push_back(text);
  if (!makes_routine) return;
  if (text == "BEGIN" || (bodies_ != 0 && text == "CASE")) ++bodies_;
  if (text == "END" && bodies_ != 0) --bodies_;
}

// CREATE [OR REPLACE] FUNCTION | PROCEDURE: its body may hold semicolons.
bool sql_pieces::is_routine() const {
  if (words_.empty() || words_[0] != "CREATE") return false;
  const std::size_t what = words_.size() > 1 && words_[1] == "OR" ? 3 : 1;
  return words_.size() > what && (words_[what] == "FUNCTION" || words_[what] == "PROCEDURE");
}

sql_piece sql_pieces::end_piece() {
  const sql_piece out{sql_.substr(begin_, at_ - begin_), begin_};
  begin_ = ++at_;
  parentheses_ = bodies_ = 0;
  words_.clear();
  return out;
}

std::vector<sql_piece> split_sql(std::string_view sql, bool backslashes) {
  sql_pieces all(sql, backslashes);
  std::vector<sql_piece> out;
  while (const auto one = all.next()) out.push_back(*one);
  return out;
}

}  // namespace fencegate::wire
