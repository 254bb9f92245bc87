// `fencegate hold RESOURCE[,…] -- COMMAND`: runs an unchanged program under a lease, whose tokens are in its environment.
#pragma once

#include "cli/config.hpp"

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::cli {

struct hold_request {
  std::string path;       // of the configuration; "": a sidecar is asked
  std::string api;        // where it answers: "unix:/path", "http://127.0.0.1:9181"; "": its default socket
  std::string resources;  // "orders" or "orders,payments"
  std::string issuer;     // "" = as the configuration says
  std::optional<std::chrono::milliseconds> ttl{};
  std::optional<std::chrono::milliseconds> wait{};  // nullopt: for ever
  std::optional<int> busy_exit{};
  std::chrono::milliseconds at_least{0};
  std::optional<std::chrono::milliseconds> max_run{};
  std::optional<std::chrono::milliseconds> stop_grace{};
  std::string result_file;
  std::vector<std::string> command;
};

// Returns the exit status of the process (hold/exit_status.hpp). REQUIRES: this process has one thread.
[[nodiscard]] int hold(const hold_request& request, const environment& from, std::ostream& err);

}  // namespace fencegate::cli
