#include "client/watched_job.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace fencegate::client {
namespace {

constexpr std::array<unsigned, 4> ending_signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};
// By default, each of these ends a process, and with it what releases the lease. Real-time signals do, too.
constexpr std::array<unsigned, 8> deadly_signals{SIGALRM, SIGVTALRM, SIGPROF,   SIGXCPU,
                                                 SIGXFSZ, SIGIO,     SIGSTKFLT, SIGPWR};
// SIGCHLD tells that there is something to reap.
constexpr std::array other_signals{SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD};

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

bool is_deadly(unsigned number) {
  return std::find(deadly_signals.begin(), deadly_signals.end(), number) != deadly_signals.end() ||
         (number >= static_cast<unsigned>(SIGRTMIN) && number <= static_cast<unsigned>(SIGRTMAX));
}

bool is_to_end(unsigned number) {
  return is_deadly(number) || std::find(ending_signals.begin(), ending_signals.end(), number) != ending_signals.end();
}

watched_job::watched_job(boost::asio::io_context& io, hold::guarded_job job)
    : job_(std::move(job)), end_(io), signals_(io) {}

void watched_job::watch(std::function<void(const signalfd_siginfo&)> signalled,
                        std::function<void(const hold::job_end&)> ended, std::function<void(bool)> stood_still) {
  signalled_ = std::move(signalled);
  ended_ = std::move(ended);
  stood_still_ = std::move(stood_still);
  sigset_t all;
  sigemptyset(&all);
  for (int number = 1; number <= SIGRTMAX; ++number)
    if (is_to_end(static_cast<unsigned>(number)) && (number == SIGTERM || !is_ignored(number))) sigaddset(&all, number);
  for (const int number : other_signals) sigaddset(&all, number);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  signals_.assign(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  end_.assign(fcntl(job_.descriptor(), F_DUPFD_CLOEXEC, 0));
  wait_for_signal();
  wait_for_end();
}

void watched_job::wait_for_end() {
  end_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& failed) {
    if (!failed && !look()) wait_for_end();
  });
}

void watched_job::wait_for_signal() {
  signals_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](const boost::system::error_code& failed) {
                        if (failed) return;
                        signalfd_siginfo got{};
                        while (read(signals_.native_handle(), &got, sizeof got) == sizeof got) {
                          if (got.ssi_signo == SIGCHLD)
                            look();
                          else
                            signalled_(got);
                        }
                        wait_for_signal();
                      });
}

// True: it has ended.
bool watched_job::look() {
  const auto end = job_.ended();
  if (stands_still_ != job_.stands_still()) stood_still_(stands_still_ = job_.stands_still());
  if (!end) return false;
  if (const auto tell = std::exchange(ended_, nullptr)) tell(*end);
  return true;
}

}  // namespace fencegate::client
