// `lease acquire | renew | release`: leases of a sidecar for shell scripts. What acquire prints names the lease for the others.
#pragma once

#include "client/wish.hpp"

#include <iosfwd>
#include <string>

namespace fencegate::client {

// A lease that was acquired before: its id and its tag, or a file with what acquire printed ("-": the input).
struct term_request {
  std::string api, id, tag, file;
};

// Each returns the exit status of the process (hold/exit_status.hpp). The lease is held until its time is over: `out` gets it,
// or, where `out` takes nothing, it is released.
[[nodiscard]] int acquire(const lease_wish& wish, std::ostream& out, std::ostream& err);
[[nodiscard]] int renew(const term_request& of, std::istream& in, std::ostream& out, std::ostream& err);
[[nodiscard]] int release(const term_request& of, std::istream& in, std::ostream& err);

}  // namespace fencegate::client
