// Large messages of several statements, which are held whole, in the whole process (gate/postgres/pg_engine_guard.cpp).
#pragma once

#include "base/limits.hpp"
#include "gate/relay/process_share.hpp"

#include <cstddef>

namespace fencegate::gate {

class gathered_bytes : public process_share<gathered_bytes> {
 public:
  // Nothing more is gathered: who would has to be refused.
  [[nodiscard]] static bool too_many() { return all() > limits::pg_gathered_of_process_bytes_max; }
};

}  // namespace fencegate::gate
