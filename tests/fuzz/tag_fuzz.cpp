// uses: fence
// Client names as a peer may send them. Whatever find_tag makes of one, it says the same when it is written out again.
#include "base/limits.hpp"
#include "fence/tag.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

using namespace fencegate;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string write_out(const std::vector<fence::claim>& claims) {
  std::string text;
  for (const auto& c : claims) text += (text.empty() ? "" : ",") + c.resource + "=" + c.presented.to_string();
  return text;
}

void check(const std::vector<fence::claim>& claims) {
  require(!claims.empty() && claims.size() <= limits::tag_resources_max);
  for (const auto& c : claims) require(fence::is_resource_name(c.resource) && c.presented.value() >= 0);
  const auto again = fence::parse_tag(write_out(claims));
  require(again && *again == claims);
}

void check(const error& e) {
  require(!e.message.empty() && e.message.size() < 1024);
  for (const char c : e.message) require(c >= 0x20 && c <= 0x7e);
}

void check(const result<std::vector<fence::claim>>& parsed) {
  if (parsed) {
    check(*parsed);
  } else {
    check(parsed.error());
  }
}

bool has_prefix(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("fence:") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto value = fence::token::parse(text)) require(value->to_string() == text);
  check(fence::parse_tag(text));

  const auto found = fence::find_tag(text);
  require(!found || has_prefix(text));
  if (found) check(*found);
  // As a whole name: every tag is found where it is put, and a bad one is never taken for none.
  const auto named = fence::find_tag("fence:" + std::string(text));
  require(named.has_value());
  check(*named);
  return 0;
}
