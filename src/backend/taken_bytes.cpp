#include "backend/taken_bytes.hpp"

#include <linux/tcp.h>  // glibc's <netinet/tcp.h> ends before tcpi_bytes_received
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace fencegate::backend {

std::optional<std::uint64_t> taken_bytes(int socket) {
  constexpr std::size_t needed = offsetof(::tcp_info, tcpi_bytes_received) + sizeof(::tcp_info::tcpi_bytes_received);
  ::tcp_info info{};
  socklen_t size = sizeof info;
  int waiting = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < needed) return std::nullopt;
  if (::ioctl(socket, FIONREAD, &waiting) != 0) return std::nullopt;
  const std::uint64_t came = info.tcpi_bytes_received;
  return came - std::min(came, static_cast<std::uint64_t>(waiting));
}

}  // namespace fencegate::backend
