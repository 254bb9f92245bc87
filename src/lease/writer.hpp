// A writer behind gates that hold its lease, as the sidecar knows it: a machine without clock and without I/O. Gates whose
// writer has one name share one.
//
//   unknown ──started──▶ standby ──granted──▶ holding        on_loss: rebind   it begins in standby; a loss leads back there
//                           ▲                    │
//                           └──started── lost ◀──┘ lost, or its heartbeats have stopped
//
// Rule kept: what a writer has decided under one grant is never sent under another. A process that stood still does not know
// that it lost the lease, so another one has to take its place: `unknown` and `lost` end only when each of the writer's
// containers was started later than the loss, and later than this process, which knows of no loss before that. So a report
// that is repeated, late, or of another process by mistake changes nothing.
#pragma once

#include "lease/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::lease {

struct writer_rules {
  bool rebinds = false;                 // on_loss: rebind; else restart
  std::vector<std::string> containers;  // all that must start anew; none: there is one, whatever its name
  std::chrono::milliseconds silence_max{30'000};
};

enum class writer_phase : std::uint8_t {
  unknown,  // the sidecar has just started
  standby,  // the writer was started since, and no grant was had since
  holding,
  lost
};
// "unknown", "standby", …
[[nodiscard]] std::string_view name_of(writer_phase phase);

class writer {
 public:
  using time_point = boot_clock::time_point;

  enum class report : std::uint8_t {
    counted,   // or nothing hangs on it
    early,     // that start was not later than the loss, or than this process
    ahead,     // that start is still to come: it was read from another clock
    stranger,  // there is no such container, or it must be said which
  };

  // `began`: this process did.
  writer(writer_rules rules, time_point began);

  // A container's first process was started then. REQUIRES: times of `now` do not go back.
  report started(std::string_view container, time_point start, time_point now);
  // Its probe has come.
  void heard(time_point now);
  // Probes came, and come no more: the grant is to be released, if there is one, and then lost() called.
  [[nodiscard]] bool is_silent(time_point now) const;
  // When is_silent() may say something else.
  [[nodiscard]] std::optional<time_point> silent_at() const;

  // REQUIRES: standby; or unknown: the store renewed the very term that an earlier process held for it.
  void granted();
  // REQUIRES: nothing has been bound to the grant for some time by `when`, nor will be: see bond::revoke().
  void lost(time_point when);

  [[nodiscard]] writer_phase phase() const { return phase_; }
  [[nodiscard]] bool rebinds() const { return rules_.rebinds; }
  // How many starts were counted, each later than the one before it of its container.
  [[nodiscard]] std::size_t starts() const { return count_; }
  // The latest start that was reported and counted.
  [[nodiscard]] std::optional<time_point> started_at() const { return started_at_; }
  // Only a later start counts.
  [[nodiscard]] time_point since() const { return since_; }

 private:
  [[nodiscard]] bool all_started() const;

  const writer_rules rules_;
  writer_phase phase_;
  time_point since_;
  std::map<std::string, time_point, std::less<>> starts_;  // later than since_, by container
  std::size_t count_ = 0;
  std::optional<time_point> started_at_;
  std::optional<time_point> heard_;
  bool fell_silent_ = false;  // rebind: the next heartbeat ends `lost`
};

}  // namespace fencegate::lease
