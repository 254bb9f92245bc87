// What comes first on the gate's own connection: whether strangers are let in, signing in, and the COMMAND table, which goes
// into the state that all threads share. No I/O of its own.
#pragma once

#include "backend/control_link.hpp"
#include "backend/redis_state.hpp"

namespace fencegate::backend {

// Once for each connection. Where something of it fails, it is dropped, and the next one tries again. REQUIRES: state and
// link live until the last reply.
void greet(redis_state& state, control_link& link);

}  // namespace fencegate::backend
