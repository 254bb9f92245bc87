// `lease restarted` and `lease writer`: what a writer's container, or its unit, tells the sidecar whose gates hold the lease.
#pragma once

#include "base/result.hpp"

#include <sys/types.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::client {

struct started_request {
  std::string api, writer;
  pid_t pid = 1;
  std::string container;  // "": it has one only
};

// Tells when the process was started; asks again for 30 s while the sidecar does not answer. Returns the exit status of the
// process: 0 it counts, or has counted before; 1 it does not, since the start is too early; 69 no answer; 125 anything else.
[[nodiscard]] int tell_started(const started_request& what, std::ostream& err);

struct heartbeat_request {
  std::string api, writer;
  bool holding = false;
  std::string url;                 // "": none
  std::vector<std::string> probe;  // empty: none
};

// A probe; asks again for 3 s while there is no answer. Returns the exit status of the process: 0 it may go on, and so says the
// other probe; 1 it may not, or there is no answer. Where there is a command to be run, the process becomes it.
[[nodiscard]] int heartbeat(const heartbeat_request& what, std::ostream& err);

// Milliseconds of CLOCK_BOOTTIME, rounded down, at which a process was started. `stat`: /proc/PID/stat.
[[nodiscard]] result<std::int64_t> start_of(std::string_view stat, long ticks_per_second);

}  // namespace fencegate::client
