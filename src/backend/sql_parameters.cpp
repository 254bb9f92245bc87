#include "backend/sql_parameters.hpp"

#include <algorithm>
#include <charconv>

namespace fencegate::backend {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_word(char c) {
  const char l = lower(c);
  return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// bytea itself, and no array of it.
bool casts_to_bytea(std::string_view behind) {
  constexpr std::string_view cast = "::bytea";
  const auto begins = behind.substr(0, cast.size());
  if (!std::equal(begins.begin(), begins.end(), cast.begin(), cast.end(), [](char a, char b) { return lower(a) == b; }))
    return false;
  behind.remove_prefix(cast.size());
  if (!behind.empty() && is_word(behind.front())) return false;
  const auto next = behind.find_first_not_of(" \t\r\n");
  return next == std::string_view::npos || behind[next] != '[';
}

}  // namespace

std::map<std::size_t, bool> sql_parameters(std::string_view sql) {
  std::map<std::size_t, bool> out;
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
      const bool bytea = casts_to_bytea(sql.substr(static_cast<std::size_t>(end - sql.data())));
      bool& everywhere = out.try_emplace(number, true).first->second;
      everywhere = everywhere && bytea;
    }
  }
  return out;
}

}  // namespace fencegate::backend
