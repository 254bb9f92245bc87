#include "cli/file_limit.hpp"

#include "base/log.hpp"

#include <sys/resource.h>

#include <cstdint>
#include <numeric>

namespace fencegate::cli {
namespace {

// Of each client: its own connection, and that to the server behind the gate.
constexpr std::uint64_t files_of_client = 2;

template <class Gates>
std::uint64_t clients_of(const Gates& gates) {
  return std::accumulate(gates.begin(), gates.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& one) { return sum + one.connections_max; });
}

}  // namespace

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &files));
}

void compare_file_limit(const settings::process& config) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const auto wanted = files_of_client * (clients_of(config.redis_gates) + clients_of(config.postgres_gates) +
                                         clients_of(config.http_gates));
  if (files.rlim_cur >= wanted) return;
  log::event()
      .add("limit", static_cast<std::int64_t>(files.rlim_cur))
      .add("wanted", static_cast<std::int64_t>(wanted))
      .add("detail",
           "each client takes two, and connections_max of the gates allows more clients: raise the hard limit "
           "(ulimit -Hn), or lower connections_max")
      .write(log::level::warn, "too few file descriptors");
}

}  // namespace fencegate::cli
