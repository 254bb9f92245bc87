#include "hold/guard.hpp"

#include "hold/clock.hpp"
#include "hold/descendants.hpp"
#include "hold/guard_process.hpp"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <dirent.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace fencegate::hold {

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr int start_timeout_ms = 10'000;

error failed(const char* step, int why) {
  return error{std::string("the guard of CMD cannot be set up: ") + step + ": " +
               std::strerror(why)};  // NOLINT(concurrency-mt-unsafe): there is one thread
}

constexpr std::size_t shared_bytes = sizeof(shared_job) + request_bytes_max;

struct unmap {
  void operator()(shared_job* shared) const { ::munmap(shared, shared_bytes); }
};

bool has_one_thread() {
  std::size_t count = 0;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.';  // NOLINT(concurrency-mt-unsafe)
    ::closedir(tasks);
  }
  return count == 1;
}

// Of the keeper, where it has a controlling terminal. Else 0.
pid_t group_at_terminal() {
  const descriptor terminal(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
  return terminal ? ::getpgrp() : 0;
}

// Signals wait while it lives: the guard starts with all of them blocked.
class blocked_signals {
 public:
  blocked_signals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~blocked_signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  blocked_signals(const blocked_signals&) = delete;
  blocked_signals& operator=(const blocked_signals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

struct guarded_job::state {
  std::unique_ptr<shared_job, unmap> job;
  hold::descriptor wake;
  hold::descriptor wake_in;  // the guard's end of it: without a reader, a wake would end us by SIGPIPE
  hold::descriptor reports;
  hold::descriptor late;  // readable when the guard is
  hold::descriptor all;   // an epoll of the last two
  std::vector<pid_t> spared;
  pid_t guard = 0;  // 0: reaped
  bool stands_still = false;
  std::int64_t patience = 0;
  std::int64_t noticed = 0;  // with a grace: since when we have seen that the guard owes something; 0: it does not
  std::optional<job_end> end;

  ~state() {
    if (guard != 0 && !end) take_over(job_end::kind::overdue);
    end_guard();
  }

  [[nodiscard]] const char* open();
  [[nodiscard]] result<void> wait_for(guard_report::kind wanted);
  void set(job_times wanted);
  [[nodiscard]] std::int64_t owes_from() const;
  [[nodiscard]] std::int64_t late_at(std::int64_t deadline) const;
  void watch_guard();
  [[nodiscard]] bool guard_is_late();
  [[nodiscard]] bool take_last_report();
  void look() const { (void)!::write(wake.get(), "", 1); }  // a full pipe wakes, too
  bool take_report(guard_report& into) const {
    return ::read(reports.get(), &into, sizeof into) == static_cast<ssize_t>(sizeof into);
  }
  void end_guard();
  void take_over(job_end::kind what);
};

// What could not be had, and errno; nullptr when all is there.
const char* guarded_job::state::open() {
  void* const memory =
      ::mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return "mmap";
  job.reset(new (memory) shared_job{});
  late = hold::descriptor(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!late) return "timerfd_create";
  all = hold::descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!all) return "epoll_create1";
  return nullptr;
}

result<void> guarded_job::state::wait_for(guard_report::kind wanted) {
  pollfd said{.fd = reports.get(), .events = POLLIN, .revents = 0};
  if (::poll(&said, 1, start_timeout_ms) != 1) return failed("it does not answer", ETIMEDOUT);
  guard_report one;
  if (!take_report(one)) return failed("it was killed", ECHILD);
  if (one.what == wanted) return {};
  if (one.what == guard_report::kind::failed) return failed(one.step, one.status);
  if (one.what != guard_report::kind::ended) return failed("it answered out of turn", EPROTO);
  end = job_end{.what = one.end};  // it was too late to start CMD
  return {};
}

void guarded_job::state::set(job_times wanted) {
  // All together do not change at one moment. Where they move on, the guard sees the later deadline first; where a grace is
  // taken away, it sees that first.
  job->grace = wanted.grace;
  job->deadline = wanted.deadline;
  job->stop_at = wanted.stop_at;
  watch_guard();
}

// The guard has something to do at this time: to stop everything, to let it go on, or to end it.
std::int64_t guarded_job::state::owes_from() const {
  const std::int64_t deadline = job->deadline;
  if (!stands_still) return deadline;
  return boottime_now() < deadline ? 1 : end_of(deadline, job->grace);
}

// When the keeper does the guard's work.
std::int64_t guarded_job::state::late_at(std::int64_t deadline) const {
  return std::clamp<std::int64_t>(deadline, 1, INT64_MAX - patience) + patience;
}

void guarded_job::state::watch_guard() {
  const bool by_grace = job->grace != 0 || stands_still;
  if (!by_grace || boottime_now() < owes_from()) noticed = 0;
  const std::int64_t at = noticed != 0 ? late_at(noticed)
                          : by_grace   ? std::max<std::int64_t>(owes_from(), 1)
                                       : late_at(job->deadline);
  const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = at / second, .tv_nsec = at % second}};
  ::timerfd_settime(late.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// All may have been frozen, and there is a grace to be used: then the guard has its time from when we have seen the deadline.
bool guarded_job::state::guard_is_late() {
  const std::int64_t now = boottime_now();
  if (job->grace == 0 && !stands_still) return now >= late_at(job->deadline);
  if (now < owes_from()) return false;
  if (now >= late_at(end_of(job->deadline, job->grace))) return true;
  if (noticed != 0) return now >= late_at(noticed);
  noticed = now;
  look();
  watch_guard();
  return false;
}

// True: it has ended, or is gone.
bool guarded_job::state::take_last_report() {
  guard_report one;
  for (;;) {
    const ssize_t bytes = ::read(reports.get(), &one, sizeof one);
    if (bytes == 0) return take_over(job_end::kind::guard_died), true;
    if (bytes != static_cast<ssize_t>(sizeof one)) return false;
    if (one.what == guard_report::kind::ended) break;
    stands_still = one.what == guard_report::kind::stopped;
    noticed = 0;
    watch_guard();
  }
  job_end last{.what = one.end, .status = one.status, .told = one.told, .left_behind = one.left_behind};
  last.not_ended.assign(one.not_ended_pids, one.not_ended_pids + std::min(one.not_ended, not_ended_max));
  end = std::move(last);
  end_guard();
  return true;
}

void guarded_job::state::end_guard() {
  if (guard == 0) return;
  ::kill(guard, SIGKILL);
  while (::waitpid(guard, nullptr, 0) < 0 && errno == EINTR) {
  }
  guard = 0;
}

// What the guard had left comes to us with its end.
void guarded_job::state::take_over(job_end::kind what) {
  end_guard();
  descendants left(spared);
  left.end_all();
  end = job_end{.what = what, .left_behind = static_cast<int>(left.seen()), .not_ended = left.not_ended()};
}

guarded_job::guarded_job(std::unique_ptr<state> own) : state_(std::move(own)) {}
guarded_job::guarded_job(guarded_job&&) noexcept = default;
guarded_job::~guarded_job() = default;

result<guarded_job> guarded_job::prepare() {
  if (auto can = can_find_descendants(); !can) return can.error();
  if (!has_one_thread()) return error{"a thread was started before the guard of CMD"};
  auto own = std::make_unique<state>();
  if (const char* step = own->open()) return failed(step, errno);
  auto [wake_in, wake_out] = make_pipe();
  auto [reports_in, reports_out] = make_pipe();
  if (!wake_out || !wake_in || !reports_out || !reports_in) return failed("pipe2", errno);
  own->wake = std::move(wake_out);
  own->wake_in = std::move(wake_in);
  own->reports = std::move(reports_in);
  for (const int one : {own->reports.get(), own->late.get()}) {
    ::epoll_event readable{.events = EPOLLIN, .data = {}};
    if (::epoll_ctl(own->all.get(), EPOLL_CTL_ADD, one, &readable) != 0) return failed("epoll_ctl", errno);
  }
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return failed("PR_SET_CHILD_SUBREAPER", errno);

  const blocked_signals waiting;
  // Ignored, as some parents leave it, no child could be waited for.
  struct sigaction child {};
  if (::sigaction(SIGCHLD, nullptr, &child) == 0 && child.sa_handler == SIG_IGN) ::signal(SIGCHLD, SIG_DFL);
  own->spared = own_children();  // of whoever became hold by exec()
  const pid_t guard = ::fork();
  if (guard < 0) return failed("fork", errno);
  if (guard == 0) {
    own->wake.close();  // else it would never see its end
    own->reports.close();
    run_guard({*own->job, std::move(own->wake_in), std::move(reports_out)});
  }
  own->guard = guard;
  reports_out.close();
  if (auto ready = own->wait_for(guard_report::kind::ready); !ready) return ready.error();
  const std::vector<pid_t> listed = own_children();
  if (std::ranges::find(listed, guard) == listed.end()) {
    return failed("/proc/PID/task/PID/children does not list it", ENOTSUP);
  }
  return guarded_job(std::move(own));
}

result<void> guarded_job::start(const job_request& request, job_times times) {
  if (request.command.empty()) return error{"there is no CMD"};
  state& own = *state_;
  std::string texts;
  for (const auto* all : {&request.command, &request.environment})
    for (const std::string& one : *all)
      texts.append(one.c_str()) += '\0';  // what is behind a NUL, no program would see
  if (texts.size() > request_bytes_max) return error{"arguments and environment of CMD are too large"};
  std::ranges::copy(texts, request_of(*own.job));
  own.job->arguments = request.command.size();
  own.job->variables = request.environment.size();
  own.job->stop_grace = request.stop_grace.count();
  own.job->group = group_at_terminal();
  own.patience = request.patience.count();
  own.set(times);
  own.look();
  return own.wait_for(guard_report::kind::running);
}

void guarded_job::set_times(job_times times) {
  state_->set(times);
  state_->look();
}

void guarded_job::signal(int number) {
  if (number < 1 || number > 64) return;
  state_->job->signals |= std::uint64_t{1} << (number - 1);
  state_->look();
}

bool guarded_job::passes_on(int code) const { return state_->job->group == 0 || code != SI_KERNEL; }

bool guarded_job::stands_still() const { return state_->stands_still; }

int guarded_job::descriptor() const { return state_->all.get(); }

std::optional<job_end> guarded_job::ended() {
  state& own = *state_;
  const bool had_guard = own.guard != 0;
  reap([&own](pid_t pid, int) {
    if (pid == own.guard) own.guard = 0;
  });
  if (own.end) return own.end;
  if (own.take_last_report()) return own.end;
  if (had_guard && own.guard == 0) {
    own.take_over(job_end::kind::guard_died);
  } else if (own.job->arguments != 0 && own.guard_is_late()) {
    own.take_over(job_end::kind::overdue);
  }
  return own.end;
}

}  // namespace fencegate::hold
