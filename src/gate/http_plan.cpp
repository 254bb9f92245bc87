#include "gate/http_plan.hpp"

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
    plan.routes.push_back({std::move(*resource), std::move(values)});
    if (auto added = plan.table.add(std::move(*pattern)); added.has_error()) return added.error();
  }
  return plan;
}

}  // namespace fencegate::gate
