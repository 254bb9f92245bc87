// The section of a redis gate.
#pragma once

#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"

namespace fencegate::cli {

// All but name and listen.
[[nodiscard]] settings::redis_gate read_redis_gate(report& to, section& gate);

}  // namespace fencegate::cli
