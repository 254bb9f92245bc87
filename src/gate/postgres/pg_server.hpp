// A PostgreSQL gate: what its server needs to know of the protocol.
#pragma once

#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "gate/postgres/cancel_routes.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <memory>

namespace fencegate::gate {

// `cancels`: of all servers of this gate, as a CancelRequest may come to any of them.
// REQUIRES: threads and rejections live longer than the workers run, gate and stats longer than the server, and as their
// `whole`.
[[nodiscard]] std::unique_ptr<server> make_pg_server(workers& threads, const settings::postgres_gate& gate,
                                                     metrics::gate& stats, rejection_log& rejections,
                                                     std::shared_ptr<cancel_routes> cancels);

}  // namespace fencegate::gate
