#include "fence/token.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <charconv>

namespace fencegate::fence {

namespace {

constexpr std::size_t digits_max = 19;  // of 2^63−1 = 9223372036854775807
constexpr std::size_t quoted_bytes_max = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

error not_a_token(std::string_view text, const char* why) {
  return {"'" + printable(text, quoted_bytes_max) + "' is not a fencing token: " + why};
}

}  // namespace

result<token> token::parse(std::string_view digits) {
  if (digits.empty()) return not_a_token(digits, "it is empty");
  if (!is_digit(digits.front())) return not_a_token(digits, "only decimal digits, without sign or blanks");
  // Length first: nothing of a huge "number" is looked at.
  if (digits.size() > digits_max) return not_a_token(digits, "the largest is 9223372036854775807");
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) {
    return not_a_token(digits, "only decimal digits, without sign or blanks");
  }
  if (digits.size() > 1 && digits.front() == '0') return not_a_token(digits, "leading zeros are not allowed");

  std::int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc{}) return not_a_token(digits, "the largest is 9223372036854775807");
  return token(value);
}

std::string token::to_string() const { return std::to_string(value_); }

bool is_resource_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.' || c == ':' ||
         c == '/' || c == '-';
}

bool is_resource_name(std::string_view name) {
  return !name.empty() && name.size() <= limits::resource_bytes_max &&
         std::all_of(name.begin(), name.end(), is_resource_byte);
}

}  // namespace fencegate::fence
