// Answers that clients do not read, in the whole process. A client that sends a long pipeline before it reads would deadlock
// with a gate that did not hold them; many such clients may not take the process's memory, however little each of them holds.
#pragma once

#include "base/limits.hpp"
#include "gate/relay/process_share.hpp"

#include <cstddef>
#include <limits>

namespace fencegate::gate {

class unread_bytes : public process_share<unread_bytes> {
 public:
  // What one client may let wait before more is done for it, when all sessions together hold so much.
  [[nodiscard]] static constexpr std::size_t allowance(std::size_t all) {
    constexpr std::size_t max = limits::unread_of_process_bytes_max, full = limits::unread_of_process_bytes_full;
    if (all <= max) return std::numeric_limits<std::size_t>::max();
    return all < full ? limits::unread_of_client_bytes * (full - all) / (full - max) : 0;
  }
  [[nodiscard]] static std::size_t allowance() { return allowance(all()); }
  // How much may be read at once: what is read makes answers.
  [[nodiscard]] static constexpr std::size_t read_at_once(std::size_t all) {
    return all < limits::unread_of_process_bytes_full ? limits::read_buffer_bytes_max : limits::unread_step_bytes;
  }
  [[nodiscard]] static std::size_t read_at_once() { return read_at_once(all()); }

  // All sessions together hold too much: who does not read is turned away.
  [[nodiscard]] static bool too_many() { return all() > limits::unread_of_process_bytes_max; }
  // There is no room even for the answers to what is in flight.
  [[nodiscard]] static bool full() { return all() >= limits::unread_of_process_bytes_full; }
};

}  // namespace fencegate::gate
