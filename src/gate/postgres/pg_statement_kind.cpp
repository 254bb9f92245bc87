#include "gate/postgres/pg_statement_kind.hpp"

#include "wire/sql_bytes.hpp"
#include "wire/sql_lead.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace fencegate::gate {
namespace {

using kind = pg_statement_kind;

struct word_kind {
  std::string_view word;
  kind what;
};

// In the order of the alphabet.
constexpr std::array<word_kind, 44> first_words{{
    {"ABORT", kind::ends_surely}, {"ALTER", kind::plain},        {"ANALYZE", kind::plain},
    {"BEGIN", kind::begins},      {"CALL", kind::may_commit},    {"CLOSE", kind::plain},
    {"COMMENT", kind::plain},     {"COMMIT", kind::ends_surely}, {"COPY", kind::copy},
    {"CREATE", kind::plain},      {"DEALLOCATE", kind::plain},   {"DECLARE", kind::wants_block},
    {"DELETE", kind::plain},      {"DISCARD", kind::bare},       {"DO", kind::may_commit},
    {"DROP", kind::plain},        {"END", kind::ends_surely},    {"EXECUTE", kind::named},
    {"EXPLAIN", kind::plain},     {"FETCH", kind::plain},        {"GRANT", kind::plain},
    {"INSERT", kind::plain},      {"LISTEN", kind::plain},       {"LOCK", kind::locks},
    {"MERGE", kind::plain},       {"MOVE", kind::plain},         {"NOTIFY", kind::plain},
    {"PREPARE", kind::prepares},  {"REFRESH", kind::plain},      {"RELEASE", kind::ends},
    {"RESET", kind::bare},        {"REVOKE", kind::plain},       {"ROLLBACK", kind::ends_surely},
    {"SAVEPOINT", kind::ends},    {"SELECT", kind::plain},       {"SET", kind::bare},
    {"SHOW", kind::bare},         {"START", kind::begins},       {"TABLE", kind::plain},
    {"TRUNCATE", kind::plain},    {"UNLISTEN", kind::bare},      {"UPDATE", kind::plain},
    {"VALUES", kind::plain},      {"WITH", kind::plain},
}};

// Takes the word at the start, in upper case; "" where none is.
std::string take_word(std::string_view& sql) {
  const auto* const end = std::find_if_not(sql.begin(), sql.end(), wire::in_word);
  std::string word(sql.begin(), end);
  sql.remove_prefix(word.size());
  std::transform(word.begin(), word.end(), word.begin(), wire::upper);
  return word;
}

// `rest`: behind COMMIT, END, ROLLBACK or ABORT.
bool ends_surely(std::string_view rest) {
  rest = wire::behind_blanks(rest, false);
  auto behind = rest;
  if (const auto word = take_word(behind); word == "WORK" || word == "TRANSACTION") rest = behind;
  return wire::behind_blanks(rest, true).empty();
}

}  // namespace

kind kind_of_statement(std::string_view sql, bool whole) {
  static_assert(std::is_sorted(first_words.begin(), first_words.end(),
                               [](const word_kind& a, const word_kind& b) { return a.word < b.word; }));
  auto rest = wire::behind_blanks(sql, true);
  if (rest.empty()) return whole ? kind::bare : kind::unknown;
  if (rest.front() == '(') return kind::plain;
  const auto word = take_word(rest);
  if (!whole && rest.empty()) return kind::unknown;
  const auto* const known = std::lower_bound(first_words.begin(), first_words.end(), word,
                                             [](const word_kind& one, const std::string& w) { return one.word < w; });
  if (known == first_words.end() || known->word != word) return kind::unsure;
  if (word == "PREPARE") {
    rest = wire::behind_blanks(rest, false);
    const auto second = take_word(rest);
    return second == "TRANSACTION" || (!whole && rest.empty()) ? kind::hands_over : kind::prepares;
  }
  if (known->what == kind::ends_surely && !(whole && ends_surely(rest))) return kind::ends;
  return known->what;
}

}  // namespace fencegate::gate
