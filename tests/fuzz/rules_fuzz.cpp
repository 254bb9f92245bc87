// uses: fence
// One rule and one key: "<keys>\n<resource>\n<key>". Rules come from the operator, keys from a hostile client.
#include "base/limits.hpp"
#include "fence/resource_rules.hpp"
#include "fence/token.hpp"

#include <cstdint>
#include <cstdlib>

namespace {

using namespace fencegate;

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

// The key that a pattern made of `text` alone must match.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view key(reinterpret_cast<const char*>(data), size);
  const auto keys = take_line(key);
  const auto resource = take_line(key);

  const auto rule = fence::key_rule::compile(keys, resource);
  if (!rule) {
    for (const char c : rule.error().message) require(c >= 0x20 && c <= 0x7e);
  } else if (const auto name = rule->match(key)) {
    require(!name->empty() && name->size() <= limits::resource_bytes_max + 1);
    require(rule->match(key) == name);  // matching leaves nothing behind
    // With a star behind it, a pattern takes at least as many keys.
    const auto wider = fence::key_rule::compile(std::string(keys) + "*", resource);
    require(!wider || wider->match(key));
  }

  if (!key.empty()) {
    const auto exact = fence::key_rule::compile(escaped(key), "r");
    require(exact && exact->match(key) && !exact->match(std::string(key) + "x"));
    const auto inside = fence::key_rule::compile("*" + escaped(key) + "*", "r");
    require(inside && inside->match("ab" + std::string(key) + "ba"));
  }
  return 0;
}
