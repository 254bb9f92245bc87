// A Redis gate: what its server needs to know of the protocol.
#pragma once

#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <memory>

namespace fencegate::gate {

// REQUIRES: threads and rejections live longer than the workers run, gate and stats longer than the server, and as their
// `whole`.
[[nodiscard]] std::unique_ptr<server> make_redis_server(workers& threads, const settings::redis_gate& gate,
                                                        metrics::gate& stats, rejection_log& rejections);

}  // namespace fencegate::gate
