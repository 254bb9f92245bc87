// What all threads of a Redis gate share about their backend.
#pragma once

#include "backend/command_table.hpp"
#include "backend/lowered_marks.hpp"
#include "backend/mark_memory.hpp"
#include "backend/tls.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::backend {

using stream = boost::asio::generic::stream_protocol;

struct redis_state {
  redis_state(const settings::redis_gate& gate_settings, metrics::gate& gate_stats, std::string store_name = {})
      : whole(gate_stats.whole.lock()),
        gate(gate_settings),
        store(std::move(store_name)),
        stats(gate_stats),
        tls(tls_context::to(gate_settings.upstream, gate_settings.secured)) {
    marks.tell_rises(stats);
  }

  // For a line about this backend.
  [[nodiscard]] log::event event() const { return log::event().add("gate", gate.name).add("store", store); }

  const std::shared_ptr<const void> whole;  // of which the settings and stats are parts
  const settings::redis_gate gate;
  const std::string store;  // of an HTTP gate; else ""
  metrics::gate& stats;
  const std::shared_ptr<tls_context> tls;  // of all links to it; nullptr: they are plain text
  mark_memory marks;

  // A consistent snapshot for a session, taken when `version` has moved.
  struct snapshot {
    std::shared_ptr<const command_table> commands = command_table::empty();
    std::string epoch;                                         // "" until the backend was seen
    std::uint64_t lowerings = 0;                               // that this process has followed
    std::vector<stream::endpoint> endpoints;                   // of the upstream; empty until it was resolved
    bool wants_auth = false;                                   // answers NOAUTH to who has not signed in
    bool ready = false;                                        // writes may be admitted
    std::string problem = "the backend has not answered yet";  // why not
  };
  [[nodiscard]] snapshot look() const {
    const std::lock_guard lock(mutex_);
    return snapshot_;
  }
  template <class Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(snapshot_);
    show_change();
  }
  std::atomic<std::uint64_t> version{1};

  // The server is ready, under this epoch. False: it is not the one before that was `known`, nor this.
  [[nodiscard]] bool take_over(const std::string& epoch, const std::string& known) {
    const std::lock_guard lock(mutex_);
    if (snapshot_.epoch != known && snapshot_.epoch != epoch) return false;
    if (snapshot_.ready && snapshot_.epoch == epoch) return true;
    snapshot_.ready = true;
    snapshot_.problem.clear();
    snapshot_.epoch = epoch;
    show_change();
    return true;
  }

  // Operators have lowered these: what was seen of them before is void, and `epoch` follows on `known`. False: another thread
  // was here first.
  [[nodiscard]] bool follow_lowerings(const std::string& known, const std::string& epoch,
                                      const std::vector<lowering>& these) {
    const std::lock_guard lock(mutex_);
    if (snapshot_.epoch != known) return false;
    for (const auto& one : these) marks.saw(*marks.cell(one.resource), one.to, snapshot_.lowerings + 1);
    ++snapshot_.lowerings;
    snapshot_.epoch = epoch;
    show_change();
    return true;
  }

  // The marks of this epoch are lost. True: no thread has said so yet; all do while it lasts.
  [[nodiscard]] bool is_first_to_see(const std::string& lost_epoch) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const bool lasts = now - std::exchange(loss_seen_, now) < limits::same_loss_within;
    return std::exchange(lost_epoch_, lost_epoch) != lost_epoch || !lasts;
  }

 private:
  // REQUIRES: the lock is held.
  void show_change() {
    version.fetch_add(1, std::memory_order_release);
    stats.note_backend(store, snapshot_.ready ? std::string_view() : snapshot_.problem);
  }

  mutable std::mutex mutex_;
  snapshot snapshot_;
  std::string lost_epoch_;
  std::chrono::steady_clock::time_point loss_seen_{};
};

}  // namespace fencegate::backend
