// A guarded job on an Asio loop, and the signals that come to this process meanwhile.
#pragma once

#include "hold/guard.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/signalfd.h>

#include <functional>

namespace fencegate::client {

class watched_job {
 public:
  watched_job(boost::asio::io_context& io, hold::guarded_job job);

  // From now on this process dies of no signal that one may ignore; they stay blocked for programs that it becomes. Of SIGHUP,
  // SIGINT and SIGQUIT, those that were ignored stay so (nohup and a shell's `&` mean that). `ended` comes once, `signalled` at
  // each but SIGCHLD, `stood_still` when that has changed.
  void watch(
      std::function<void(const signalfd_siginfo&)> signalled, std::function<void(const hold::job_end&)> ended,
      std::function<void(bool)> stood_still = [](bool) {});

  [[nodiscard]] hold::guarded_job& job() { return job_; }

 private:
  void wait_for_end();
  void wait_for_signal();
  bool look();

  hold::guarded_job job_;
  boost::asio::posix::stream_descriptor end_, signals_;
  std::function<void(const signalfd_siginfo&)> signalled_;
  std::function<void(const hold::job_end&)> ended_;  // nullptr: it has come
  std::function<void(bool)> stood_still_;
  bool stands_still_ = false;
};

// It tells a process to end.
[[nodiscard]] bool is_to_end(unsigned number);
// It ends a process that does not expect it.
[[nodiscard]] bool is_deadly(unsigned number);

}  // namespace fencegate::client
