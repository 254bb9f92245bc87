// How a job ended that ran under a guard.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace fencegate::hold {

struct job_end {
  enum class kind : std::uint8_t {
    exited,          // by itself; status: what it exited with
    signaled,        // by a signal; status: its number
    not_found,       // CMD does not exist; status: errno
    not_executable,  // CMD could not be started for another reason; status: errno
    overdue,         // it, or what it left behind, was ended at the deadline
    guard_died,      // something killed the guard; everything was ended
  };
  kind what = kind::exited;
  int status = 0;
  // CMD had been told to end, since stop_at had passed.
  bool told = false;
  // Processes that CMD had left behind when it ended.
  int left_behind = 0;
  // These still run, because they may not be signalled (set-user-ID programs, as sudo) or the kernel does not let them
  // end. At most not_ended_max are named.
  std::vector<pid_t> not_ended = {};
};

inline constexpr int not_ended_max = 64;

}  // namespace fencegate::hold
