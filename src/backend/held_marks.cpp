#include "backend/held_marks.hpp"

#include <sys/socket.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace fencegate::backend {

socket_view::socket_view(int socket) : descriptor_(socket < 0 ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0)) {}

socket_view::~socket_view() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool socket_view::silent() const {
  char one = 0;
  const auto n = descriptor_ < 0 ? 0 : recv(descriptor_, &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace fencegate::backend
