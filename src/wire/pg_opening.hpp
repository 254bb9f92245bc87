// The first packet of a PostgreSQL connection, which has no type byte: StartupMessage, SSLRequest, GSSENCRequest or
// CancelRequest; and the `options` parameter in it. (https://www.postgresql.org/docs/15/protocol-message-formats.html,
// postmaster.c ProcessStartupPacket, postinit.c pg_split_opts)
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::wire {

struct pg_opening {
  enum class kind : std::uint8_t { start, ssl, gss, cancel };
  kind what = kind::start;
  std::size_t bytes = 0;                                        // of the input
  std::uint32_t version = 0;                                    // start: (major << 16) | minor, major is always 3
  std::vector<std::pair<std::string, std::string>> parameters;  // start: in their order, names may repeat
  std::string session;                                          // cancel: process id and secret, as in BackendKeyData

  // The last parameter of this name, as the server takes it; nullopt: there is none. `user`, `database`, `options`,
  // `replication` and `_pq_.*` compare exactly, all others are settings and compare without case.
  [[nodiscard]] std::optional<std::string_view> parameter(std::string_view name) const;
};

// nullopt: more bytes are needed. Errors name what is wrong: not PostgreSQL's protocol (TLS without SSLRequest, HTTP, …),
// protocol 2, a length outside 8 … 10,000, a cancel key outside 4 … 256 bytes, parameters without their terminators,
// bytes behind the last terminator, a name that is empty.
[[nodiscard]] result<std::optional<pg_opening>> decode_pg_opening(std::string_view input);

// What a connection begins with, by its first bytes; nullopt: not PostgreSQL's protocol, or protocol 2. REQUIRES: so many bytes.
inline constexpr std::size_t pg_opening_head_bytes = 8;
[[nodiscard]] std::optional<pg_opening::kind> kind_of_pg_opening(std::string_view head);

// NUL bytes in names and values end them there. REQUIRES: no name is empty.
[[nodiscard]] std::string encode_pg_start(std::uint32_t version,
                                          const std::vector<std::pair<std::string, std::string>>& parameters);

// One setting in `options`: `-c name=value`, `-cname=value` or `--name=value`. In a name `-` means `_`, names compare
// without case, as the server does it.
struct pg_option {
  std::string name;  // lower case, with `_`
  std::string value;
};

// What the server makes of `options`: words at blanks, a backslash takes the next character as it is. What is no setting
// (`-B 20`, `-f …`) is left out.
[[nodiscard]] std::vector<pg_option> pg_settings_in_options(std::string_view options);
// The same words without the settings of this name; every other word stays byte for byte, one blank between them.
[[nodiscard]] std::string pg_options_without(std::string_view options, std::string_view name);

}  // namespace fencegate::wire
