#include "client/sidecar_words.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <string_view>

namespace fencegate::client {
namespace {

constexpr std::size_t words_bytes_max = 200;

std::string text_in(const boost::json::object& of, std::string_view name) {
  const auto* value = of.if_contains({name.data(), name.size()});
  if (value == nullptr || !value->is_string()) return {};
  const auto& text = value->get_string();
  return fence::printable({text.data(), text.size()}, words_bytes_max);
}

}  // namespace

std::string sidecar_words(const std::string& answer) {
  const auto body = wire::parse_strict_json(answer, limits::lease_body_depth_max);
  if (!body || !body->is_object()) return {};
  auto detail = text_in(body->get_object(), "detail");
  return detail.empty() ? text_in(body->get_object(), "state") : detail;
}

}  // namespace fencegate::client
