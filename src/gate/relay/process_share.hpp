// What a session holds of a kind, and what all sessions of the process hold of it together.
#pragma once

#include <atomic>
#include <cstddef>

namespace fencegate::gate {

// One session's part; `Kind` tells what is counted. Any thread, but each for itself.
template <class Kind>
class process_share {
 public:
  process_share() = default;
  ~process_share() { note(0); }
  process_share(const process_share&) = delete;
  process_share& operator=(const process_share&) = delete;

  // What is held by this one now.
  void note(std::size_t held) {
    if (held == held_) return;
    of_all.fetch_add(held - held_, std::memory_order_relaxed);
    held_ = held;
  }

 protected:
  // As note(), unless all would then hold more than `most`.
  [[nodiscard]] bool note_within(std::size_t most, std::size_t held) {
    auto before = of_all.load(std::memory_order_relaxed);
    while (before - held_ + held <= most) {
      if (!of_all.compare_exchange_weak(before, before - held_ + held, std::memory_order_relaxed)) continue;
      held_ = held;
      return true;
    }
    return false;
  }
  [[nodiscard]] static std::size_t all() { return of_all.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::size_t> of_all{0};
  std::size_t held_ = 0;
};

}  // namespace fencegate::gate
