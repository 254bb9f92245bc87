#include "fence/capture_type.hpp"

#include "base/ascii.hpp"

#include <algorithm>
#include <charconv>

namespace fencegate::fence {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_slug_byte(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_' || c == '-'; }

std::optional<std::string> canonical_integer(std::string_view value) {
  std::int64_t number = 0;
  const auto* end = value.data() + value.size();
  const auto [stop, failed] = std::from_chars(value.data(), end, number);
  if (failed != std::errc{} || stop != end) return std::nullopt;
  return std::to_string(number);
}

// As uuid_in() of PostgreSQL: perhaps in braces, perhaps with a hyphen behind any four digits.
std::optional<std::string> canonical_uuid(std::string_view value) {
  constexpr std::size_t digits_all = 32, group = 4;
  if (value.starts_with('{')) {
    if (!value.ends_with('}')) return std::nullopt;
    value = value.substr(1, value.size() - 2);
  }
  std::string digits;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = ascii_lower(value[i]);
    if (c == '-') {
      const bool in_place = i > 0 && value[i - 1] != '-' && digits.size() % group == 0 && digits.size() < digits_all;
      if (!in_place) return std::nullopt;
      continue;
    }
    if (!is_hex_digit(c) || digits.size() == digits_all) return std::nullopt;
    digits += c;
  }
  if (digits.size() != digits_all) return std::nullopt;
  for (const std::size_t hyphen : {8, 13, 18, 23}) digits.insert(hyphen, 1, '-');
  return digits;
}

std::optional<std::string> canonical_slug(std::string_view value) {
  std::string out(value);
  std::transform(out.begin(), out.end(), out.begin(), ascii_lower);
  if (out.empty() || !std::all_of(out.begin(), out.end(), is_slug_byte)) return std::nullopt;
  return out;
}

}  // namespace

std::optional<capture_type> capture_type_of(std::string_view name) {
  if (name == "int") return capture_type::integer;
  if (name == "uuid") return capture_type::uuid;
  if (name == "slug") return capture_type::slug;
  return std::nullopt;
}

std::optional<std::string> canonical(capture_type type, std::string_view value) {
  switch (type) {
    case capture_type::text: return std::string(value);
    case capture_type::integer: return canonical_integer(value);
    case capture_type::uuid: return canonical_uuid(value);
    case capture_type::slug: return canonical_slug(value);
  }
  return std::nullopt;
}

}  // namespace fencegate::fence
