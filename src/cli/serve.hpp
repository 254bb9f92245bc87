// Runs the gates until the process is told to stop: the wiring of all folders.
#pragma once

#include "cli/configuration_file.hpp"
#include "fence/gate_settings.hpp"

namespace fencegate::cli {

// Serves what `config` says, which was read from `file`, and from SIGHUP or POST /reload on what that says then; returns the exit
// code of the process: 0 after SIGTERM or SIGINT, 1 when a gate could not start. Takes over the process's signals and its log.
[[nodiscard]] int serve(const settings::process& config, configuration_file& file);

}  // namespace fencegate::cli
