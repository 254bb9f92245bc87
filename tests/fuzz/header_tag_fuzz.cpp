// uses: fence
// The values of the two fields by which tokens travel: "<Fencing-Token>\n<X-Fencing-Token>"; an empty one is not sent.
#include "fence/header_tag.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

using claims = std::optional<std::vector<fence::claim>>;

result<claims> read(const std::vector<header_field>& fields, const std::vector<std::string>& resources) {
  auto got = fence::read_token_header(fields, "Fencing-Token", resources);
  if (!got) {
    for (const char c : got.error().message) require(c >= 0x20 && c <= 0x7e);
  }
  return got;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto line = std::min(input.find('\n'), input.size());
  const auto first = input.substr(0, line);
  const auto second = input.substr(std::min(input.size(), line + 1));
  std::vector<header_field> fields;
  if (!first.empty()) fields.push_back({"Fencing-Token", first});
  if (!second.empty()) fields.push_back({"x_fencing_token", second});

  const auto got = read(fields, {"orders"});
  if (fields.empty()) require(got && !*got);
  if (!got || !*got) {
    require(!got || fields.empty());
    return 0;
  }
  // Written out it says the same, under either name; and each of two fields says it alone.
  std::string text;
  for (const auto& c : **got) {
    require(fence::is_resource_name(c.resource) && c.presented.value() >= 0);
    text += (text.empty() ? "" : ", ") + c.resource + "=" + c.presented.to_string();
  }
  for (const auto* name : {"fencing_token", "X-Fencing-Token"}) {
    const auto again = read({{name, text}}, {});
    require(again && *again == *got);
  }
  for (const header_field& field : fields) {
    const auto alone = read({field}, {"orders"});
    require(alone && *alone && (*alone)->size() == (*got)->size());
    for (const auto& c : **got) require(std::find((*alone)->begin(), (*alone)->end(), c) != (*alone)->end());
  }
  return 0;
}
