// What all threads of a Redis gate share about their backend.
#pragma once

#include "backend/command_table.hpp"
#include "backend/mark_memory.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::backend {

using stream = boost::asio::generic::stream_protocol;

struct redis_state {
  redis_state(const settings::redis_gate& gate_settings, metrics::gate& gate_figures)
      : gate(gate_settings), figures(gate_figures) {}

  const settings::redis_gate& gate;
  metrics::gate& figures;
  mark_memory marks;

  // A consistent picture for a session, taken when `version` has moved.
  struct picture {
    std::shared_ptr<const command_table> commands = command_table::empty();
    std::string epoch;                                         // "" until the backend was seen
    std::vector<stream::endpoint> endpoints;                   // of the upstream; empty until it was resolved
    bool wants_auth = false;                                   // answers NOAUTH to who has not signed in
    bool ready = false;                                        // writes may be admitted
    std::string problem = "the backend has not answered yet";  // why not
  };
  [[nodiscard]] picture look() const {
    const std::lock_guard lock(mutex_);
    return picture_;
  }
  template <class Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(picture_);
    version.fetch_add(1, std::memory_order_release);
    figures.backend_up.set(picture_.ready ? 1 : 0);
  }
  std::atomic<std::uint64_t> version{1};

 private:
  mutable std::mutex mutex_;
  picture picture_;
};

}  // namespace fencegate::backend
