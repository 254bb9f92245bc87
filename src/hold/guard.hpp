// Runs CMD so that nothing of it is left behind a deadline: keeper (the process that calls this) → guard → CMD.
//
// The guard is a process that does nothing else. It is CMD's parent and the subreaper of what CMD starts. It knows the
// times from memory that it shares with the keeper, and ends everything at the deadline, whatever the keeper does then; a
// keeper that is gone is a deadline. A guard that is gone, or stopped, is noticed by the keeper, who does its work. Only
// where both are killed at the same time, or all are frozen, does anything run on: that is the fence's part.
//
// Times may have a grace: then everything is stopped at the deadline, and ended behind it by the grace. It goes on where the
// deadline has been moved behind now meanwhile: who moves it has had its lease confirmed.
//
// When CMD ends by itself, what it left behind gets SIGTERM, then SIGKILL, and the end is reported when nothing is left.
//
// The terminal: where the keeper has a controlling terminal, CMD stays in the keeper's process group, so that Ctrl-C and Ctrl-Z
// reach it, and it can read, also when the shell brings a job to the foreground later. Else it has a group of its own.
#pragma once

#include "base/result.hpp"
#include "hold/job_end.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::hold {

// CMD gets descriptors 0, 1, 2 and what else hold was started with, no signal mask, and the default dispositions: only
// SIGHUP, SIGINT and SIGQUIT stay ignored where they were (nohup and a shell's `&` mean that).
struct job_request {
  std::vector<std::string> command;       // a program (looked for in PATH, unless it has a slash), its arguments
  std::vector<std::string> environment;   // NAME=value, all of it
  std::chrono::nanoseconds stop_grace{};  // between SIGTERM and SIGKILL for what CMD left behind
  // A guard that has said nothing for this long after the deadline is stopped, or does not run: the keeper does its work. To be
  // less than the time from the deadline until another may hold the lease.
  std::chrono::nanoseconds patience = std::chrono::seconds(2);
};

// Nanoseconds of CLOCK_BOOTTIME. At stop_at CMD's process group gets SIGTERM and SIGCONT, at the deadline everything that
// descends from CMD gets SIGKILL; with a grace SIGSTOP, and SIGKILL behind that.
struct job_times {
  std::int64_t stop_at = 0;
  std::int64_t deadline = 0;
  std::int64_t grace = 0;
  static constexpr std::int64_t never = INT64_MAX;
};

class guarded_job {
 public:
  // Forks the guard, which waits. REQUIRES: the process has one thread. It is made a subreaper. Children
  // that it has by now do not belong to the job; those that come later are ended with it where the guard is gone.
  // Errors: the guard could not be set up.
  [[nodiscard]] static result<guarded_job> prepare();
  // Starts CMD, once; there may be threads by now. Errors: it was not started. A CMD that cannot be started is no error but
  // an end, and so is a stop_at that has passed (overdue).
  [[nodiscard]] result<void> start(const job_request& request, job_times times);

  guarded_job(guarded_job&&) noexcept;
  guarded_job& operator=(guarded_job&&) = delete;
  // Ends what still runs.
  ~guarded_job();

  // All that follows, but the descriptor and ended(), REQUIRES that it was started.
  // Moves both, in either direction. What has happened at the old ones has happened.
  void set_times(job_times times);
  // Passed on to CMD, as long as it runs.
  void signal(int number);
  // Whether a signal that came to the keeper is for CMD to get, too. One that the terminal sent came to CMD by itself where
  // it is in the same process group. `code`: si_code, or ssi_code.
  [[nodiscard]] bool passes_on(int code) const;

  // The guard has stopped everything: the deadline has passed, and the grace has not. As ended() last saw it.
  [[nodiscard]] bool stands_still() const;

  // Readable when ended() or stands_still() has something new to say. (It is an epoll: it can be polled.)
  [[nodiscard]] int descriptor() const;
  // Does not block, but to end things where the guard did not. Reaps all children of the process: call it at each SIGCHLD,
  // too, so that process 1 of a container leaves no zombies.
  [[nodiscard]] std::optional<job_end> ended();

 private:
  struct state;
  explicit guarded_job(std::unique_ptr<state> own);
  std::unique_ptr<state> state_;
};

}  // namespace fencegate::hold
