#include "cli/admin_client.hpp"

#include "backend/tls.hpp"
#include "cli/config_url.hpp"
#include "cli/config_values.hpp"

#include <boost/asio/error.hpp>
#include <sys/socket.h>
#include <sys/un.h>

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class blocking_socket {
 public:
  explicit blocking_socket(steady_clock::time_point deadline) : deadline_(deadline) {}
  ~blocking_socket() { close(); }
  blocking_socket(const blocking_socket&) = delete;
  blocking_socket& operator=(const blocking_socket&) = delete;

  result<void> connect(const settings::address& to) { return to.is_unix() ? connect_unix(to) : connect_tcp(to); }

  // From here on through TLS.
  result<void> secure(backend::tls_context& by) {
    using waits_for = backend::tls_stream::waits_for;
    auto over = by.open(fd_);
    if (!over) return over.error();
    tls_ = std::move(*over);
    for (;;) {
      const auto waits = tls_->shake_hands();
      if (!waits) return waits.error();
      if (*waits == waits_for::nothing) return {};
      auto ready = wait_for(*waits == waits_for::readable ? POLLIN : POLLOUT);
      if (!ready) return ready;
    }
  }

  result<void> send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      auto ready = wait_for(POLLOUT);
      if (!ready) return ready;
      boost::system::error_code failed;
      bytes.remove_prefix(send(bytes, failed));
      ended_ = is_serious(failed);
      if (ended_) return error{failed.message()};
    }
    return {};
  }

  // The peer, or the network, has ended the connection.
  [[nodiscard]] bool ended() const { return ended_; }

  // What the peer sends, up to `end`, which is included; without `end`, all of it.
  result<std::string> receive_until(std::string_view end, std::size_t bytes_max) {
    std::string text;
    while (text.size() < bytes_max) {
      char buffer[4096];
      boost::system::error_code failed;
      const auto received = receive(buffer, failed);
      ended_ = is_serious(failed);
      if (failed == boost::asio::error::eof && end.empty()) return {boost::system::in_place_value, std::move(text)};
      if (failed == boost::asio::error::eof) return error{"the connection was closed without an answer"};
      if (ended_) return error{failed.message()};
      if (failed) {
        // TLS may hold bytes of which the socket does not tell: who waits has asked for them.
        const auto ready = wait_for(tls_ && tls_->receive_waits_to_write() ? POLLOUT : POLLIN);
        if (!ready) return ready.error();
      }
      text.append(buffer, received);
      if (!end.empty() && text.find(end) != std::string::npos) return {boost::system::in_place_value, std::move(text)};
    }
    return error{"the answer is not HTTP, or too long"};
  }

 private:
  static error last_error() { return error{std::strerror(errno)}; }

  static boost::system::error_code last_code() { return {errno, boost::system::system_category()}; }
  static bool is_serious(const boost::system::error_code& failed) {
    return failed && failed != boost::asio::error::would_block && failed != boost::asio::error::interrupted;
  }

  std::size_t send(std::string_view bytes, boost::system::error_code& failed) {
    if (tls_) return tls_->send(bytes, failed);
    const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) failed = last_code();
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }

  std::size_t receive(std::span<char> room, boost::system::error_code& failed) {
    if (tls_) return tls_->receive(room, failed);
    const auto received = ::recv(fd_, room.data(), room.size(), 0);
    if (received <= 0) failed = received == 0 ? boost::asio::error::eof : last_code();
    return received < 0 ? 0 : static_cast<std::size_t>(received);
  }

  void close() {
    tls_.reset();
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  result<void> wait_for(short events) {
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline_ - steady_clock::now());
      pollfd polled{fd_, events, 0};
      const int ready = left.count() > 0 ? ::poll(&polled, 1, static_cast<int>(left.count())) : 0;
      if (ready > 0) return {};
      if (ready == 0) return error{"no answer in time"};
      if (errno != EINTR) return last_error();
    }
  }

  result<void> open_and_connect(int family, const sockaddr* to, socklen_t size) {
    close();
    fd_ = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return last_error();
    if (::connect(fd_, to, size) == 0) return {};
    // A unix socket with a full queue says EAGAIN; it is as busy as a listener that never accepts.
    if (errno != EINPROGRESS) return last_error();
    auto ready = wait_for(POLLOUT);
    if (!ready) return ready;
    socklen_t length = sizeof errno;
    int failed = 0;
    if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &failed, &length) != 0) return last_error();
    if (failed != 0) return error{std::strerror(failed)};
    return {};
  }

  result<void> connect_unix(const settings::address& to) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    to.path.copy(place.sun_path, sizeof place.sun_path - 1);
    return open_and_connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&place), sizeof place);
  }

  result<void> connect_tcp(const settings::address& to) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found);
    if (failed != 0) return error{::gai_strerror(failed)};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    result<void> outcome = error{"the name has no address"};
    for (const auto* place = found; place != nullptr; place = place->ai_next) {
      outcome = open_and_connect(place->ai_family, place->ai_addr, place->ai_addrlen);
      if (outcome) break;
    }
    return outcome;
  }

  int fd_ = -1;
  bool ended_ = false;
  std::unique_ptr<backend::tls_stream> tls_;  // nullptr: in plain text
  steady_clock::time_point deadline_;
};

// The status code of "HTTP/1.1 200 OK"; 0 for what is no status line.
int status_of(std::string_view line) {
  constexpr std::size_t version_bytes = std::string_view("HTTP/1.1 ").size();
  if (!line.starts_with("HTTP/1.") || line.size() < version_bytes + 3) return 0;
  const auto rest = line.substr(version_bytes + 3);
  if (!rest.empty() && rest[0] != ' ') return 0;
  const auto status = parse_count(line.substr(version_bytes, 3), 100, 999);
  return status ? static_cast<int>(*status) : 0;
}

}  // namespace

result<admin_address> parse_admin_address(std::string_view text) {
  if (!text.starts_with("https://")) {
    auto where = parse_address(text);
    if (!where) return where.error();
    return admin_address{std::move(*where), {}};
  }
  auto url = parse_http_url(text);
  if (!url) return url.error();
  return admin_address{std::move(url->where), std::move(url->secured)};
}

namespace {

constexpr std::size_t line_bytes_max = 1024, answer_bytes_max = 4 * 1024 * 1024;

// The answer up to `end`; all of it where that is empty.
result<std::string> ask(const admin_address& from, std::string_view asked, steady_clock::time_point deadline,
                        std::string_view end, std::size_t bytes_max) {
  blocking_socket socket(deadline);
  if (const auto connected = socket.connect(from.where); !connected) return connected.error();
  if (const auto context = backend::tls_context::to(from.where, from.secured))
    if (const auto secured = socket.secure(*context); !secured) return secured.error();
  // The listener does some things for this host alone, and knows none of the names in its certificate.
  const bool local = from.where.is_unix() || from.secured.wanted();
  const std::string host = local ? "localhost" : to_string(from.where);
  const auto sent =
      socket.send_all(std::string(asked) + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  auto answered = sent ? socket.receive_until(end, bytes_max) : result<std::string>(sent.error());
  if (answered) return answered;
  // A server that misses the client's certificate may end the connection before it is heard to say so.
  const char* hint = "";
  if (socket.ended() && !from.secured.wanted() && !from.where.is_unix())
    hint = "; if it has TLS: --admin https://HOST:PORT?cafile=FILE";
  else if (socket.ended() && from.secured.wanted() && from.secured.certificate.empty())
    hint = "; if it wants a certificate: ?cert=FILE&key=FILE";
  return error{answered.error().message + hint};
}

}  // namespace

result<int> admin_status(const admin_address& from, std::string_view asked, steady_clock::time_point deadline) {
  const auto answered = ask(from, asked, deadline, "\r\n", line_bytes_max);
  if (!answered) return answered.error();
  return status_of(answered->substr(0, answered->find("\r\n")));
}

result<admin_answer> admin_ask(const admin_address& from, std::string_view asked, steady_clock::time_point deadline) {
  const auto answered = ask(from, asked, deadline, {}, answer_bytes_max);
  if (!answered) return answered.error();
  const auto body = answered->find("\r\n\r\n");
  if (body == std::string::npos) return error{"the connection was closed without an answer"};
  return admin_answer{status_of(answered->substr(0, answered->find("\r\n"))), answered->substr(body + 4)};
}

}  // namespace fencegate::cli
