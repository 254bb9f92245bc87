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
  redis_state(const settings::redis_gate& gate_settings, metrics::gate& gate_figures, std::string store_name = {})
      : whole(gate_figures.whole.lock()),
        gate(gate_settings),
        store(std::move(store_name)),
        figures(gate_figures),
        tls(tls_context::to(gate_settings.upstream, gate_settings.secured)) {
    marks.tell_rises(figures);
  }

  // For a line about this backend.
  [[nodiscard]] log::event event() const { return log::event().add("gate", gate.name).add("store", store); }

  const std::shared_ptr<const void> whole;  // of which the settings and figures are parts
  const settings::redis_gate gate;
  const std::string store;  // of an HTTP gate; else ""
  metrics::gate& figures;
  const std::shared_ptr<tls_context> tls;  // of all links to it; nullptr: they are plain text
  mark_memory marks;

  // A consistent picture for a session, taken when `version` has moved.
  struct picture {
    std::shared_ptr<const command_table> commands = command_table::empty();
    std::string epoch;                                         // "" until the backend was seen
    std::uint64_t lowerings = 0;                               // that this process has followed
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
    show_change();
  }
  std::atomic<std::uint64_t> version{1};

  // The server is ready, under this epoch. False: it is not the one before that was `known`, nor this.
  [[nodiscard]] bool take_over(const std::string& epoch, const std::string& known) {
    const std::lock_guard lock(mutex_);
    if (picture_.epoch != known && picture_.epoch != epoch) return false;
    if (picture_.ready && picture_.epoch == epoch) return true;
    picture_.ready = true;
    picture_.problem.clear();
    picture_.epoch = epoch;
    show_change();
    return true;
  }

  // Operators have lowered these: what was seen of them before is void, and `epoch` follows on `known`. False: another thread
  // was here first.
  [[nodiscard]] bool follow_lowerings(const std::string& known, const std::string& epoch,
                                      const std::vector<lowering>& these) {
    const std::lock_guard lock(mutex_);
    if (picture_.epoch != known) return false;
    for (const auto& one : these) marks.saw(*marks.cell(one.resource), one.to, picture_.lowerings + 1);
    ++picture_.lowerings;
    picture_.epoch = epoch;
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
    figures.note_backend(store, picture_.ready ? std::string_view() : picture_.problem);
  }

  mutable std::mutex mutex_;
  picture picture_;
  std::string lost_epoch_;
  std::chrono::steady_clock::time_point loss_seen_{};
};

}  // namespace fencegate::backend
