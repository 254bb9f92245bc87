// A PostgreSQL gate: what its server needs to know of the protocol.
#pragma once

#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <memory>

namespace fencegate::gate {

// REQUIRES: everything given lives longer than the workers run.
[[nodiscard]] std::unique_ptr<server> make_pg_server(workers& threads, const settings::postgres_gate& gate,
                                                     metrics::gate& figures, rejection_log& rejections);

}  // namespace fencegate::gate
