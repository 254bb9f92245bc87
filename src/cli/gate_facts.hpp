// What the status page says of the gates, as the configuration has it: without users and passwords.
#pragma once

#include "admin/status_view.hpp"
#include "fence/gate_settings.hpp"

#include <vector>

namespace fencegate::cli {

// Redis gates first, then those of PostgreSQL and of HTTP, each in the order of the configuration.
[[nodiscard]] std::vector<admin::gate_facts> gate_facts_of(const settings::process& config);

}  // namespace fencegate::cli
