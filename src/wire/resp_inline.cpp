#include "wire/resp_inline.hpp"

#include "wire/resp_request.hpp"

#include <cstddef>
#include <utility>

namespace fencegate::wire {

namespace {

// Redis skips isspace() between words but ends a word only at these four: \v and \f inside a word belong to it.
bool ends_word(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_blank(char c) { return ends_word(c) || c == '\v' || c == '\f'; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char unescape(char c) {
  switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return c;
  }
}

std::size_t skip_blanks(std::string_view line, std::size_t at) {
  while (at < line.size() && is_blank(line[at])) {
    ++at;
  }
  return at;
}

// The quoted parts below start behind the opening quote and return the position behind the closing one; npos: the quote
// is not closed, or something other than a blank follows.
std::size_t behind_closing_quote(std::string_view line, std::size_t quote) {
  const std::size_t next = quote + 1;
  return next == line.size() || is_blank(line[next]) ? next : std::string_view::npos;
}

std::size_t take_double_quoted(std::string_view line, std::size_t at, std::string& word) {
  for (; at < line.size(); ++at) {
    if (line[at] == '"') {
      return behind_closing_quote(line, at);
    }
    if (line[at] != '\\' || at + 1 == line.size()) {
      word += line[at];
      continue;
    }
    if (line[at + 1] == 'x' && at + 3 < line.size() && hex_value(line[at + 2]) >= 0 && hex_value(line[at + 3]) >= 0) {
      word += static_cast<char>(hex_value(line[at + 2]) * 16 + hex_value(line[at + 3]));
      at += 3;
    } else {
      word += unescape(line[at + 1]);
      at += 1;
    }
  }
  return std::string_view::npos;
}

std::size_t take_single_quoted(std::string_view line, std::size_t at, std::string& word) {
  for (; at < line.size(); ++at) {
    if (line[at] == '\'') {
      return behind_closing_quote(line, at);
    }
    if (line[at] == '\\' && at + 1 < line.size() && line[at + 1] == '\'') {
      at += 1;
    }
    word += line[at];
  }
  return std::string_view::npos;
}

// One word from `at` on, which is not a blank; quotes may start inside it. npos as above.
std::size_t take_word(std::string_view line, std::size_t at, std::string& word) {
  while (at < line.size() && !ends_word(line[at])) {
    if (line[at] == '"') {
      return take_double_quoted(line, at + 1, word);
    }
    if (line[at] == '\'') {
      return take_single_quoted(line, at + 1, word);
    }
    word += line[at++];
  }
  return at;
}

}  // namespace

void split_plain(std::string_view line, std::vector<std::string_view>& words) {
  for (std::size_t at = skip_blanks(line, 0); at < line.size(); at = skip_blanks(line, at)) {
    const std::size_t begin = at;
    while (at < line.size() && !ends_word(line[at])) {
      ++at;
    }
    words.push_back(line.substr(begin, at - begin));
  }
}

result<std::vector<std::string>> split_inline(std::string_view line) {
  line = line.substr(0, line.find('\0'));
  std::vector<std::string> words;
  for (std::size_t at = skip_blanks(line, 0); at < line.size(); at = skip_blanks(line, at)) {
    std::string word;
    at = take_word(line, at, word);
    if (at == std::string_view::npos) {
      return error{"unbalanced quotes in request"};
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace fencegate::wire
