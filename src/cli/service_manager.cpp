#include "cli/service_manager.hpp"

#include "base/log.hpp"
#include "hold/descriptor.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <time.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace fencegate::cli {
namespace {

// For a manager that does not read: it stands still, too, or something else has the socket.
constexpr timeval patience{.tv_sec = 2, .tv_usec = 0};
// Above the longest drain: what the process still does then, such as the release of its leases.
constexpr std::chrono::seconds after_drain{10};

void tell(std::string_view state) {
  const char* address = std::getenv("NOTIFY_SOCKET");
  if (address == nullptr || *address == '\0') return;
  if (const auto told = notify(address, state); !told)
    log::write(log::level::warn, "the service manager is not told", {{"detail", told.error().message}});
}

}  // namespace

void tell_ready() { tell("READY=1\nSTATUS=its gates listen"); }

void tell_reloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t microseconds = std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds) + "\nSTATUS=reads its configuration");
}

void tell_stopping(std::chrono::milliseconds longest) {
  const std::chrono::microseconds limit = longest + after_drain;
  tell("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=" + std::to_string(limit.count()));
}

result<void> notify(const std::string& address, std::string_view state) {
  const auto failed = [&](const char* why) { return error{"NOTIFY_SOCKET " + address + ": " + why}; };
  sockaddr_un to{};
  if (!address.starts_with('/') && !address.starts_with('@')) return failed("neither a path nor an abstract name");
  if (address.size() >= sizeof to.sun_path) return failed("too long");
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address.data(), address.size());
  // A name has no end but its length.
  const auto size = offsetof(sockaddr_un, sun_path) + address.size() + (address.starts_with('/') ? 1 : 0);
  if (address.starts_with('@')) to.sun_path[0] = '\0';
  const hold::descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return failed(std::strerror(errno));
  static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience));
  const auto sent = ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(size));
  if (sent != static_cast<ssize_t>(state.size())) return failed(std::strerror(errno));
  return {};
}

}  // namespace fencegate::cli
