// What comes first on the gate's own connection: whether strangers are let in, signing in, and the COMMAND table, which goes
// into the state that all threads share. No I/O of its own.
#pragma once

#include "backend/control_link.hpp"
#include "backend/redis_state.hpp"
#include "fence/gate_settings.hpp"

#include <string>
#include <vector>

namespace fencegate::backend {

// The command by which a user signs in; none where he has no password.
[[nodiscard]] std::vector<std::string> sign_in_of(const settings::credentials& user);

// Once for each connection. Where something of it fails, it is dropped, and the next one tries again. REQUIRES: state and
// link live until the last reply.
void greet(redis_state& state, control_link& link);

}  // namespace fencegate::backend
