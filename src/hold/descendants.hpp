// The processes that descend from this one, also those in sessions and process groups of their own, found by
// /proc/PID/task/*/children. What its parent leaves behind comes to this process: it has to be a subreaper.
//
// The kernel promises no complete list while processes come and go. So it is read again and again, and only that
// waitpid() knows no child any more is taken for the end.
#pragma once

#include "base/result.hpp"

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <set>
#include <vector>

namespace fencegate::hold {

// An error where the kernel has no such lists (CONFIG_PROC_CHILDREN), or where /proc is absent or that of another PID
// namespace: its numbers would be those of strangers.
[[nodiscard]] result<void> can_find_descendants();

// Of all threads of this process.
[[nodiscard]] std::vector<pid_t> own_children();

// Whether a process descends from this one, as far as /proc tells: false, too, where it has ended.
[[nodiscard]] bool descends_from_here(pid_t pid);

// Takes the children of this process that have ended, and tells their statuses. False: there is no child any more.
using child_ended = std::function<void(pid_t, int status)>;
bool reap(const child_ended& told);

// Not thread-safe: nobody else may reap children of this process meanwhile.
class descendants {
 public:
  // `spared`: children of this process that do not belong to the job.
  explicit descendants(std::vector<pid_t> spared = {});

  // Sends a signal to all that are found, parents first, so that no parent replaces its child. group: only to those of that
  // process group; 0: to all. A process that was found is never mistaken for a later one with its number (but see
  // process_handle in the source for Linux before 5.3).
  void send(int number, pid_t group = 0);
  // SIGSTOP until all that are found stand still, as far as they may be signalled. Blocks, mostly for less than a
  // millisecond. Repeated, it stops what somebody has let go on meanwhile. False: they fork faster than that.
  [[nodiscard]] bool stop_all();
  // SIGCONT to all but those that stood still before stop_all() came to them.
  void continue_all();
  // SIGKILL until none is left that can be ended. Blocks: for as long as they take, mostly a few milliseconds.
  void end_all();

  // How many different processes were found so far.
  [[nodiscard]] std::size_t seen() const { return seen_.size(); }
  // What end_all() left.
  [[nodiscard]] const std::vector<pid_t>& not_ended() const { return not_ended_; }

 private:
  class process_handle;
  using choice = std::function<bool(pid_t)>;
  void send_to(int number, const choice& whom);
  void below(pid_t parent, const process_handle* identity, int number, const choice& whom, int depth);
  void note(pid_t pid, bool sent, int why);
  [[nodiscard]] bool is_spared(pid_t pid) const;

  std::vector<pid_t> spared_;
  std::set<pid_t> seen_;
  std::set<pid_t> stopped_;       // by stop_all(), or found by it
  std::set<pid_t> stood_;         // still before
  std::vector<pid_t> signalled_;  // of the last send()
  std::vector<pid_t> refused_;    // of the last send(): may not be signalled
  std::vector<pid_t> not_ended_;
  bool listed_ = false;  // in the last send(), this process had children
};

}  // namespace fencegate::hold
