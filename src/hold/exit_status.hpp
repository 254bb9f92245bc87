// With which status hold exits, and what `--result FILE` says: one table of both.
#pragma once

#include "hold/job_end.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::hold {

enum class outcome : std::uint8_t {
  exited,       // CMD's own status
  signaled,     // 128 + the signal's number
  busy,         // held by another until --wait ended (--busy-exit replaces the status)
  unreachable,  // the issuer, or a store to seal, was not reached
  lost,         // the lease was lost while CMD ran, whatever CMD answered
  max_run,      // --max-run
  error,        // hold's own, or usage; CMD that could not be started
};

struct ending {
  outcome what = outcome::error;
  int status = 0;  // of the process
};

// Of an outcome that has one status only. REQUIRES: neither exited nor signaled.
[[nodiscard]] ending ending_of(outcome what);
// overdue is taken for lost: where hold itself set the deadline (--max-run), it knows better.
[[nodiscard]] ending ending_of(const job_end& end);

[[nodiscard]] std::string_view name_of(outcome what);

// {"outcome":"lost","status":79} and a line end.
[[nodiscard]] std::string result_text(const ending& end);

}  // namespace fencegate::hold
