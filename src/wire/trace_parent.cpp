#include "wire/trace_parent.hpp"

#include "wire/http_head.hpp"

#include <algorithm>
#include <cstddef>

namespace fencegate::wire {
namespace {

constexpr std::size_t bytes = 55;  // version-trace_id-parent_id-flags: 2, 32, 16 and 2 digits
// An unknown version may have more behind it; so much is enough for whoever looks at a log.
constexpr std::size_t bytes_max = 128;

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

bool is_well_formed(std::string_view value) {
  if (value.size() < bytes || value.size() > bytes_max) return false;
  const auto version = value.substr(0, 2), trace = value.substr(3, 32), parent = value.substr(36, 16),
             flags = value.substr(53, 2), rest = value.substr(bytes);
  if (value[2] != '-' || value[35] != '-' || value[52] != '-') return false;
  if (!is_hex(version) || !is_hex(trace) || !is_hex(parent) || !is_hex(flags)) return false;
  if (version == "ff" || is_zero(trace) || is_zero(parent)) return false;
  return rest.empty() || (version != "00" && rest[0] == '-');
}

}  // namespace

std::string_view trace_parent_of(std::span<const header_field> fields) {
  std::string_view found;
  for (const auto& one : fields) {
    if (!same_field_name(one.name, "traceparent")) continue;
    if (!found.empty()) return {};
    if (!is_well_formed(one.value)) return {};
    found = one.value;
  }
  return found;
}

}  // namespace fencegate::wire
