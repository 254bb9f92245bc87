// The configuration as the gates use it: plain structs, already validated. config/fencegate.yaml says what each key
// means to an operator; the reader is cli/config.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::settings {

// Where to listen or connect: TCP "host:port" or a unix socket path.
struct address {
  std::string host;  // name or IP; empty for a unix socket
  std::uint16_t port = 0;
  std::string path;  // unix socket path; empty for TCP

  [[nodiscard]] bool is_unix() const { return !path.empty(); }
};

enum class log_level : std::uint8_t { debug, info, warn, error };
enum class log_format : std::uint8_t { json, text };

}  // namespace fencegate::settings
