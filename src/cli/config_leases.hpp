// The section `leases` of the configuration.
#pragma once

#include "cli/config_gates.hpp"
#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"
#include "lease/timing.hpp"

#include <string>
#include <vector>

namespace fencegate::cli {

// REQUIRES: stores and gates were read. Adds where its API listens to `listeners`.
void read_leases(report& to, const YAML::Node& node, std::vector<listener>& listeners, settings::process& out);

// The times of a lease with this TTL.
[[nodiscard]] lease::timing timing_of(const settings::leases& all, std::chrono::milliseconds ttl);

}  // namespace fencegate::cli
