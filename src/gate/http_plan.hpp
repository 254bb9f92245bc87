// The routes of an HTTP gate, compiled: the table that finds one, and the templates of each.
#pragma once

#include "fence/gate_settings.hpp"
#include "fence/route_table.hpp"
#include "fence/route_template.hpp"

#include <vector>

namespace fencegate::gate {

struct http_plan {
  struct route {
    fence::route_template resource;
    std::vector<fence::route_template> values;  // redis: the command's words; sql: the parameters
  };

  fence::route_table table;
  std::vector<route> routes;  // in the order of the configuration
};

// The configuration was checked when it was read; an error says what `check` should have.
[[nodiscard]] result<http_plan> plan_routes(const settings::http_gate& gate);

}  // namespace fencegate::gate
