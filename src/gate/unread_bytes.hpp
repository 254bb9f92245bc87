// Answers that clients do not read, in the whole process: what sessions hold beyond what each may. A client that sends a
// long pipeline before it reads would deadlock with a gate that did not hold them; many such clients may not take the
// process's memory.
#pragma once

#include "base/limits.hpp"

#include <atomic>
#include <cstddef>

namespace fencegate::gate {

// One session's part. Any thread, but each for itself.
class unread_bytes {
 public:
  unread_bytes() = default;
  ~unread_bytes() { note(0); }
  unread_bytes(const unread_bytes&) = delete;
  unread_bytes& operator=(const unread_bytes&) = delete;

  // What waits for the client now.
  void note(std::size_t unsent) {
    const std::size_t beyond = unsent > limits::output_high_water_bytes ? unsent - limits::output_high_water_bytes : 0;
    if (beyond == beyond_) return;
    of_all.fetch_add(beyond - beyond_, std::memory_order_relaxed);
    beyond_ = beyond;
  }
  // All sessions together hold too much: they begin nothing that would be answered.
  [[nodiscard]] static bool too_many() { return all() > limits::unread_of_process_bytes_max; }
  // Half as much again: nor do they take the answers to what is in flight.
  [[nodiscard]] static bool far_too_many() { return all() > limits::unread_of_process_bytes_max * 3 / 2; }

 private:
  static std::size_t all() { return of_all.load(std::memory_order_relaxed); }

  static inline std::atomic<std::size_t> of_all{0};
  std::size_t beyond_ = 0;
};

}  // namespace fencegate::gate
