// The configuration as the gates use it: plain structs, already validated. config/fencegate.yaml says what each key
// means to an operator; the reader is cli/config.hpp.
#pragma once

#include "base/secret.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::settings {

// Where to listen or connect: TCP "host:port" or a unix socket path.
struct address {
  std::string host;  // name or IP, an IPv6 address without brackets, "::" for every interface; empty for a unix socket
  std::uint16_t port = 0;
  std::string path;  // unix socket path, absolute; empty for TCP

  [[nodiscard]] bool is_unix() const { return !path.empty(); }
  friend bool operator==(const address&, const address&) = default;
};

// "127.0.0.1:6380", "[::1]:6380" or "unix:/path", as a configuration has it.
[[nodiscard]] inline std::string to_string(const address& a) {
  if (a.is_unix()) return "unix:" + a.path;
  const bool is_ipv6 = a.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + a.host + "]" : a.host) + ":" + std::to_string(a.port);
}

// A database that holds marks for gates that cannot keep them in their own upstream.
struct store {
  std::string name;
  std::string url;        // redis:// or postgres://; may hold a password: never to be logged
  secret password;        // of a file; none = that of the URL, if it has one
  std::size_t pool = 10;  // postgres only: connections at the same time; at least 2

  friend bool operator==(const store&, const store&) = default;
};

enum class log_level : std::uint8_t { debug, info, warn, error };
enum class log_format : std::uint8_t { json, text };

}  // namespace fencegate::settings
