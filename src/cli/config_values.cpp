#include "cli/config_values.hpp"

#include "fence/printable.hpp"

#include <algorithm>
#include <vector>

namespace fencegate::cli {
namespace {

constexpr std::size_t quoted_bytes_max = 60;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_byte(char c) { return is_digit(c) || is_letter(c) || c == '_'; }

bool is_variable_name(std::string_view name) {
  return !name.empty() && !is_digit(name[0]) && std::all_of(name.begin(), name.end(), is_name_byte);
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_name_byte(c) || c == '-' || c == '.' || c == '~') {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

// Variables that start in [encode_from, encode_to) are percent-encoded.
result<std::string> expand_parts(std::string_view text, const variable_lookup& variable, std::size_t encode_from,
                                 std::size_t encode_to) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == '$') {
      out += '$';
      ++i;
      continue;
    }
    if (next != '{') return error{"a lone \"$\": write ${NAME} for a variable and $$ for a dollar sign"};
    const auto end = text.find('}', i);
    const auto name = end == std::string_view::npos ? std::string_view{} : text.substr(i + 2, end - i - 2);
    if (!is_variable_name(name)) return error{"not a variable: write ${NAME}, with a name of letters, digits and _"};
    const auto value = variable(std::string(name));
    if (!value) return error{"the environment variable " + std::string(name) + " is not set"};
    out += i >= encode_from && i < encode_to ? percent_encoded(*value) : *value;
    i = end;
  }
  // `error` is a string too: a bare string would not say which of the two it is.
  return {boost::system::in_place_value, std::move(out)};
}

std::string folded(std::string_view word) {
  std::string out;
  for (const char c : word) {
    if (c == '-')
      out += '_';
    else
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t differ = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + differ});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

result<std::string> expand(std::string_view text, const variable_lookup& variable) {
  return expand_parts(text, variable, 0, 0);
}

result<std::string> expand_url(std::string_view text, const variable_lookup& variable) {
  const auto scheme = text.find("://");
  const auto at = text.rfind('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos) return expand(text, variable);
  return expand_parts(text, variable, scheme, at);
}

std::string suggestion(std::string_view wrong, std::span<const std::string_view> words) {
  constexpr std::size_t word_bytes_max = 40;
  if (wrong.size() > word_bytes_max) return "";
  std::string_view best;
  std::size_t best_distance = 0;
  for (const auto candidate : words) {
    const auto d = distance(folded(wrong), folded(candidate));
    const auto near_enough = std::max<std::size_t>(1, candidate.size() / 3);
    if (d <= near_enough && (best.empty() || d < best_distance)) {
      best = candidate;
      best_distance = d;
    }
  }
  return best.empty() ? "" : " (did you mean \"" + std::string(best) + "\"?)";
}

std::string quotation::operator()(std::string_view text) const {
  return "\"" + fence::printable(text, quoted_bytes_max) + "\"";
}

}  // namespace fencegate::cli
