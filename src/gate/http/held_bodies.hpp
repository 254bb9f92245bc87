// Bodies of requests that are held whole, in the whole process (gate/http/http_engine_atomic.cpp).
#pragma once

#include "base/limits.hpp"
#include "gate/relay/process_share.hpp"

#include <cstddef>

namespace fencegate::gate {

class held_bodies : public process_share<held_bodies> {
 public:
  // Takes room for a body of this size, in place of what was taken before. A small one needs none. False: there is none, and
  // what was taken before stays.
  [[nodiscard]] bool take(std::size_t size) {
    return size <= limits::http_gathered_bytes_max || note_within(limits::http_held_of_process_bytes_max, size);
  }
};

}  // namespace fencegate::gate
