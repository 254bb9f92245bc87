// A file descriptor that is closed with its owner. No program that is started inherits it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace fencegate::hold {

class descriptor {
 public:
  descriptor() = default;
  // Takes what a system call returned: -1 is none, and errno stays. A number below 3 is moved out of the way: where hold
  // was started without one of 0, 1 and 2, whatever writes to stderr would write into it.
  explicit descriptor(int opened) : fd_(opened) {
    if (opened < 0 || opened > STDERR_FILENO) return;
    fd_ = ::fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int why = errno;
    ::close(opened);
    errno = why;
  }
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

struct pipe_ends {
  descriptor in;   // to read from
  descriptor out;  // to write to
};

// Neither end blocks. Where there is no pipe to be had, an end is missing, and errno says why.
[[nodiscard]] inline pipe_ends make_pipe() {
  int both[2];
  if (::pipe2(both, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  pipe_ends made{descriptor(both[0]), {}};
  const int why = errno;
  made.out = descriptor(both[1]);
  if (!made.in) errno = why;
  return made;
}

}  // namespace fencegate::hold
