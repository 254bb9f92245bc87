#include "cli/commands.hpp"

#include "cli/config_values.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <thread>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two questions of `wait`, and for one of them.
constexpr milliseconds wait_pause{100};
constexpr milliseconds answer_patience{1'000};

class blocking_socket {
 public:
  explicit blocking_socket(steady_clock::time_point deadline) : deadline_(deadline) {}
  ~blocking_socket() { close(); }
  blocking_socket(const blocking_socket&) = delete;
  blocking_socket& operator=(const blocking_socket&) = delete;

  result<void> connect(const settings::address& to) { return to.is_unix() ? connect_unix(to) : connect_tcp(to); }

  result<void> send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      auto ready = wait_for(POLLOUT);
      if (!ready) return ready;
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0)
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      else if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return last_error();
    }
    return {};
  }

  // The first line that the peer sends, without its end; what follows is not read.
  result<std::string> receive_line() {
    constexpr std::size_t line_bytes_max = 1024;
    std::string line;
    while (line.size() < line_bytes_max) {
      const auto ready = wait_for(POLLIN);
      if (!ready) return ready.error();
      char buffer[256];
      const auto received = ::recv(fd_, buffer, sizeof buffer, 0);
      if (received == 0) return error{"the connection was closed without an answer"};
      if (received < 0 && errno != EAGAIN && errno != EINTR) return last_error();
      if (received < 0) continue;
      line.append(buffer, static_cast<std::size_t>(received));
      const auto end = line.find("\r\n");
      if (end != std::string::npos) return {boost::system::in_place_value, line.substr(0, end)};
    }
    return error{"the answer is not HTTP"};
  }

 private:
  static error last_error() { return error{std::strerror(errno)}; }

  void close() {
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

// `asked`: method and path, "GET /livez".
result<int> get_status(const settings::address& from, const std::string& asked, steady_clock::time_point deadline) {
  blocking_socket socket(deadline);
  const auto connected = socket.connect(from);
  if (!connected) return connected.error();
  const std::string host = from.is_unix() ? "localhost" : to_string(from);
  const auto sent = socket.send_all(asked + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  if (!sent) return sent.error();
  const auto line = socket.receive_line();
  if (!line) return line.error();
  return status_of(*line);
}

}  // namespace

void print_errors(const config_errors& errors, std::ostream& err) {
  for (const auto& e : errors) err << e.to_string() << '\n';
}

int check(const std::string& path, const environment& from, std::ostream& out, std::ostream& err) {
  const auto config = load_config(path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  for (const auto& one : config->warnings) err << one << '\n';
  const auto gates = config->redis_gates.size() + config->postgres_gates.size() + config->http_gates.size();
  out << path << ": OK, " << gates << (gates == 1 ? " gate\n" : " gates\n");
  return exit_ok;
}

namespace {

// Exit code 0 when the answer had status 200; else why not stands on `err`.
int judge(const std::string& admin, const std::string& path, const result<int>& status, std::ostream& err) {
  if (!status)
    err << "fencegate: " << admin << path << ": " << status.error().message << '\n';
  else if (*status != 200)
    err << "fencegate: " << admin << path << ": status " << *status << '\n';
  return status && *status == 200 ? exit_ok : exit_failed;
}

std::optional<settings::address> address_of(const std::string& admin, std::ostream& err) {
  const auto address = parse_address(admin);
  if (address) return *address;
  err << "fencegate: --admin: " << address.error().message << '\n';
  return std::nullopt;
}

}  // namespace

int healthcheck(const std::string& admin, const std::string& path, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  return judge(admin, path, get_status(*address, "GET " + path, steady_clock::now() + patience), err);
}

int wait_until_ready(const std::string& admin, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  const auto deadline = steady_clock::now() + patience;
  for (;;) {
    const auto status = get_status(*address, "GET /readyz", steady_clock::now() + answer_patience);
    if ((status && *status == 200) || steady_clock::now() + wait_pause >= deadline)
      return judge(admin, "/readyz", status, err);
    std::this_thread::sleep_for(wait_pause);
  }
}

int quit(const std::string& admin, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  return judge(admin, "/quit", get_status(*address, "POST /quit", steady_clock::now() + patience), err);
}

}  // namespace fencegate::cli
