// The routes of an HTTP gate, compiled: the table that finds one, and the templates of each.
#pragma once

#include "fence/gate_settings.hpp"
#include "fence/rejection.hpp"
#include "fence/route_table.hpp"
#include "fence/route_template.hpp"
#include "fence/tag.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

struct http_plan {
  struct route {
    std::string store;  // where its marks are
    fence::route_template resource;
    std::vector<fence::route_template> values;  // redis: the command's words; sql: the parameters
  };

  std::string own_store;      // the gate's, for marks without a route
  fence::claims_list of_tag;  // what the listener's tag names, which is the operator's word
  fence::route_table table;
  std::vector<route> routes;  // in the order of the configuration

  // A claim for what neither the listener's tag names nor a route with this store can be about. Its mark would be raised
  // by nobody here, or by who should not: it is another gate's.
  [[nodiscard]] std::optional<fence::rejection> foreign_claim(const fence::claims_list& claims,
                                                              std::string_view store) const;
};

// The configuration was checked when it was read; an error says what `check` should have.
[[nodiscard]] result<http_plan> plan_routes(const settings::http_gate& gate);

}  // namespace fencegate::gate
