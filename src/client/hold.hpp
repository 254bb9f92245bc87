// `hold RESOURCE[,…] -- COMMAND`: runs an unchanged program under a lease, whose tokens are in its environment.
#pragma once

#include "client/wish.hpp"

#include <chrono>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::client {

struct hold_request : lease_wish {
  std::optional<std::chrono::milliseconds> max_run{};
  // A job whose lease could not be renewed stands still for so long, and goes on when the same term is confirmed again.
  std::chrono::milliseconds grace{0};
  bool elect = false;                       // a candidate for good: when the lease was lost, it waits again
  std::string warm_up;                      // for a shell, before each acquisition; "": none
  std::optional<std::string> private_gate;  // of the sidecar, for the command alone
  std::string result_file;
  std::vector<std::string> command;
};

// Returns the exit status of the process (hold/exit_status.hpp). REQUIRES: this process has one thread. A candidate whose
// lease was lost begins anew as the program that was called, with its arguments.
[[nodiscard]] int hold(const hold_request& request, const lease_planner& planner, std::ostream& err);

}  // namespace fencegate::client
