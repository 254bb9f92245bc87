// What an operator asks of leases, done by a configuration: by the commands of `fencegate lease`, and by a sidecar for those
// who ask its API.
#pragma once

#include "cli/operation_run.hpp"
#include "fence/gate_settings.hpp"
#include "lease/operation.hpp"

#include <functional>
#include <string>

namespace fencegate::cli {

struct operation_told {
  std::function<void(const std::string& what)> waits;          // for something else than before
  std::function<void(const lease::moved_entry& moved)> moved;  // as soon as it is
};

// Blocks until it is done. Nothing that failed in between makes an older token good again: what seals does so before it
// releases, and a lease that was taken and not released ends with its TTL.
[[nodiscard]] lease::operation_outcome perform(operation_run& run, const settings::process& config,
                                               const lease::operation& asked, const operation_told& told);

// Parts of it (lease_move.cpp).
[[nodiscard]] lease::operation_outcome move_leases(operation_run& run, const settings::process& config,
                                                   const lease::operation& asked, const operation_told& told);

[[nodiscard]] inline lease::lease_refusal refused(std::string why) {
  return {lease::lease_refusal::kind::refused, std::move(why)};
}
[[nodiscard]] inline lease::lease_refusal unreachable(std::string why) {
  return {lease::lease_refusal::kind::unreachable, std::move(why)};
}

}  // namespace fencegate::cli
