// `fencegate hold` with a configuration: it asks the issuer itself, and seals itself. Without one, a sidecar is asked.
#pragma once

#include "cli/config.hpp"
#include "client/hold.hpp"

#include <iosfwd>
#include <string>

namespace fencegate::cli {

struct hold_request : client::hold_request {
  std::string path;    // of the configuration; "": a sidecar is asked
  std::string issuer;  // "" = as the configuration says
};

// Returns the exit status of the process (hold/exit_status.hpp). REQUIRES: this process has one thread.
[[nodiscard]] int hold(const hold_request& request, const environment& from, std::ostream& err);

}  // namespace fencegate::cli
