// The processes of hold, without a lease, for tests/live/test_hold_guard.py:
//   hold_probe run [OPTION…] -- CMD…
//     --renew MS       the times move on for so long (0: never)     --ttl MS        from now to the deadline
//     --grace MS       between stop_at and the deadline             --stop-grace MS
//     --still MS       behind the deadline: it stands still         said: "still", "goes-on"
//     --said FILE      lines: "runs", "failed WHY", "signal N passed|heard", and
//                      "ended KIND STATUS LEFT_BEHIND LATE_US [PID…]" (late: behind the deadline)
//     --deny CALL      this system call fails: mmap (shared), timerfd_create, pidfd_open, … as often as wanted
//     --files N        no more descriptors than that                --thread        starts one first
//   Passes on SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH where hold would. SIGALRM: stop_at is now, and the deadline
//   behind it by --grace (said: "stopping"). SIGVTALRM: the deadline is --renewed MS from now (said: "renewed"). SIGUSR2: it leaves, with status 0. Exits as hold would.
//   hold_probe runners COUNT SECONDS    so many processes that each fork the next, in a session of its own, and exit
//   hold_probe tree COUNT SECONDS       processes that fork and end, up to so many at a time
#include "hold/clock.hpp"
#include "hold/descriptor.hpp"
#include "hold/exit_status.hpp"
#include "hold/guard.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <poll.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <thread>

namespace {

using namespace fencegate;
using hold::boottime_now;

constexpr std::int64_t ms = 1'000'000;

// ------------------------------------------------------------------------------------------------- jobs that fork

// Shared by all processes of a job.
struct tally {
  std::atomic<int> living{0}, forks{0};
};

// Each may leave a zombie until the guard has time, and a machine has 32,768 process ids: behind so many, they are slow.
pid_t counted_fork(tally& all) {
  constexpr int fast_forks_max = 6'000;
  if (all.forks.fetch_add(1) > fast_forks_max) ::usleep(20'000);
  return ::fork();
}

void runner(tally& all, std::int64_t until) {
  while (boottime_now() < until) {
    if (counted_fork(all) > 0) ::_exit(0);  // the child goes on
    ::setsid();
  }
  ::_exit(0);
}

void tree(tally& all, int living_max, std::int64_t until) {
  const pid_t root = ::getpid();
  int rounds = 0;
  while (boottime_now() < until) {
    if (all.living.fetch_add(1) < living_max) {
      if (counted_fork(all) == 0) ::setsid();
      continue;
    }
    all.living.fetch_sub(1);
    ::usleep(300);
    if (::getpid() != root && ++rounds % 8 == 0) {
      all.living.fetch_sub(1);
      ::_exit(0);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  ::_exit(0);
}

int fork_for(const std::string& how, int count, std::int64_t until) {
  void* const memory = ::mmap(nullptr, sizeof(tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto& all = *new (memory) tally;
  if (how == "tree") tree(all, count, until);
  for (int i = 0; i < count; ++i) {
    if (::fork() == 0) runner(all, until);
  }
  while (boottime_now() < until) ::pause();
  return 0;
}

// ------------------------------------------------------------------------------------------------- what can fail

struct call {
  int number;
  int why;
};
const std::map<std::string, call> calls = {
    {"mmap", {SYS_mmap, ENOMEM}},
    {"timerfd_create", {SYS_timerfd_create, EMFILE}},
    {"timerfd_settime", {SYS_timerfd_settime, EINVAL}},
    {"pipe2", {SYS_pipe2, EMFILE}},
    {"signalfd4", {SYS_signalfd4, EMFILE}},
    {"epoll_create1", {SYS_epoll_create1, EMFILE}},
    {"setpgid", {SYS_setpgid, EPERM}},
    {"clone", {SYS_clone, EAGAIN}},
    {"pidfd_open", {SYS_pidfd_open, ENOSYS}},
};

bool deny(const std::string& name) {
  const call denied = calls.at(name);
  const auto number = static_cast<std::uint32_t>(denied.number);
  constexpr std::uint32_t load = BPF_LD | BPF_W | BPF_ABS;
  const sock_filter if_shared = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1);
  const sock_filter always = BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0);
  sock_filter steps[] = {
      BPF_STMT(load, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(load, offsetof(seccomp_data, args[3])),
      name == "mmap" ? if_shared : always,  // what programs are made of is private
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(denied.why)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(steps), .filter = steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// ------------------------------------------------------------------------------------------------- run

struct options {
  std::int64_t renew = 0, ttl = 600'000, renewed = 600'000, grace = 0, still = 0, stop_grace = 5'000, files = 0;
  std::string said = "/dev/null", denied;
  bool thread = false;
  std::vector<std::string> command;
};

options read_options(int count, char** words) {
  options out;
  std::map<std::string, std::int64_t*> numbers = {{"--renew", &out.renew},     {"--ttl", &out.ttl},
                                                  {"--grace", &out.grace},     {"--still", &out.still},
                                                  {"--renewed", &out.renewed}, {"--stop-grace", &out.stop_grace},
                                                  {"--files", &out.files}};
  int i = 2;
  for (; i < count && std::string(words[i]) != "--"; ++i) {
    const std::string word = words[i];
    if (word == "--thread") {
      out.thread = true;
    } else if (word == "--said") {
      out.said = words[++i];
    } else if (word == "--deny") {
      out.denied = words[++i];
    } else {
      *numbers.at(word) = std::atoll(words[++i]);
    }
  }
  out.command.assign(words + std::min(i + 1, count), words + count);
  return out;
}

hold::descriptor open_signals() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int one : {SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGWINCH, SIGCHLD})
    ::sigaddset(&wanted, one);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  return hold::descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

const char* name_of(hold::job_end::kind what) {
  static constexpr const char* names[] = {"exited", "signaled", "not_found", "not_executable", "overdue", "guard_died"};
  return names[static_cast<int>(what)];
}

class keeper {
 public:
  explicit keeper(const options& wanted)
      : wanted_(wanted),
        said_(::open(wanted.said.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)),
        begun_(boottime_now()) {
    move_times(wanted_.ttl);
  }
  int run();

 private:
  void move_times(std::int64_t ttl) {
    times_.deadline = boottime_now() + ttl * ms;
    times_.stop_at = wanted_.still > 0 ? hold::job_times::never : times_.deadline - wanted_.grace * ms;
    times_.grace = wanted_.still * ms;
  }
  void say(const std::string& line) { (void)!::write(said_.get(), (line + '\n').data(), line.size() + 1); }
  // False: the keeper is to leave.
  bool take_signals(hold::guarded_job& job, int signals);

  const options& wanted_;
  hold::descriptor said_;
  std::int64_t begun_;  // moving the times
  hold::job_times times_;
  bool stands_still_ = false;
};

bool keeper::take_signals(hold::guarded_job& job, int signals) {
  signalfd_siginfo one{};
  while (::read(signals, &one, sizeof one) > 0) {
    const int number = static_cast<int>(one.ssi_signo);
    if (number == SIGUSR2) return false;
    if (number == SIGCHLD) continue;
    if (number == SIGALRM) {
      begun_ = 0;
      times_ = {.stop_at = boottime_now(), .deadline = boottime_now() + wanted_.grace * ms, .grace = 0};
      job.set_times(times_);
      say("stopping");
      continue;
    }
    if (number == SIGVTALRM) {
      move_times(wanted_.renewed);
      job.set_times(times_);
      say("renewed");
      continue;
    }
    const bool passed = job.passes_on(one.ssi_code);
    say("signal " + std::to_string(number) + (passed ? " passed" : " heard"));
    if (passed) job.signal(number);
  }
  return true;
}

int keeper::run() {
  hold::job_request request{
      .command = wanted_.command, .environment = {}, .stop_grace = std::chrono::milliseconds(wanted_.stop_grace)};
  for (char** one = environ; *one != nullptr; ++one) request.environment.emplace_back(*one);
  auto job = hold::guarded_job::prepare();
  const auto started = job ? job->start(request, times_) : result<void>(job.error());
  if (!started) {
    say("failed " + started.error().message);
    return hold::ending_of(hold::outcome::error).status;
  }
  const hold::descriptor signals = open_signals();
  say("runs");
  for (;;) {
    if (!take_signals(*job, signals.get())) return 0;
    if (const auto end = job->ended()) {
      std::string line = std::string("ended ") + name_of(end->what);
      for (const std::int64_t one :
           {std::int64_t{end->status}, std::int64_t{end->left_behind}, (boottime_now() - times_.deadline) / 1000}) {
        line += ' ' + std::to_string(one);
      }
      for (const pid_t pid : end->not_ended) line += ' ' + std::to_string(pid);
      say(line);
      return hold::ending_of(*end).status;
    }
    if (stands_still_ != job->stands_still()) say((stands_still_ = job->stands_still()) ? "still" : "goes-on");
    if (boottime_now() - begun_ < wanted_.renew * ms) {
      move_times(wanted_.ttl);
      job->set_times(times_);
    }
    pollfd any[] = {{.fd = job->descriptor(), .events = POLLIN, .revents = 0},
                    {.fd = signals.get(), .events = POLLIN, .revents = 0}};
    ::poll(any, 2, boottime_now() - begun_ < wanted_.renew * ms ? 50 : -1);
  }
}

int run(const options& wanted) {
  if (wanted.files > 0) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(wanted.files), .rlim_max = static_cast<rlim_t>(wanted.files)};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  if (!wanted.denied.empty() && !deny(wanted.denied)) return 2;
  std::thread other;
  if (wanted.thread) other = std::thread([] { ::usleep(200'000); });
  const int status = keeper(wanted).run();
  if (other.joinable()) other.join();
  return status;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "run") return run(read_options(count, words));
  if ((what == "runners" || what == "tree") && count == 4) {
    return fork_for(what, std::atoi(words[2]), boottime_now() + std::atoll(words[3]) * 1000 * ms);
  }
  std::cerr << "hold_probe run [OPTION...] -- CMD... | runners COUNT SECONDS | tree COUNT SECONDS\n";
  return 2;
}
