// How the words of `lease` end, and say why.
#pragma once

#include "hold/exit_status.hpp"

#include <ostream>
#include <string>

namespace fencegate::client {

[[nodiscard]] inline int status_of(hold::outcome what) { return hold::ending_of(what).status; }

// Returns the status.
inline int say_and_end(std::ostream& err, const std::string& why, int status) {
  err << "fencegate lease: " << why << '\n';
  return status;
}

}  // namespace fencegate::client
