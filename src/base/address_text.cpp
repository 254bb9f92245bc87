#include "base/address_text.hpp"

#include "base/ascii.hpp"
#include "base/quantity_text.hpp"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

namespace fencegate {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

result<std::uint16_t> parse_port(std::string_view text) {
  const auto port = parse_count(text, 1, std::numeric_limits<std::uint16_t>::max());
  if (!port) return error{"the port must be a number from 1 to 65535"};
  return static_cast<std::uint16_t>(*port);
}

// The one spelling of an IP address, with the scope that one of IPv6 may have; nullopt: it is none.
std::optional<std::string> canonical_ip(const std::string& host) {
  char text[INET6_ADDRSTRLEN];
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return inet_ntop(AF_INET, &v4, text, sizeof text);
  const auto scope = std::min(host.find('%'), host.size());
  if (inet_pton(AF_INET6, host.substr(0, scope).c_str(), &v6) != 1) return std::nullopt;
  // ::ffff:127.0.0.1 is 127.0.0.1 (RFC 4291, section 2.5.5.2).
  constexpr std::size_t v4_at = 12;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return inet_ntop(AF_INET, v6.s6_addr + v4_at, text, sizeof text);
  return inet_ntop(AF_INET6, &v6, text, sizeof text) + host.substr(scope);
}

bool is_every_interface(std::string_view host) { return host == "::" || host == "0.0.0.0"; }

// One spelling for each path: "." and "..", doubled slashes, and links as far as the path exists.
std::filesystem::path canonical_path(const std::string& path) {
  std::error_code failed;
  auto out = std::filesystem::weakly_canonical(path, failed);
  return failed ? std::filesystem::path(path).lexically_normal() : out;
}

// One spelling for each address, so that two spellings of it are found to be the same.
std::string canonical_host(const std::string& host) {
  if (auto ip = canonical_ip(host)) return *ip;
  std::string name;
  for (const char c : host) name += ascii_lower(c);
  return name == "localhost" ? "127.0.0.1" : name;
}

}  // namespace

result<settings::address> parse_address(std::string_view text) {
  constexpr std::string_view unix_prefix = "unix:";
  settings::address out;
  if (text.starts_with(unix_prefix)) {
    auto path = checked_socket_path(text.substr(unix_prefix.size()));
    if (!path) return path.error();
    out.path = std::move(*path);
    return out;
  }
  if (text.find("://") != std::string_view::npos)
    return error{"an address has no scheme: write host:port or unix:/path"};
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return error{"the port is missing: write host:port, :port or unix:/path"};
  const auto port = parse_port(text.substr(colon + 1));
  if (!port) return port.error();
  out.port = *port;

  auto host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  if (is_ipv6 && !bracketed) return error{"an IPv6 address needs brackets, such as [::1]:6380"};
  if (host.empty() && !bracketed) host = "::";
  if (!is_host(host) || (bracketed && !is_ipv6)) return error{"the host is neither an IP address nor a name"};
  out.host = host;
  return out;
}

bool is_host(std::string_view host) {
  constexpr std::size_t dns_name_bytes_max = 253;
  if (host.empty() || host.size() > dns_name_bytes_max) return false;
  // A NUL would hide what follows it from the parser of addresses.
  if (host.find('\0') != std::string_view::npos) return false;
  if (canonical_ip(std::string(host))) return true;
  const auto last_dot = host.rfind('.');
  const auto last_label = host.substr(last_dot == std::string_view::npos ? 0 : last_dot + 1);
  // "10.0.0.256" and "127.1" are wrong addresses, not names.
  if (std::all_of(last_label.begin(), last_label.end(), is_digit)) return false;
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return is_digit(c) || is_letter(c) || c == '_' || c == '-' || c == '.'; }) &&
         host.front() != '.' && host.front() != '-' && host.find("..") == std::string_view::npos;
}

result<std::string> checked_socket_path(std::string_view path) {
  constexpr std::size_t path_bytes_max = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path[0] != '/')
    return error{"the path of a unix socket must be absolute, such as unix:/run/x.sock"};
  if (path.size() > path_bytes_max)
    return error{"the path of a unix socket may have " + std::to_string(path_bytes_max) + " bytes at most"};
  if (path.find('\0') != std::string_view::npos) return error{"the path of a unix socket contains a NUL byte"};
  return {boost::system::in_place_value, path};
}

bool overlap(const settings::address& a, const settings::address& b) {
  if (a.is_unix() || b.is_unix()) return a.is_unix() == b.is_unix() && canonical_path(a.path) == canonical_path(b.path);
  if (a.port != b.port) return false;
  const auto one = canonical_host(a.host), other = canonical_host(b.host);
  return is_every_interface(one) || is_every_interface(other) || one == other;
}

}  // namespace fencegate
