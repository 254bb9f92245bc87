#include "backend/sql_parameters.hpp"

#include "base/ascii.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace fencegate::backend {
namespace {

constexpr std::string_view blanks = " \t\r\n\f\v";

bool is_word(char c) {
  const char l = ascii_lower(c);
  return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

void skip_blanks(std::string_view& text) { text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size())); }
void drop_blanks_behind(std::string_view& text) { text = text.substr(0, text.find_last_not_of(blanks) + 1); }

// Takes a word off the front, in lower case; "": there is none.
std::string take_word(std::string_view& text) {
  skip_blanks(text);
  const auto end = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_word) - text.begin());
  std::string word(text.substr(0, end));
  std::transform(word.begin(), word.end(), word.begin(), ascii_lower);
  text.remove_prefix(end);
  return word;
}

// Takes the last word off the end, in lower case.
std::string take_last_word(std::string_view& text) {
  drop_blanks_behind(text);
  const auto begin = static_cast<std::size_t>(std::find_if_not(text.rbegin(), text.rend(), is_word) - text.rbegin());
  std::string_view word_at_end = text.substr(text.size() - begin);
  text.remove_suffix(begin);
  return take_word(word_at_end);
}

// The name of a type in front, without its schema; "" for an array, or what else is no plain name.
std::string take_type(std::string_view text) {
  auto name = take_word(text);
  skip_blanks(text);
  if (name == "pg_catalog" && text.starts_with('.')) {
    text.remove_prefix(1);
    name = take_word(text);
    skip_blanks(text);
  }
  return text.starts_with('[') || text.starts_with('.') ? "" : name;
}

// The type to which a parameter is cast that stands between these; "": to none that is known here.
std::string type_of(std::string_view before, std::string_view behind) {
  for (;;) {
    skip_blanks(behind);
    if (behind.starts_with("::")) return take_type(behind.substr(2));
    drop_blanks_behind(before);
    if (!before.ends_with('(')) return "";
    before.remove_suffix(1);
    if (behind.starts_with(')')) {
      behind.remove_prefix(1);
      // Only brackets: not the argument of a function.
      drop_blanks_behind(before);
      if (!before.empty() && is_word(before.back())) return "";
      continue;
    }
    return take_word(behind) == "as" && take_last_word(before) == "cast" ? take_type(behind) : "";
  }
}

}  // namespace

std::map<std::size_t, sql_parameter> sql_parameters(std::string_view sql) {
  std::map<std::size_t, sql_parameter> out;
  char quote = 0;
  for (std::size_t i = 0; i < sql.size(); ++i) {
    const char c = sql[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '$') {
      std::size_t number = 0;
      const auto [end, failed] = std::from_chars(sql.data() + i + 1, sql.data() + sql.size(), number);
      if (failed != std::errc{}) continue;
      const auto type = type_of(sql.substr(0, i), sql.substr(static_cast<std::size_t>(end - sql.data())));
      auto& everywhere = out[number];
      everywhere.bytea = everywhere.bytea && type == "bytea";
      everywhere.text = everywhere.text && (type == "text" || type == "varchar");
    }
  }
  return out;
}

}  // namespace fencegate::backend
