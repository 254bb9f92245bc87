// Bodies of requests that are held whole, in the whole process (gate/http/http_engine_atomic.cpp).
#pragma once

#include "base/limits.hpp"
#include "gate/relay/process_share.hpp"

namespace fencegate::gate {

class held_bodies : public process_share<held_bodies> {
 public:
  // Nothing more of a large one is read: who sends it has to be refused. One alone always finds room.
  [[nodiscard]] bool others_fill_all() const { return all() - held() >= limits::http_held_of_process_bytes_max; }
};

}  // namespace fencegate::gate
