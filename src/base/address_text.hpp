// Where to listen and to connect, as configurations and command lines have it. Pure; errors say what is wrong with the text,
// the caller knows where it stands.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"

#include <string>
#include <string_view>

namespace fencegate {

// "127.0.0.1:6380", "[::1]:6380", "localhost:6380", ":6380" (every interface) or "unix:/path".
[[nodiscard]] result<settings::address> parse_address(std::string_view text);

// An IP address or a DNS name; IPv6 without brackets.
[[nodiscard]] bool is_host(std::string_view host);
// An absolute path that fits into sockaddr_un.
[[nodiscard]] result<std::string> checked_socket_path(std::string_view path);

// True when two listeners on these addresses would get into each other's way, or one is the other.
[[nodiscard]] bool overlap(const settings::address& a, const settings::address& b);

}  // namespace fencegate
