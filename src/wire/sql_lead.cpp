#include "wire/sql_lead.hpp"

#include "wire/sql_bytes.hpp"

#include <algorithm>

namespace fencegate::wire {
namespace {

constexpr std::string_view fence_prefix = "fence:";
constexpr std::size_t words_kept = 6;
constexpr std::size_t word_bytes_max = 24;  // longer words are cut

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_sql_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_sql_blank(text.back())) text.remove_suffix(1);
  return text;
}

// The bytes of the comment at the start, which may hold others; npos: it does not end.
std::size_t comment_bytes(std::string_view text) {
  std::size_t depth = 0;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    const auto two = text.substr(at, 2);
    if (two != "/*" && two != "*/") continue;
    ++at;
    if (two == "/*")
      ++depth;
    else if (--depth == 0)
      return at + 1;
  }
  return std::string_view::npos;
}

std::string_view behind(std::string_view text, std::size_t bytes) { return text.substr(std::min(bytes, text.size())); }

// What `fence:` or the delimiter of its comment could still become.
bool may_become_tag(std::string_view begin) {
  if (begin.size() < 2) return begin.empty() || begin == "/";
  if (!begin.starts_with("/*")) return false;
  begin.remove_prefix(2);
  while (!begin.empty() && is_sql_blank(begin.front())) begin.remove_prefix(1);
  return begin.starts_with(fence_prefix) || fence_prefix.starts_with(begin);
}

}  // namespace

std::string_view behind_blanks(std::string_view sql, bool semicolons) {
  for (;;) {
    const auto before = sql.size();
    while (!sql.empty() && (is_sql_blank(sql.front()) || (semicolons && sql.front() == ';'))) sql.remove_prefix(1);
    if (sql.starts_with("--")) sql = behind(sql, sql.find_first_of("\r\n"));
    if (sql.starts_with("/*")) sql = behind(sql, comment_bytes(sql));
    if (sql.size() == before) return sql;
  }
}

bool sql_lead::begins_with(std::string_view first, std::string_view second) const {
  return !words.empty() && words[0] == first && (second.empty() || (words.size() > 1 && words[1] == second));
}

sql_lead read_sql_lead(std::string_view sql) {
  sql_lead out;
  const auto begin = sql.substr(std::min(sql.size(), sql.find_first_not_of(" \t\n\r\f\v")));
  if (may_become_tag(begin)) {
    const auto bytes = comment_bytes(begin);
    out.undecided = bytes == std::string_view::npos;
    if (!out.undecided)
      out.tag = without_blanks(without_blanks(begin.substr(2, bytes - 4)).substr(fence_prefix.size()));
  }
  auto left = behind_blanks(sql, true);
  while (out.words.size() < words_kept && !left.empty() && class_of(left.front()) == byte_class::word) {
    const auto end = std::find_if_not(left.begin(), left.end(), in_word);
    std::string word(left.begin(), end);
    left.remove_prefix(word.size());
    // `e'…'`, `u&"…"` and the like are no words.
    if (word.size() == 1 && !left.empty() && (left.front() == '\'' || left.front() == '&')) break;
    word.resize(std::min(word.size(), word_bytes_max));
    std::transform(word.begin(), word.end(), word.begin(), upper);
    out.words.push_back(std::move(word));
    left = behind_blanks(left, false);
  }
  return out;
}

}  // namespace fencegate::wire
