#include "base/quantity_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace fencegate {
namespace {

constexpr std::chrono::hours duration_max{30 * 24};
struct duration_unit {
  std::string_view name;
  std::chrono::milliseconds one;
};
constexpr std::array<duration_unit, 4> duration_units{{{"h", std::chrono::hours(1)},
                                                       {"m", std::chrono::minutes(1)},
                                                       {"s", std::chrono::seconds(1)},
                                                       {"ms", std::chrono::milliseconds(1)}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text == "0") return std::chrono::milliseconds(0);
  const auto digits_end = std::find_if_not(text.begin(), text.end(), is_digit) - text.begin();
  const auto digits = text.substr(0, static_cast<std::size_t>(digits_end));
  const auto name = text.substr(digits.size());
  if (!digits.empty() && name.empty()) return error{"a duration needs a unit: ms, s, m or h, such as 25s"};
  for (const auto& candidate : duration_units) {
    if (digits.empty() || candidate.name != name) continue;
    const auto count = parse_count(digits, 0, duration_max / candidate.one);
    if (!count) return error{"the duration is longer than 30 days"};
    return candidate.one * *count;
  }
  return error{"not a duration: write digits and a unit, ms, s, m or h, such as 25s"};
}

std::string write_duration(std::chrono::milliseconds duration) {
  const auto unit = std::find_if(duration_units.begin(), duration_units.end(),
                                 [&](const auto& one) { return duration % one.one == duration.zero(); });
  return std::to_string(duration / unit->one) + std::string(unit->name);
}

result<std::int64_t> parse_count(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  const bool digits_only = !text.empty() && is_digit(text[0]);
  if (!digits_only || stop != end || failed != std::errc{} || value < least || value > most)
    return error{"must be a whole number from " + std::to_string(least) + " to " + std::to_string(most)};
  return value;
}

}  // namespace fencegate
