// What is particular to a gate of the protocol http.
#pragma once

#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"

namespace fencegate::cli {

// Reads a gate, but for its name and listen. `process`: what was read so far, its stores and whether it has an admin
// listener.
[[nodiscard]] settings::http_gate read_http_gate(report& to, section& gate, const settings::process& process);

}  // namespace fencegate::cli
