// The section `gates` of the configuration: the settings of each entry, and what must hold between them.
#pragma once

#include "cli/config_lease_gates.hpp"
#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"

#include <optional>
#include <string>
#include <vector>

namespace fencegate::cli {

// An address that the process listens on, and the place in the configuration that says so.
struct listener {
  settings::address where;
  std::string owner;  // "admin", or the gate's name
  YAML::Mark mark;
};

// Complains when another listener stands there already.
void add_listener(report& to, std::vector<listener>& listeners, listener added);

// Adds the gates to `out`, and their listeners to `listeners`. What is answered: those that hold a lease.
[[nodiscard]] std::vector<lease_gate> read_gates(report& to, const YAML::Node& list, std::vector<listener>& listeners,
                                                 settings::process& out);

}  // namespace fencegate::cli
