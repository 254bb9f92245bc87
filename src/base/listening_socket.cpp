#include "base/listening_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace fencegate {
namespace {

constexpr int kind_of_socket = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

error cannot_listen(const settings::address& at, int number) {
  error out{"cannot listen on " + to_string(at) + ": " + std::strerror(number)};
  if (number == EADDRINUSE) out.message += "; is another fencegate running?";
  return out;
}

// A file that nobody listens on was left behind by a process that was killed.
bool remove_stale(const sockaddr_un& place) {
  struct stat info {};
  if (::lstat(place.sun_path, &info) != 0) return true;
  if (!S_ISSOCK(info.st_mode)) return false;
  const int probe = ::socket(AF_UNIX, kind_of_socket, 0);
  const bool refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return refused && ::unlink(place.sun_path) == 0;
}

}  // namespace

listening_socket::listening_socket(listening_socket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      family_(other.family_),
      port_(other.port_),
      file_(std::exchange(other.file_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

listening_socket::~listening_socket() {
  if (socket_ >= 0) ::close(socket_);
  struct stat info {};
  const bool ours =
      !file_.empty() && ::lstat(file_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
  if (ours) ::unlink(file_.c_str());
}

int listening_socket::release() { return std::exchange(socket_, -1); }

result<listening_socket> listening_socket::open(const settings::address& at, std::optional<::mode_t> mode,
                                                bool shares) {
  listening_socket out;
  const auto listening = at.is_unix() ? out.listen_on_file(at, mode) : out.listen_on_port(at, shares);
  if (!listening) return listening.error();
  return {boost::system::in_place_value, std::move(out)};
}

result<listening_socket> listening_socket::again(int released) const {
  listening_socket out;
  out.socket_ = ::fcntl(released, F_DUPFD_CLOEXEC, 0);
  if (out.socket_ < 0) return error{std::string("cannot listen: ") + std::strerror(errno)};
  out.family_ = family_;
  out.port_ = port_;
  return {boost::system::in_place_value, std::move(out)};
}

void listening_socket::take_file(listening_socket& from) {
  file_ = std::exchange(from.file_, {});
  device_ = from.device_;
  inode_ = from.inode_;
}

void listening_socket::share_port(int released, bool shares) {
  const int share = shares ? 1 : 0;
  static_cast<void>(::setsockopt(released, SOL_SOCKET, SO_REUSEPORT, &share, sizeof share));
}

// 0, or errno.
int listening_socket::bind(int family, const void* to, unsigned bytes, bool shares) {
  socket_ = ::socket(family, kind_of_socket, 0);
  if (socket_ < 0) return errno;
  family_ = family;
  const int yes = 1;
  if (family != AF_UNIX && ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) return errno;
  if (shares) share_port(socket_, true);
  return ::bind(socket_, static_cast<const sockaddr*>(to), bytes) == 0 ? 0 : errno;
}

int listening_socket::listen() const { return ::listen(socket_, SOMAXCONN) == 0 ? 0 : errno; }

result<void> listening_socket::listen_on_file(const settings::address& at, std::optional<::mode_t> mode) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (at.path.size() >= sizeof place.sun_path)
    return error{"cannot listen on " + to_string(at) + ": the path is too long for a unix socket"};
  at.path.copy(place.sun_path, sizeof place.sun_path - 1);
  if (!remove_stale(place)) return error{"cannot listen on " + to_string(at) + ": it is in use or is not a socket"};
  if (const int failed = bind(AF_UNIX, &place, sizeof place); failed != 0) return cannot_listen(at, failed);
  struct stat info {};
  if (::lstat(place.sun_path, &info) != 0) return cannot_listen(at, errno);
  file_ = at.path;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  // Nobody can connect to a file on which nothing listens yet.
  if (mode && ::chmod(place.sun_path, *mode) != 0) return cannot_listen(at, errno);
  if (const int failed = listen(); failed != 0) return cannot_listen(at, failed);
  return {};
}

result<void> listening_socket::listen_on_port(const settings::address& at, bool shares) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int unresolved = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (unresolved != 0)
    return error{"cannot listen on " + to_string(at) + ": cannot resolve " + at.host + ": " +
                 ::gai_strerror(unresolved)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const int failed = bind(found->ai_family, found->ai_addr, found->ai_addrlen, shares);
  // Every interface of a kernel without IPv6 is those of IPv4.
  if ((failed == EAFNOSUPPORT || failed == EADDRNOTAVAIL) && at.host == "::") {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    settings::address of_ipv4 = at;
    of_ipv4.host = "0.0.0.0";
    return listen_on_port(of_ipv4, shares);
  }
  if (failed != 0) return cannot_listen(at, failed);
  if (const int not_listening = listen(); not_listening != 0) return cannot_listen(at, not_listening);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return cannot_listen(at, errno);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return {};
}

}  // namespace fencegate
