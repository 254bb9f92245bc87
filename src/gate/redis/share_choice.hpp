// Whether small writes of connections that are alike go over the link that they share, or each over its own: decided by how
// long they wait. Now and then the other way is tried for a moment, and the way is taken by which writes are answered sooner;
// a shared link that is hardly slower is taken, too, since the server does less for each write. I/O-free.
//
// All threads of a gate choose together: where only one of them shares, its writes wait for the others' turns.
//
// What pays depends on the server's load, on how far it is, and on how many writes are under way at the same time: near a
// busy server many writes in one batch are answered much sooner, and far from an idle one a write waits for the end of the
// batch in front of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace fencegate::gate {

// For any thread.
class share_choice {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;

  // A slice counts when so many writes were measured in it, unless it was left for so long.
  static constexpr std::size_t writes_enough = 32;
  static constexpr std::chrono::milliseconds slice{20}, slice_most{200}, stale{1'000};
  // Between two trials: the shortest pause behind a change, and each one behind it twice as long. How long a trial waits for
  // the shared link to open.
  static constexpr std::chrono::milliseconds pause_min{250}, pause_most{8'000}, link_patience{1'000};
  // The shared link is taken when writes wait less than so many times as long there. One trial says little on a busy machine:
  // it counts as much as all before it, and no more than so much.
  static constexpr double worth_it = 1.1, weight_of_last = 0.5, ratio_most = 4;
  // So many writes have to be under way at the same time, on average, or there is nothing to share.
  static constexpr double under_way_least = 1.2;

  // How the next write goes. `can_share`: the shared link is there.
  [[nodiscard]] bool shares(time_point now, bool can_share);

  // A write was answered that has gone either way. `read`: when it came.
  void answered(bool shared, time_point read, time_point now);

 private:
  enum class stage : std::uint8_t {
    resting,  // until next_
    before,   // the way that is taken is measured
    trying,   // the other way is
  };
  struct sample {
    std::size_t writes = 0;
    duration waited{};
    [[nodiscard]] double mean() const { return static_cast<double>(waited.count()) / static_cast<double>(writes); }
  };

  void turn(time_point now, bool can_share);
  void begin(stage what, time_point now);
  void conclude(time_point now);
  void take(bool shared, time_point now);

  // While it rests, these are all that is asked for.
  std::atomic<stage> stage_ = stage::resting;
  std::atomic<bool> shared_ = false;  // the way that is taken
  std::atomic<time_point> next_{};

  std::mutex mutex_;                    // of what follows
  time_point stage_began_{}, began_{};  // the second: of what is measured
  duration pause_ = pause_min;
  sample before_, trial_;
  double ratio_ = 0;  // of how long they wait, shared to own, over the last trials; 0: none yet
};

// Those of a gate. For any thread.
class share_choices {
 public:
  // The one of writers that are alike in this; it lives as long as somebody has it.
  [[nodiscard]] std::shared_ptr<share_choice> of(const std::string& group);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<share_choice>> choices_;
  std::size_t looked_through_at_ = 64;  // so many: those that nobody has are forgotten
};

}  // namespace fencegate::gate
