// The section of a postgres gate.
#pragma once

#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"

namespace fencegate::cli {

// All but name and listen.
[[nodiscard]] settings::postgres_gate read_postgres_gate(report& to, section& gate);

}  // namespace fencegate::cli
