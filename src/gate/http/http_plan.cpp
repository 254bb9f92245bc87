#include "gate/http/http_plan.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace fencegate::gate {
namespace {

result<fence::route_pattern> pattern_of(const settings::http_route& route) {
  std::string methods;
  for (const auto& one : route.methods) methods += (methods.empty() ? "" : ",") + one;
  return fence::route_pattern::parse((methods.empty() ? "*" : methods) + " " + route.pattern);
}

}  // namespace

result<http_plan> plan_routes(const settings::http_gate& gate) {
  http_plan plan;
  if (!gate.stores.empty()) plan.own_store = gate.stores.front().name;
  plan.of_tag = gate.tag;
  for (const auto& name : gate.leased.resources) plan.of_tag.push_back({name, fence::token(0)});
  for (const auto& one : gate.routes) {
    auto pattern = pattern_of(one);
    if (pattern.has_error()) return pattern.error();
    auto resource = fence::route_template::parse_resource(one.resource, *pattern);
    if (resource.has_error()) return resource.error();
    std::vector<fence::route_template> values;
    for (const auto& text : one.does == settings::http_action::redis ? one.command : one.parameters) {
      auto value = fence::route_template::parse(text, *pattern);
      if (value.has_error()) return value.error();
      values.push_back(std::move(*value));
    }
    plan.routes.push_back({one.store, std::move(*resource), std::move(values)});
    if (auto added = plan.table.add(std::move(*pattern)); added.has_error()) return added.error();
  }
  return plan;
}

std::optional<fence::rejection> http_plan::foreign_claim(const fence::claims_list& claims,
                                                         std::string_view store) const {
  const auto is_named = [&](const std::string& resource) {
    if (std::any_of(of_tag.begin(), of_tag.end(), [&](const auto& one) { return one.resource == resource; }))
      return true;
    for (std::size_t i = 0; i < routes.size(); ++i)
      if (routes[i].store == store && routes[i].resource.can_name(resource, table.pattern(i))) return true;
    return false;
  };
  const auto found =
      std::find_if(claims.begin(), claims.end(), [&](const fence::claim& one) { return !is_named(one.resource); });
  if (found == claims.end()) return std::nullopt;
  return fence::rejection{fence::reason::refused,
                          found->resource,
                          found->presented,
                          {},
                          "no route of this gate with this store has a resource of this name: leave it out"};
}

}  // namespace fencegate::gate
