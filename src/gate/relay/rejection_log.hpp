// Writes rejections to the log without letting a storm of them flood it: the first of a kind at once, the others as a
// count. A kind is gate, mode, reason, resource and the client's address without its port.
//
// A line for more than the first carries `repeated`: how many there were since the line before, the shown one included.
// A storm over many kinds is cut off at lines_per_second_max, and one more line says how many rejections had none of
// their own. So the lines without `repeated` plus its sum are all rejections; what is still outstanding, flush() writes.
// Whoever else wants to hear of rejections (hear_of_all) is told of them in the same kinds, some times a second.
#pragma once

#include "base/metrics.hpp"
#include "fence/rejection.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::gate {

// Under which outcome a rejection is counted.
[[nodiscard]] metrics::check_outcome outcome_of(fence::reason why);

// Thread safe. Log lines are written outside its lock.
class rejection_log {
 public:
  using clock = std::chrono::steady_clock;

  // At most one line per kind in this time. A kind that was quiet for as long is forgotten.
  static constexpr std::chrono::seconds line_interval{10};
  // Kinds remembered, some 2 KB each at most; for one more, the oldest is written out and forgotten.
  static constexpr std::size_t kinds_max = 1024;
  static constexpr std::size_t command_bytes_max = 64;
  // Of all kinds together.
  static constexpr std::size_t lines_per_second_max = 50;

  // `tell` hears of each token below a mark that is reported or told, on that thread, and returns at once. REQUIRES: before the
  // first of them.
  using on_stale = std::function<void(std::string_view gate, const fence::rejection& why)>;
  void hear_of_stale(on_stale tell) { stale_ = std::move(tell); }
  // Rejections that differ in their time alone, or in a client's port: the latest one. Printable and bounded.
  struct told {
    std::string gate;
    fence::rejection why;
    std::string client;
    std::string command;
    std::string trace;
    bool monitor = false;
    clock::time_point at;
    std::uint64_t count = 1;
  };
  // At most as often for one kind and token.
  static constexpr std::chrono::milliseconds tell_interval{500};
  // `tell` hears of all rejections, whatever is logged: of the first of a kind and token at once, of those behind it together.
  // It is called outside of the log's lock, on any thread, and returns at once. REQUIRES: before the first of them.
  using on_rejections = std::function<void(const told&)>;
  void hear_of_all(on_rejections tell) { all_ = std::move(tell); }
  // A session that was served was ended by it, which is logged by its gate. As report(), but for the log.
  void report_cut(std::string_view gate, const fence::rejection& why, std::string_view client_address,
                  clock::time_point now) const;

  // `client_address`: "host:port", "[v6]:port", or a name without port. `command`: its name only, never arguments.
  // `monitor`: the request was let through all the same. `now` may differ a little between threads. `trace`: the traceparent of
  // the request; "": it has none.
  void report(std::string_view gate, const fence::rejection& why, std::string_view client_address,
              std::string_view command, clock::time_point now, bool monitor, std::string_view trace = {});

  // Writes the counts whose interval is over, and tells of those that nobody was told of; report() does so too, hence this is
  // for quiet times.
  void write_due(clock::time_point now);
  // Writes every outstanding count; for the end of the process.
  void flush(clock::time_point now);

 private:
  struct line {
    told latest;
    std::uint64_t repeated = 0;  // 0: the first of its kind
    bool of_many_kinds = false;  // shows nothing but how many were suppressed
  };
  struct kind {
    std::string key;
    told latest;
    std::uint64_t repeated = 0;  // since its last line
    clock::time_point written;   // its last line
    std::uint64_t untold = 0;    // since
    clock::time_point told_at;
  };
  using kinds = std::list<kind>;
  // What is done when the lock is free again.
  struct due {
    std::vector<line> lines;
    std::vector<told> tellings;
  };

  void tell_of_stale(std::string_view gate, const fence::rejection& why) const {
    if (stale_ && why.why == fence::reason::stale) stale_(gate, why);
  }
  void take_due(clock::time_point now, due& out);
  // The kind counts anew from `now` on, as the youngest.
  void take_count(kinds::iterator of, clock::time_point now, due& out);
  void forget_oldest(clock::time_point now, due& out);
  // Keeps the line if this second has room for it; otherwise it counts as suppressed.
  void show(line one, clock::time_point now, due& out);
  // Begins the next second, with a line about what the last one suppressed.
  void turn_second(clock::time_point now, due& out);
  void take_suppressed(due& out);
  void tell(kind& one, clock::time_point now, due& out) const;
  void do_outside(const due& out) const;
  static void write(const line& l);

  on_stale stale_;
  on_rejections all_;
  std::mutex mutex_;
  clock::time_point second_began_{};
  std::size_t shown_this_second_ = 0;
  std::uint64_t suppressed_ = 0;
  kinds by_age_;                                                  // by `written`, oldest first
  std::unordered_map<std::string_view, kinds::iterator> by_key_;  // views of kind::key
};

}  // namespace fencegate::gate
