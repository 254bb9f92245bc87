// One file descriptor, kept for the moment when the process has no other: given up, it lets one more connection be
// accepted, be it to tell its client that there is no room. A client that is not accepted waits without a word.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace fencegate {

class spare_descriptor {
 public:
  spare_descriptor() { take(); }
  ~spare_descriptor() { give_up(); }
  spare_descriptor(const spare_descriptor&) = delete;
  spare_descriptor& operator=(const spare_descriptor&) = delete;

  // Has it again, where there is one to be had.
  void take() {
    if (held_ < 0) held_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  void give_up() {
    if (held_ >= 0) ::close(std::exchange(held_, -1));
  }

 private:
  int held_ = -1;
};

}  // namespace fencegate
