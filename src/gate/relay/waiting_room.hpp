// Clients whose session at the server is over and which were not told yet, since they are at rest: each keeps its socket
// until it speaks. There are only so many places, and the one that has waited longest goes first.
//
// Any thread.
#pragma once

#include "base/metrics.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace fencegate::gate {

class waiting_room {
 public:
  // REQUIRES: `waiting` lives longer.
  waiting_room(std::size_t places, metrics::gauge& waiting) : places_(places), waiting_(waiting) {}

  // `make_room` is called at most once, from any thread, unless leave() comes first. Never 0.
  [[nodiscard]] std::uint64_t enter(std::function<void()> make_room);
  void leave(std::uint64_t place);

 private:
  const std::size_t places_;
  metrics::gauge& waiting_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::function<void()>> inside_;  // in the order in which they came
};

}  // namespace fencegate::gate
