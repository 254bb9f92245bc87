#include "cli/config_url.hpp"

#include "cli/config_values.hpp"

// Debian has no library of Boost.URL; this is the one file that holds its code.
#include <boost/url/src.hpp>
#include <boost/url/url_view.hpp>

#include <string>

namespace fencegate::cli {
namespace {

constexpr std::uint16_t redis_port = 6379;
constexpr std::string_view shape = "write redis://host:port or unix:///path";

error tls_unsupported() {
  return error{"TLS to the backend is not supported yet: use redis:// on a trusted network or through a local tunnel"};
}

result<boost::urls::url_view> parse(std::string_view text) {
  const auto url = boost::urls::parse_uri({text.data(), text.size()});
  if (!url || !url->has_authority()) return error{"not a URL; " + std::string(shape)};
  if (url->has_port() && url->port_number() == 0) return error{"the port must be a number from 1 to 65535"};
  return *url;
}

// The host of a TCP URL. Names are taken as written: a percent sign in one has no meaning.
result<std::string> host_of(const boost::urls::url_view& url) {
  std::string host(url.encoded_host_address().begin(), url.encoded_host_address().end());
  if (host.empty()) return error{"the host is missing; " + std::string(shape)};
  if (!is_host(host)) return error{"the host is neither an IP address nor a name"};
  return {boost::system::in_place_value, std::move(host)};
}

}  // namespace

result<upstream> parse_redis_url(std::string_view text) {
  const auto parsed = parse(text);
  if (!parsed) return parsed.error();
  const auto& url = *parsed;

  upstream out;
  out.control = {url.user(), url.password()};
  const std::string scheme = url.scheme();
  if (scheme == "rediss") return tls_unsupported();
  if (url.has_query() || url.has_fragment())
    return error{"a query or fragment has no meaning here; " + std::string(shape)};
  const std::string path = url.path();
  if (scheme == "unix") {
    if (!url.host().empty() || url.has_port())
      return error{"a unix socket has no host: write unix:///path, three slashes"};
    auto socket_path = checked_socket_path(path);
    if (!socket_path) return socket_path.error();
    out.where.path = std::move(*socket_path);
    return out;
  }
  if (scheme != "redis") return error{"the scheme must be redis:// or unix://"};
  if (!path.empty() && path != "/")
    return error{"a database number has no meaning here: each client selects its own, and marks live in database 0"};
  auto host = host_of(url);
  if (!host) return host.error();
  out.where.host = std::move(*host);
  out.where.port = url.has_port() ? url.port_number() : redis_port;
  return out;
}

result<void> check_store_url(std::string_view text) {
  const auto url = parse(text);
  if (!url) return url.error();
  const std::string scheme = url->scheme();
  if (scheme == "rediss") return tls_unsupported();
  if (scheme != "redis" && scheme != "postgres" && scheme != "postgresql")
    return error{"a store is redis:// or postgres://"};
  const auto host = host_of(*url);
  if (!host) return host.error();
  return {};
}

}  // namespace fencegate::cli
