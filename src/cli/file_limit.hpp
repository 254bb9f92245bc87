// How many file descriptors the process may have (RLIMIT_NOFILE).
#pragma once

#include "fence/gate_settings.hpp"

namespace fencegate::cli {

// As many as the system lets the process have.
void raise_file_limit();

// Logs a warning where fewer are allowed than the clients of all gates may take: those that come on top get an error.
void compare_file_limit(const settings::process& config);

}  // namespace fencegate::cli
