// A client of HTTP over a real socket. It blocks, and gives up after 10 s, so that a server that never answers is a failure and
// not a hang.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::admin {

class blocking_client {
 public:
  // `receive_bytes`: of the kernel's buffer, for a peer that is slow; 0: as usual.
  explicit blocking_client(std::uint16_t port, int receive_bytes = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes != 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  explicit blocking_client(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  blocking_client(blocking_client&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), unread_(std::move(other.unread_)) {}
  blocking_client(const blocking_client&) = delete;
  blocking_client& operator=(const blocking_client&) = delete;
  blocking_client& operator=(blocking_client&&) = delete;
  ~blocking_client() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int descriptor() const { return fd_; }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the test sees it when it reads
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  // Up to and with `end`; "" when the peer closes before that.
  std::string until(const std::string& end) {
    while (unread_.find(end) == std::string::npos) {
      if (!more()) return "";
    }
    return take(unread_.find(end) + end.size());
  }

  // One response: head, and as many bytes of body as Content-Length says. "" when the peer closed first.
  std::string response(bool head_only = false) {
    std::string head = until("\r\n\r\n");
    const auto at = head.find("Content-Length: ");
    const std::size_t body_bytes = at == std::string::npos || head_only ? 0 : std::stoul(head.substr(at + 16));
    while (unread_.size() < body_bytes) {
      if (!more()) return "";
    }
    return head + take(body_bytes);
  }

  std::string get(const std::string& path) {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return response();
  }

  // True when the peer closes and no byte is left.
  bool at_end() { return unread_.empty() && !more() && ended_; }

 private:
  std::string take(std::size_t bytes) {
    std::string out = unread_.substr(0, bytes);
    unread_.erase(0, bytes);
    return out;
  }
  bool more() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, 10'000) != 1) return false;
    char bytes[4096];
    const auto n = recv(fd_, bytes, sizeof bytes, 0);
    ended_ = n <= 0;
    if (n > 0) unread_.append(bytes, static_cast<std::size_t>(n));
    return n > 0;
  }

  int fd_;
  bool connected_ = false, ended_ = false;
  std::string unread_;
};

inline unsigned status_of(const std::string& response) {
  return response.starts_with("HTTP/1.1 ") ? static_cast<unsigned>(std::stoul(response.substr(9, 3))) : 0;
}

}  // namespace fencegate::admin
