// uses: wire fence
// Two routes, a resource and a target: "<pattern>\n<pattern>\n<resource>\n<target>". Routes come from the operator, the
// target from a hostile client.
#include "base/utf8.hpp"
#include "fence/route_table.hpp"
#include "fence/route_template.hpp"
#include "wire/http_target.hpp"

#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// Takes the text up to the next line end off the front.
std::string_view take_line(std::string_view& rest) {
  const auto end = rest.find('\n');
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

void check_message(const error& e) {
  require(!e.message.empty());
  for (const char c : e.message) require(c >= 0x20 && c <= 0x7e);
}

// What is canonical stays as it is, and means the same.
void check_target(const wire::http_target& target) {
  require(is_utf8(target.decoded) && target.path.find("//") == std::string::npos);
  wire::http_target again;
  require(wire::parse_http_target("PUT", target.path, "", again).has_value());
  require(again.path == target.path && again.decoded == target.decoded && !again.query);
  // With every byte escaped that may be, it is still the same for routes.
  std::string escaped;
  for (const char c : target.decoded) {
    constexpr std::string_view digits = "0123456789abcdef";
    if (c == '/') {
      escaped += c;
    } else {
      escaped.append("%").append(1, digits[static_cast<std::uint8_t>(c) >> 4]);
      escaped.append(1, digits[static_cast<std::uint8_t>(c) & 0xF]);
    }
  }
  require(wire::parse_http_target("PUT", escaped, "", again).has_value() && again.decoded == target.decoded);
}

std::optional<fence::route_match> find(const std::vector<fence::route_pattern>& patterns, std::string_view path,
                                       bool backwards) {
  fence::route_table table;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (auto added = table.add(patterns[backwards ? patterns.size() - 1 - i : i]); !added) check_message(added.error());
  }
  auto match = table.match("PUT", path);
  if (match && backwards && table.size() == 2) match->route = 1 - match->route;
  return match;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<fence::route_pattern> patterns;
  for (int i = 0; i < 2; ++i) {
    const auto parsed = fence::route_pattern::parse(take_line(rest));
    if (parsed) {
      patterns.push_back(*parsed);
    } else {
      check_message(parsed.error());
    }
  }
  const auto resource = take_line(rest);
  wire::http_target target;
  if (!wire::parse_http_target("PUT", rest, "", target)) return 0;
  check_target(target);

  const auto forwards = find(patterns, target.decoded, false);
  const auto backwards = find(patterns, target.decoded, true);
  require(forwards.has_value() == backwards.has_value());
  if (!forwards) return 0;
  const bool clash = patterns.size() == 2 && patterns[0].collides_with(patterns[1]);
  require(clash || forwards->route == backwards->route);

  const auto& pattern = patterns[forwards->route];
  for (std::size_t i = 0; i < pattern.names().size(); ++i) {
    const auto value = forwards->captured.values[i];
    require(!value.empty() && value.front() != '/');
    require(value.find('/') == std::string_view::npos || i + 1 == pattern.names().size());
  }
  const auto named = fence::route_template::parse_resource(resource, pattern);
  if (named) {
    require(!named->resource(forwards->captured).empty());
  } else {
    check_message(named.error());
  }
  return 0;
}
