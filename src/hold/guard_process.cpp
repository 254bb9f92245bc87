#include "hold/guard_process.hpp"

#include "hold/clock.hpp"
#include "hold/descendants.hpp"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace fencegate::hold {

namespace {

// So often it is looked whether all still stand still.
constexpr std::int64_t still_every = 100'000'000;

class guard {
 public:
  explicit guard(guard_start start) : start_(std::move(start)) {}
  [[noreturn]] void run();

 private:
  void set_up();
  void read_request();
  void start_command();
  [[noreturn]] void watch();
  void wait_for_something(std::int64_t until);
  void take_wakes();
  void take_children();
  void clear_up(std::int64_t now);
  void tell_command();
  [[nodiscard]] std::int64_t next_step();
  [[nodiscard]] std::int64_t end_at();
  void keep_still(bool wanted);
  void pass_signals_on();
  [[nodiscard]] bool runs() const { return command_ > 0; }

  [[noreturn]] void leave() { ::_exit(0); }
  [[noreturn]] void fail(const char* step);
  [[noreturn]] void end_everything(job_end::kind what);
  [[noreturn]] void report_end(guard_report last);
  void report(const guard_report& one) { (void)!::write(start_.report.get(), &one, sizeof one); }

  guard_start start_;
  job_request request_;
  descriptor timer_;
  descriptor children_;     // readable at a SIGCHLD
  descriptor exec_failed_;  // readable with errno when CMD could not be started
  descendants all_;
  std::optional<descendants> standing_;  // those that were stopped at the deadline
  pid_t command_ = 0;                    // while it runs, or is not reaped
  guard_report end_;                     // of CMD, once it has ended
  std::int64_t clear_by_ = 0;            // what CMD left behind was told to end by then; 0: CMD runs
  bool told_ = false;                    // CMD got SIGTERM for this stop_at
  bool keeper_gone_ = false;
};

void guard::run() {
  set_up();
  start_command();
  watch();
}

void guard::fail(const char* step) {
  guard_report one{.what = guard_report::kind::failed, .status = errno};
  std::snprintf(one.step, sizeof one.step, "%s", step);
  report(one);
  ::_exit(1);
}

// All that can fail does so before CMD is there.
void guard::set_up() {
  ::prctl(PR_SET_NAME, "hold-guard");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("PR_SET_CHILD_SUBREAPER");
  if (::setpgid(0, 0) != 0) fail("setpgid");
  timer_ = descriptor(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) fail("timerfd_create");
  const itimerspec far{.it_interval = {}, .it_value = {.tv_sec = INT32_MAX, .tv_nsec = 0}};
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &far, nullptr) != 0) fail("timerfd_settime");
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  children_ = descriptor(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children_) fail("signalfd");
  report({.what = guard_report::kind::ready});
  pollfd go{.fd = start_.wake.get(), .events = POLLIN, .revents = 0};
  while (::poll(&go, 1, -1) < 0) {
  }
  char byte = 0;
  if (::read(start_.wake.get(), &byte, 1) != 1) leave();  // no keeper any more
}

// As guarded_job::start() wrote it.
void guard::read_request() {
  const char* at = request_of(start_.job);
  const auto take = [&at](std::vector<std::string>& into, std::size_t count) {
    for (; count > 0; --count) {
      into.emplace_back(at);
      at += into.back().size() + 1;
    }
  };
  take(request_.command, start_.job.arguments);
  take(request_.environment, start_.job.variables);
}

void guard::start_command() {
  read_request();
  pipe_ends failed = make_pipe();
  if (!failed.out) fail("pipe2");
  // From the grant until here, anything may have been frozen.
  if (boottime_now() >= std::min(start_.job.stop_at.load(), start_.job.deadline.load())) {
    report_end({.end = job_end::kind::overdue});
  }
  const pid_t self = ::getpid();
  command_ = ::fork();
  if (command_ < 0) fail("fork");
  if (command_ == 0) {
    start_.report.close();
    become_command(request_, self, start_.job.group, failed.out.get());
  }
  ::setpgid(command_, start_.job.group == 0 ? command_ : start_.job.group);  // so that it is there before a signal is
  exec_failed_ = std::move(failed.in);
  report({.what = guard_report::kind::running});
}

void guard::watch() {
  for (;;) {
    wait_for_something(next_step());
    take_wakes();
    take_children();  // ends here when none is left
    if (keeper_gone_) end_everything(job_end::kind::overdue);
    const std::int64_t now = boottime_now();
    if (now >= end_at()) end_everything(job_end::kind::overdue);
    keep_still(now >= start_.job.deadline.load());
    pass_signals_on();
    if (!runs()) {
      clear_up(now);
    } else if (now < start_.job.stop_at.load()) {
      told_ = false;
    } else if (!told_ && !standing_) {
      told_ = end_.told = true;
      tell_command();
    }
  }
}

// When to look again, if nothing happens before.
std::int64_t guard::next_step() {
  const std::int64_t end = end_at();
  if (standing_) return std::min(end, boottime_now() + still_every);
  std::int64_t until = std::min(end, start_.job.deadline.load());
  if (clear_by_ != 0) until = std::min(until, clear_by_);
  if (runs() && !told_) until = std::min(until, start_.job.stop_at.load());
  return until;
}

// When everything is ended. What CMD left behind has no grace: it was told to end.
std::int64_t guard::end_at() {
  const std::int64_t grace = runs() ? start_.job.grace.load() : 0;
  return end_of(start_.job.deadline.load(), grace);
}

// Behind the deadline, within the grace. Whoever continued something meanwhile is not asked.
void guard::keep_still(bool wanted) {
  if (wanted) {
    const bool before = standing_.has_value();
    if (!before) standing_.emplace();
    if (!standing_->stop_all()) end_everything(job_end::kind::overdue);
    if (!before) report({.what = guard_report::kind::stopped});
  } else if (standing_) {
    standing_->continue_all();
    standing_.reset();
    report({.what = guard_report::kind::goes_on});
  }
}

void guard::wait_for_something(std::int64_t until) {
  constexpr std::int64_t second = 1'000'000'000;
  until = std::max<std::int64_t>(until, 1);  // 0 would mean never
  const itimerspec at{.it_interval = {}, .it_value = {.tv_sec = until / second, .tv_nsec = until % second}};
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr) != 0) {
    end_everything(job_end::kind::overdue);  // who cannot keep a time keeps none
  }
  pollfd any[] = {{.fd = timer_.get(), .events = POLLIN, .revents = 0},
                  {.fd = start_.wake.get(), .events = POLLIN, .revents = 0},
                  {.fd = children_.get(), .events = POLLIN, .revents = 0}};
  ::poll(any, std::size(any), -1);
}

void guard::take_wakes() {
  char bytes[256];
  ssize_t count = 0;
  while ((count = ::read(start_.wake.get(), bytes, sizeof bytes)) > 0) {
  }
  keeper_gone_ = count == 0;
}

void guard::take_children() {
  signalfd_siginfo which{};
  while (::read(children_.get(), &which, sizeof which) > 0) {
  }
  const auto one_ended = [this](pid_t pid, int status) {
    if (pid != command_) return;
    command_ = 0;
    int why = 0;
    if (::read(exec_failed_.get(), &why, sizeof why) == sizeof why) {
      end_.end = why == ENOENT ? job_end::kind::not_found : job_end::kind::not_executable;
      end_.status = why;
    } else if (WIFEXITED(status)) {
      end_.status = WEXITSTATUS(status);
    } else {
      end_.end = job_end::kind::signaled;
      end_.status = WTERMSIG(status);
    }
  };
  if (reap(one_ended) || runs()) return;
  if (clear_by_ != 0) end_.left_behind = static_cast<int>(all_.seen());
  report_end(end_);
}

// CMD has ended, others have not.
void guard::clear_up(std::int64_t now) {
  if (clear_by_ == 0) {
    all_ = descendants();  // those that stop_at was told to may have ended long ago
    all_.send(SIGTERM);
    all_.send(SIGCONT);  // a stopped one could not act on it
    clear_by_ = now + std::min(start_.job.stop_grace, INT64_MAX - now);
  }
  if (now >= clear_by_) end_everything(end_.end);
}

// CMD's process group. Where that is the keeper's, too, only what descends from CMD.
void guard::tell_command() {
  for (const int number : {SIGTERM, SIGCONT}) {
    if (start_.job.group != 0) {
      all_.send(number, start_.job.group);
    } else {
      ::kill(-command_, number);
    }
    if (::getpgid(command_) != (start_.job.group != 0 ? start_.job.group : command_)) ::kill(command_, number);
  }
}

void guard::pass_signals_on() {
  const std::uint64_t wanted = start_.job.signals.exchange(0);
  for (int number = 1; number <= 64 && runs(); ++number) {
    if ((wanted >> (number - 1) & 1) != 0) ::kill(command_, number);
  }
}

// what: overdue, or how CMD ended by itself.
void guard::end_everything(job_end::kind what) {
  // A whole group is ended at once, however fast it forks.
  if (runs() && start_.job.group == 0) ::kill(-command_, SIGKILL);
  const bool by_itself = !runs() && clear_by_ != 0;
  all_.end_all();
  guard_report last = end_;
  last.end = what;
  if (what == job_end::kind::overdue) last.status = 0;
  if (by_itself) last.left_behind = static_cast<int>(all_.seen());
  report_end(last);
}

void guard::report_end(guard_report last) {
  last.what = guard_report::kind::ended;
  last.not_ended = static_cast<int>(all_.not_ended().size());
  const auto named = std::min<std::size_t>(all_.not_ended().size(), not_ended_max);
  std::copy_n(all_.not_ended().begin(), named, last.not_ended_pids);
  report(last);
  leave();
}

}  // namespace

void run_guard(guard_start start) { guard(std::move(start)).run(); }

}  // namespace fencegate::hold
