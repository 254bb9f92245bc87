// Runs the gates until the process is told to stop: the wiring of all folders.
#pragma once

#include "cli/config.hpp"
#include "fence/gate_settings.hpp"

#include <functional>
#include <string>

namespace fencegate::cli {

// Serves what `config` says, and from SIGHUP or POST /reload on what `read_again` says then, of the same file; returns the exit
// code of the process: 0 after SIGTERM or SIGINT, 1 when a gate could not start. Takes over the process's signals and its log.
[[nodiscard]] int serve(const settings::process& config, const std::string& file,
                        const std::function<config_result()>& read_again);

}  // namespace fencegate::cli
