// An HTTP gate: what its server needs to know of the protocol.
#pragma once

#include "base/metrics.hpp"
#include "base/result.hpp"
#include "fence/gate_settings.hpp"
#include "gate/http/http_plan.hpp"
#include "gate/http/http_store_set.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <memory>

namespace fencegate::gate {

// REQUIRES: threads and rejections live longer than the workers run, gate and stats longer than the server, and as their
// `whole`; the stores live on the first worker's thread, and are started and stopped by the server. `plan`: of the gate's
// routes.
[[nodiscard]] std::unique_ptr<server> make_http_server(workers& threads, const settings::http_gate& gate,
                                                       http_plan plan, std::shared_ptr<http_store_set> stores,
                                                       metrics::gate& stats, rejection_log& rejections);

}  // namespace fencegate::gate
