// The guard's side: what the process does that guard.hpp speaks of, and how the two talk.
//
//     keeper → guard   one byte: CMD may be started, as the shared memory says. Later ones: look there again. The end: the
//                      keeper is gone.
//     guard → keeper   reports. The end without `ended`: the guard is gone.
#pragma once

#include "hold/descriptor.hpp"
#include "hold/guard.hpp"

#include <atomic>
#include <climits>
#include <cstdint>

namespace fencegate::hold {

// In memory that both processes have. Behind it stands the request, as texts that end with NUL.
struct shared_job {
  std::atomic<std::int64_t> stop_at;
  std::atomic<std::int64_t> deadline;
  std::atomic<std::int64_t> grace;
  std::atomic<std::uint64_t> signals;  // to be passed on to CMD: bit number − 1
  // Written before CMD may be started, and never again:
  std::int64_t stop_grace;
  pid_t group;                       // CMD's process group; 0: its own
  std::size_t arguments, variables;  // how many of each
};
// The kernel takes no more arguments and environment (execve(2): at most 6 MB, three quarters of 8 MB).
inline constexpr std::size_t request_bytes_max = std::size_t{8} * 1024 * 1024;
// When everything is ended.
[[nodiscard]] inline std::int64_t end_of(std::int64_t deadline, std::int64_t grace) {
  return deadline > INT64_MAX - grace ? INT64_MAX : deadline + grace;
}
[[nodiscard]] inline char* request_of(shared_job& job) { return reinterpret_cast<char*>(&job + 1); }
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

struct guard_report {
  enum class kind : std::uint8_t {
    ready,    // set up; waits for the byte
    failed,   // CMD was not started: step, status is errno
    running,  // CMD was forked
    stopped,  // everything stands still
    goes_on,  // again
    ended,    // everything else
  };
  kind what = kind::ended;
  job_end::kind end = job_end::kind::exited;
  int status = 0;
  bool told = false;
  int left_behind = 0;
  int not_ended = 0;  // how many of them there are
  pid_t not_ended_pids[not_ended_max] = {};
  char step[48] = {};
};
static_assert(sizeof(guard_report) <= PIPE_BUF, "written at once, or not at all");

struct guard_start {
  shared_job& job;
  descriptor wake;    // to be read
  descriptor report;  // to be written
};

// REQUIRES: called in the forked process, with all signals blocked.
[[noreturn]] void run_guard(guard_start start);

// REQUIRES: called in the process that is to become CMD. Where that fails, it writes errno to `failed`, and ends.
[[noreturn]] void become_command(const job_request& request, pid_t guard, pid_t group, int failed);

}  // namespace fencegate::hold
