// uses: wire
// SQL text: the scanner, whole and in pieces, against a reader that has the whole text before it and looks ahead.
// Input: size of the pieces (1 byte), the text.
#include "wire/sql_scanner.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return std::string_view(" \t\n\r\f\v").find(c) != std::string_view::npos; }

// Takes tokens from the front of a text, one after the other, the way scan.l is written.
class reader {
 public:
  reader(std::string_view text, bool backslashes) : text_(text), backslashes_(backslashes) {}

  sql_findings read() {
    while (at_ < text_.size() && !lost_) {
      token();
    }
    end_statement();
    return out_;
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void token() {
    const char c = peek();
    const char folded = static_cast<char>(c | 0x20);
    if (c == ';') {
      end_statement();
      ++at_;
    } else if (blank(c)) {
      ++at_;
    } else if (next_is("--")) {
      at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
    } else if (next_is("/*")) {
      comment();
    } else if (letter(c) && !((folded == 'e' || folded == 'b' || folded == 'x' || folded == 'n') && peek(1) == '\'') &&
               !(folded == 'u' && peek(1) == '&' && (peek(2) == '\'' || peek(2) == '"'))) {
      word();
    } else {
      begun_ = true;
      beginning_ = false;
      other(c, folded);
    }
  }

  void other(char c, char folded) {
    if (c == '\'') {
      literal(1, backslashes_, true);
    } else if (letter(c) && peek(1) == '\'') {
      literal(2, folded == 'e' || (folded == 'n' && backslashes_), folded == 'e' || folded == 'n');
    } else if (letter(c) && peek(2) == '\'') {
      literal(3, false, true);
    } else if (c == '"' || letter(c)) {
      at_ = std::min(text_.find('"', at_ + (c == '"' ? 1 : 3)), text_.size() - 1) + 1;
    } else if (digit(c) || (c == '$' && digit(peek(1)))) {
      for (++at_; at_ < text_.size() && (letter(peek()) || digit(peek()) || peek() == '.');) {
        ++at_;
      }
    } else if (c == '$') {
      dollar();
    } else {
      ++at_;
    }
  }

  void word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (letter(peek()) || digit(peek()) || peek() == '$')) {
      ++at_;
    }
    begun_ = true;
    if (beginning_) {
      std::string cut(text_.substr(begin, std::min(at_ - begin, sql_scanner::word_bytes_max)));
      for (char& c : cut) {
        c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
      }
      words_.push_back(cut);
      beginning_ = words_.size() < sql_scanner::words_kept;
    }
  }

  void comment() {
    const std::size_t begin = at_;
    std::size_t depth = 0;
    do {
      if (at_ >= text_.size()) {
        return;
      }
      const bool opens = next_is("/*");
      const bool closes = next_is("*/");
      depth += opens ? 1 : 0;
      depth -= closes ? 1 : 0;
      at_ += opens || closes ? 2 : 1;
    } while (depth > 0);
    std::string_view inside = text_.substr(begin + 2, at_ - begin - 4);
    const auto trim = [&inside] {
      while (!inside.empty() && blank(inside.front())) inside.remove_prefix(1);
    };
    trim();
    if (inside.starts_with("fence:")) {
      inside.remove_prefix(6);
      trim();
      while (!inside.empty() && blank(inside.back())) inside.remove_suffix(1);
      out_.add_tag(inside);
    }
  }

  void literal(std::size_t prefix, bool escapes, bool doubles) {
    for (at_ += prefix; at_ < text_.size(); ++at_) {
      if (escapes && peek() == '\\') {
        ++at_;
      } else if (peek() == '\'' && doubles && peek(1) == '\'') {
        ++at_;
      } else if (peek() == '\'') {
        ++at_;
        const std::size_t more = continuation();
        if (more == 0) {
          return;
        }
        at_ = more - 1;
      }
    }
    at_ = text_.size();
  }

  // Behind the quote with which the literal goes on; 0: it does not.
  std::size_t continuation() const {
    bool line_end = false;
    for (std::size_t i = at_; i < text_.size();) {
      if (text_[i] == '\'') {
        return line_end ? i + 1 : 0;
      }
      if (text_.substr(i).starts_with("--")) {
        i = std::min(text_.find_first_of("\r\n", i), text_.size());
      } else if (blank(text_[i])) {
        line_end = line_end || text_[i] == '\n' || text_[i] == '\r';
        ++i;
      } else {
        return 0;
      }
    }
    return 0;
  }

  void dollar() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && (letter(text_[end]) || (digit(text_[end]) && end > at_ + 1))) {
      ++end;
    }
    if (end - at_ - 1 > sql_limits::delimiter_bytes_max) {
      out_.too_many_tags = out_.more_statements = lost_ = true;
      begun_ = false;
    } else if (end < text_.size() && text_[end] == '$') {
      const std::string_view delimiter = text_.substr(at_, end + 1 - at_);
      const std::size_t close = text_.find(delimiter, end + 1);
      at_ = close == std::string_view::npos ? text_.size() : close + delimiter.size();
    } else {
      at_ = end;
    }
  }

  void end_statement() {
    if (begun_) {
      out_.add_statement(words_);
    }
    begun_ = false;
    beginning_ = true;
    words_.clear();
  }

  std::string_view text_;
  bool backslashes_;
  std::size_t at_ = 0;
  bool lost_ = false;
  bool begun_ = false;
  bool beginning_ = true;
  std::vector<std::string> words_;
  sql_findings out_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::size_t piece = data[0] == 0 ? 1 : data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view until_nul = text.substr(0, text.find('\0'));

  sql_findings expected[2];
  for (const bool backslashes : {false, true}) {
    sql_lane lane(backslashes);
    sql_findings found;
    require(lane.read(until_nul, false, found) == until_nul.size());
    lane.finish(found);
    expected[backslashes ? 1 : 0] = reader(until_nul, backslashes).read();
    require(found == expected[backslashes ? 1 : 0]);
  }

  const sql_findings whole = scan_sql(text);
  sql_scanner scanner;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    scanner.feed(text.substr(at, piece));
  }
  require(scanner.found() == whole);
  // Both ways of reading are in it, the first one first.
  for (const sql_findings& one : expected) {
    require(whole.too_many_tags || !one.too_many_tags);
    if (!whole.too_many_tags) {
      require(std::all_of(one.tags.begin(), one.tags.end(), [&](const std::string& tag) {
        return std::find(whole.tags.begin(), whole.tags.end(), tag) != whole.tags.end();
      }));
    }
    if (!whole.more_statements) {
      require(std::all_of(one.statements.begin(), one.statements.end(), [&](const std::vector<std::string>& words) {
        return std::find(whole.statements.begin(), whole.statements.end(), words) != whole.statements.end();
      }));
    }
  }
  // (The second way alone may meet the limit where the scanner does not: it counts only what came behind a parting.)
  require(whole.more_statements || !expected[0].more_statements);
  require(std::equal(expected[0].statements.begin(), expected[0].statements.end(), whole.statements.begin()));
  return 0;
}
