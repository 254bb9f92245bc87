#include "wire/sql_pieces.hpp"

#include "wire/sql_bytes.hpp"
#include "wire/sql_lead.hpp"

#include <algorithm>
#include <string>

namespace fencegate::wire {
namespace {

// The text of a message, read from its start.
class splitter {
 public:
  splitter(std::string_view sql, bool backslashes) : sql_(sql), backslashes_(backslashes) {}

  std::vector<sql_piece> split() {
    while (at_ < sql_.size()) step();
    end_piece();
    if (out_.empty()) out_.push_back({});
    return std::move(out_);
  }

 private:
  void step() {
    const char c = sql_[at_];
    switch (class_of(c)) {
      case byte_class::quote:
      case byte_class::double_quote: return quoted(c, c == '\'' && backslashes_);
      case byte_class::dash:
      case byte_class::slash: return comment();
      case byte_class::dollar: return dollar();
      case byte_class::word: return word();
      case byte_class::digit: return pass_while(in_number);
      case byte_class::semicolon:
        if (parentheses_ == 0 && bodies_ == 0) end_piece();
        break;
      default:
        if (c == '(') ++parentheses_;
        if (c == ')' && parentheses_ != 0) --parentheses_;
        break;
    }
    ++at_;
  }

  template <class Belongs>
  void pass_while(Belongs belongs) {
    while (at_ < sql_.size() && belongs(sql_[at_])) ++at_;
  }

  // A doubled quote ends the literal and begins it again.
  void quoted(char quote, bool backslashes) {
    do {
      for (++at_; at_ < sql_.size() && sql_[at_] != quote; ++at_)
        if (backslashes && sql_[at_] == '\\') ++at_;
      at_ = std::min(at_ + 1, sql_.size());
    } while (at_ < sql_.size() && sql_[at_] == quote);
  }

  // A literal ends, and goes on behind blanks with a new line among them, in which `--…` counts as a blank, `/*…*/` does not.
  bool goes_on() {
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

  void comment() {
    const auto left = sql_.substr(at_);
    const bool begins = left.starts_with("--") || left.starts_with("/*");
    at_ = begins ? sql_.size() - behind_blanks(left, false).size() : at_ + 1;
  }

  void dollar() {
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

  void word() {
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
  [[nodiscard]] bool is_routine() const {
    if (words_.empty() || words_[0] != "CREATE") return false;
    const std::size_t what = words_.size() > 1 && words_[1] == "OR" ? 3 : 1;
    return words_.size() > what && (words_[what] == "FUNCTION" || words_[what] == "PROCEDURE");
  }

  void end_piece() {
    const auto text = sql_.substr(begin_, at_ - begin_);
    if (!behind_blanks(text, false).empty()) out_.push_back({text, begin_});
    begin_ = at_ + 1;
    parentheses_ = bodies_ = 0;
    words_.clear();
  }

  static constexpr std::size_t words_kept = 4;

  std::string_view sql_;
  bool backslashes_;
  std::size_t at_ = 0, begin_ = 0;  // what is read next; where the statement began
  std::size_t parentheses_ = 0, bodies_ = 0;
  std::vector<std::string> words_;  // the statement's first ones
  std::vector<sql_piece> out_;
};

}  // namespace

std::vector<sql_piece> split_sql(std::string_view sql, bool backslashes) { return splitter(sql, backslashes).split(); }

}  // namespace fencegate::wire
