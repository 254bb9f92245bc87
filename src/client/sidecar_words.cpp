#include "client/sidecar_words.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/object.hpp>

#include <string_view>

namespace fencegate::client {
namespace {

std::string text_in(const boost::json::object& of, std::string_view name, std::size_t bytes_max) {
  const auto* value = of.if_contains({name.data(), name.size()});
  if (value == nullptr || !value->is_string()) return {};
  const auto& text = value->get_string();
  return fence::printable({text.data(), text.size()}, bytes_max);
}

}  // namespace

std::string sidecar_words(const std::string& answer, std::size_t bytes_max) {
  const auto body = wire::parse_strict_json(answer, limits::lease_body_depth_max);
  if (!body || !body->is_object()) return {};
  auto detail = text_in(body->get_object(), "detail", bytes_max);
  return detail.empty() ? text_in(body->get_object(), "state", bytes_max) : detail;
}

}  // namespace fencegate::client
