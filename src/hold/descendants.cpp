#include "hold/descendants.hpp"

#include "hold/clock.hpp"
#include "hold/descriptor.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <dirent.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::hold {

namespace {

// What was told to end and does not (a disk or a network file system that does not answer) is waited for this long.
constexpr std::int64_t ending_patience = 10'000'000'000;
// What forks faster than it can be stopped is given up on.
constexpr std::int64_t stopping_patience = 1'000'000'000;
// So deep a tree is walked at once; what is deeper comes nearer when the upper ones have ended.
constexpr int depth_max = 64;

std::optional<std::string> read_file(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  char part[16 * 1024];
  ssize_t bytes = 0;
  while ((bytes = ::read(file.get(), part, sizeof part)) > 0) text.append(part, static_cast<std::size_t>(bytes));
  if (bytes < 0 && text.empty()) return std::nullopt;
  return text;
}

void append_numbers(std::string_view text, std::vector<pid_t>& out) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    pid_t pid = 0;
    const auto [next, error] = std::from_chars(at, end, pid);
    if (error == std::errc{} && pid > 0) out.push_back(pid);
    at = next == at ? at + 1 : next;
  }
}

struct close_directory {
  void operator()(DIR* opened) const { ::closedir(opened); }
};

std::vector<pid_t> children_of(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
  std::vector<pid_t> out;
  const std::unique_ptr<DIR, close_directory> opened(::opendir(tasks.c_str()));
  if (!opened) return out;
  while (const dirent* entry = ::readdir(opened.get())) {  // NOLINT(concurrency-mt-unsafe): a directory of our own
    if (entry->d_name[0] == '.') continue;
    if (const auto text = read_file(tasks + entry->d_name + "/children")) append_numbers(*text, out);
  }
  return out;
}

struct process_state {
  char letter = '?';
  pid_t parent = 0;
};

std::optional<process_state> state_of(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return std::nullopt;
  const std::size_t name_end = text->rfind(") ");  // the name may have any bytes
  if (name_end == std::string::npos || name_end + 4 >= text->size()) return std::nullopt;
  process_state out{.letter = (*text)[name_end + 2]};
  std::from_chars(text->data() + name_end + 4, text->data() + text->size(), out.parent);
  return out;
}

// Before all others while it lives, where that is allowed (CAP_SYS_NICE): a hundred processes that fork would let us do our
// work a hundredth of the time.
class urgency {
 public:
  urgency() : policy_(::sched_getscheduler(0)) {
    const sched_param first{.sched_priority = 1};
    raised_ = policy_ >= 0 && ::sched_getparam(0, &before_) == 0 && ::sched_setscheduler(0, SCHED_RR, &first) == 0;
  }
  ~urgency() {
    if (raised_) ::sched_setscheduler(0, policy_, &before_);
  }
  urgency(const urgency&) = delete;
  urgency& operator=(const urgency&) = delete;

 private:
  int policy_;
  sched_param before_{};
  bool raised_ = false;
};

}  // namespace

// One process, whatever becomes of its number:
//     its list of children is read  ·  one of them ends and is reaped  ·  we are frozen, its number is given anew  ·  kill()
// A pidfd does not go over to the next. Linux before 5.3 has none: then the time between the look at a process's parent
// and the signal is a few microseconds, and it remains.
class descendants::process_handle {
 public:
  explicit process_handle(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
    if (!fd_) error_ = errno;
  }
  // Old profiles of seccomp say EPERM to what they do not know.
  [[nodiscard]] bool without_pidfd() const { return error_ == ENOSYS || error_ == EPERM; }
  [[nodiscard]] bool usable() const { return error_ == 0 || without_pidfd(); }
  [[nodiscard]] bool send(int number) const {
    return without_pidfd() ? ::kill(pid_, number) == 0
                           : ::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) == 0;
  }
  // Nobody has reaped it: its number is still its own.
  [[nodiscard]] bool is_there() const { return send(0) || errno == EPERM; }

 private:
  pid_t pid_;
  descriptor fd_;
  int error_ = 0;
};

result<void> can_find_descendants() {
  const std::string self = std::to_string(::getpid());
  // The numbers of this process, from the namespace of /proc to its own: one, if these are the same.
  const auto status = read_file("/proc/self/status");
  if (!status) return error{"/proc cannot be read: hold finds the processes of CMD there"};
  const std::size_t at = status->find("\nNSpid:\t");
  if (at == std::string::npos || status->substr(at + 8, status->find('\n', at + 1) - at - 8) != self) {
    return error{"/proc is not of this PID namespace: mount it anew (unshare --mount-proc)"};
  }
  if (!read_file("/proc/" + self + "/task/" + self + "/children")) {
    return error{"/proc/PID/task/PID/children cannot be read: the kernel was built without CONFIG_PROC_CHILDREN"};
  }
  return {};
}

bool descends_from_here(pid_t pid) {
  const pid_t self = ::getpid();
  while (pid > 0 && pid != self) {
    const auto state = state_of(pid);
    if (!state) return false;
    pid = state->parent;
  }
  return pid == self;
}

std::vector<pid_t> own_children() { return children_of(::getpid()); }

bool reap(const child_ended& told) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return pid == 0;
    told(pid, status);
  }
}

descendants::descendants(std::vector<pid_t> spared) : spared_(std::move(spared)) {}

bool descendants::is_spared(pid_t pid) const { return std::ranges::find(spared_, pid) != spared_.end(); }

void descendants::note(pid_t pid, bool sent, int why) {
  if (sent) signalled_.push_back(pid);
  if (!sent && why == EPERM) refused_.push_back(pid);
  seen_.insert(pid);
}

void descendants::send(int number, pid_t group) {
  send_to(number, [group](pid_t pid) { return group == 0 || ::getpgid(pid) == group; });
}

void descendants::send_to(int number, const choice& whom) {
  signalled_.clear();
  refused_.clear();
  // Children of our own keep their numbers until we reap them.
  std::vector<pid_t> children = own_children();
  listed_ = !children.empty();
  std::erase_if(children, [this](pid_t pid) { return is_spared(pid); });
  for (const pid_t pid : children) {
    if (!whom(pid)) continue;
    const bool sent = ::kill(pid, number) == 0;
    note(pid, sent, errno);
  }
  for (const pid_t pid : children) below(pid, nullptr, number, whom, 1);
}

// identity: of the parent; none for a child of our own.
void descendants::below(pid_t parent, const process_handle* identity, int number, const choice& whom, int depth) {
  if (depth > depth_max) return;
  for (const pid_t pid : children_of(parent)) {
    const process_handle process(pid);
    if (!process.usable()) continue;
    const auto state = state_of(pid);
    if (!state || state->parent != parent || state->letter == 'Z' || state->letter == 'X') continue;
    if (identity != nullptr && !identity->is_there()) return;  // so these were another's children
    if (whom(pid)) {
      const bool sent = process.send(number);
      note(pid, sent, errno);
    }
    below(pid, &process, number, whom, depth + 1);
  }
}

bool descendants::stop_all() {
  constexpr timespec pause{.tv_sec = 0, .tv_nsec = 100'000};
  const std::int64_t began = boottime_now();
  const urgency raised;
  std::set<pid_t> may_not;
  while (boottime_now() - began < stopping_patience) {
    bool calm = true;
    send_to(SIGSTOP, [&](pid_t pid) {
      const auto state = state_of(pid);
      const char letter = state ? state->letter : 'X';
      const bool stands = letter == 'T' || letter == 't';
      if (stopped_.insert(pid).second) {
        calm = false;  // it may have had a child before it was found
        if (stands) stood_.insert(pid);
        return !stands;
      }
      // What sleeps in the kernel stops where it comes back.
      const bool still = stands || letter == 'D' || letter == 'Z' || letter == 'X';
      calm = calm && (still || may_not.contains(pid));
      return !still;
    });
    if (calm) return true;
    may_not.insert(refused_.begin(), refused_.end());
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

void descendants::continue_all() {
  send_to(SIGCONT, [this](pid_t pid) { return !stood_.contains(pid); });
  stopped_.clear();
  stood_.clear();
}

void descendants::end_all() {
  constexpr std::int64_t pause_min = 100'000;
  constexpr std::int64_t pause_max = 10'000'000;
  std::int64_t pause = pause_min;
  std::int64_t progress = boottime_now();
  std::vector<pid_t> before;
  const urgency raised;
  int calm = 0;  // rounds in which there was nobody to be ended
  for (;;) {
    bool moved = false;
    not_ended_.clear();
    if (!reap([&moved](pid_t, int) { moved = true; })) return;
    send(SIGKILL);
    // There are children. Where none is listed, the list could not be read: no file descriptor was left.
    calm = listed_ && signalled_.empty() ? calm + 1 : 0;
    not_ended_ = refused_;
    if (calm == 3) return;
    std::ranges::sort(signalled_);
    const bool fresh = !std::ranges::includes(before, signalled_);
    before = signalled_;
    if (moved || fresh) {
      progress = boottime_now();
      pause = pause_min;
    } else if (listed_ && boottime_now() - progress > ending_patience) {
      not_ended_.insert(not_ended_.end(), signalled_.begin(), signalled_.end());
      return;
    } else {
      pause = std::min(2 * pause, pause_max);
    }
    if (fresh && calm == 0) continue;
    const timespec time{.tv_sec = 0, .tv_nsec = pause};
    ::nanosleep(&time, nullptr);
  }
}

}  // namespace fencegate::hold
