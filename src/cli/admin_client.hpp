// One question to the admin listener of a running fencegate, for commands: it blocks, and does not know the configuration.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace fencegate::cli {

struct admin_address {
  settings::address where;
  settings::tls secured;  // not wanted: in plain text
};

// "host:port", "unix:/path", or "https://host:port[?cafile=F][&cert=F&key=F]" as URLs of HTTP services are.
[[nodiscard]] result<admin_address> parse_admin_address(std::string_view text);

// The status of its answer to `asked`, method and path: "GET /livez". 0: what came is no HTTP.
[[nodiscard]] result<int> admin_status(const admin_address& from, std::string_view asked,
                                       std::chrono::steady_clock::time_point deadline);

// The whole answer; it ends with the connection.
struct admin_answer {
  int status = 0;
  std::string body;
};
[[nodiscard]] result<admin_answer> admin_ask(const admin_address& from, std::string_view asked,
                                             std::chrono::steady_clock::time_point deadline);

}  // namespace fencegate::cli
