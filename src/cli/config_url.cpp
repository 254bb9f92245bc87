#include "cli/config_url.hpp"

#include "cli/config_values.hpp"

#include <boost/url/encoding_opts.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

namespace fencegate::cli {
namespace {

constexpr std::uint16_t redis_port = 6379;
constexpr std::uint16_t postgres_port = 5432;
constexpr std::uint16_t http_port = 80, https_port = 443;
constexpr std::string_view http_shape = "write http://host:port, https://host:port or unix:///path";
constexpr std::string_view redis_shape = "write redis://host:port, rediss://host:port or unix:///path";
constexpr std::string_view postgres_shape =
    "write postgres://host:port/database, or postgres:///database?host=/directory for a unix socket";
constexpr std::string_view store_shape = "write redis://host:port, rediss://host:port or postgres://host:port/database";
constexpr std::string_view port_range = "the port must be a number from 1 to 65535";

result<boost::urls::url_view> parse(std::string_view text, std::string_view shape) {
  const auto url = boost::urls::parse_uri({text.data(), text.size()});
  if (!url || !url->has_authority()) return error{"not a URL; " + std::string(shape)};
  if (url->has_port() && url->port_number() == 0) return error{std::string(port_range)};
  return *url;
}

// The host of a TCP URL. Names are taken as written: a percent sign in one has no meaning.
result<std::string> host_of(const boost::urls::url_view& url, std::string_view shape) {
  std::string host(url.encoded_host_address().begin(), url.encoded_host_address().end());
  if (host.empty()) return error{"the host is missing; " + std::string(shape)};
  if (!is_host(host)) return error{"the host is neither an IP address nor a name"};
  return {boost::system::in_place_value, std::move(host)};
}

// Libpq and the protocol take what stands in front of a NUL for the whole.
bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// What may stand behind the "?" of a URL.
struct url_parameters {
  std::optional<std::string> host, port, sslmode, authorities, certificate, key, revoked;
  settings::tls::words called;  // the last four

  // host and port are postgres's, for its unix sockets.
  std::optional<std::string>* find(std::string_view name, bool postgres) {
    const std::array<std::pair<std::string_view, std::optional<std::string>*>, 7> all{
        {{"host", &host},
         {"port", &port},
         {"sslmode", &sslmode},
         {called.authorities, &authorities},
         {called.certificate, &certificate},
         {called.key, &key},
         {called.revoked, &revoked}}};
    const auto at =
        std::find_if(all.begin() + (postgres ? 0 : 2), all.end(), [&](const auto& one) { return one.first == name; });
    return at == all.end() ? nullptr : at->second;
  }
};

std::string all_of(const settings::tls::words& called) {
  return std::string(called.authorities) + ", " + std::string(called.certificate) + ", " + std::string(called.key) +
         " and " + std::string(called.revoked);
}

result<url_parameters> parameters_of(const boost::urls::url_view& url, bool postgres) {
  url_parameters out;
  out.called = postgres ? settings::tls::of_libpq : settings::tls::of_others;
  boost::urls::encoding_opts plus_is_plus;
  plus_is_plus.space_as_plus = false;
  for (const auto& one : url.params(plus_is_plus)) {
    auto* const place = out.find(one.key, postgres);
    if (place == nullptr)
      return error{std::string("only ") + (postgres ? "host, port, " : "") + "sslmode, " + all_of(out.called) +
                   " may stand behind the question mark"};
    if (place->has_value()) return error{"a parameter was given twice"};
    *place = one.value;
  }
  return out;
}

// `unsaid`: what holds where there is no sslmode.
result<settings::tls> tls_of(const url_parameters& given, std::string_view unsaid) {
  using check = settings::tls::check;
  settings::tls out;
  out.called = given.called;
  const std::string mode = given.sslmode.value_or(std::string(unsaid));
  if (mode == "require")
    out.checks = check::nothing;
  else if (mode == "verify-ca")
    out.checks = check::authority;
  else if (mode == "verify-full")
    out.checks = check::name;
  else if (mode == "allow" || mode == "prefer")
    return error{"sslmode=" + mode +
                 " may end in plain text without a word: choose disable, require, verify-ca or verify-full"};
  else if (mode != "disable")
    return error{"sslmode is one of disable, require, verify-ca and verify-full"};
  out.authorities = given.authorities.value_or("");
  out.certificate = given.certificate.value_or("");
  out.key = given.key.value_or("");
  out.revoked = given.revoked.value_or("");
  if (!out.wanted() && (given.authorities || given.certificate || given.key || given.revoked))
    return error{all_of(given.called) + " need an sslmode: there is no TLS without one"};
  if (out.wanted() && given.host) return error{"there is no TLS on a unix socket: leave sslmode out"};
  for (const auto* path : {&out.authorities, &out.certificate, &out.key, &out.revoked})
    if (!path->empty() && (!path->starts_with('/') || has_nul(*path)))
      return error{all_of(given.called) + " are absolute paths of PEM files"};
  const bool verifies = out.checks == check::authority || out.checks == check::name;
  if (verifies && out.authorities.empty())
    return error{"sslmode=" + mode + " needs " + std::string(given.called.authorities) +
                 ", such as /etc/ssl/certs/ca-certificates.crt"};
  if (!verifies && !out.authorities.empty())
    return error{
        "sslmode=require does not look at the server's certificate: choose verify-ca or verify-full, or leave " +
        std::string(given.called.authorities) + " out"};
  if (!verifies && !out.revoked.empty())
    return error{std::string(given.called.revoked) +
                 " needs sslmode=verify-ca or verify-full: nothing is checked without"};
  if (out.certificate.empty() != out.key.empty())
    return error{std::string(given.called.certificate) + " and " + std::string(given.called.key) + " belong together"};
  return out;
}

// Of a URL whose scheme says whether there is TLS. `plain`, `secured`: its two schemes.
result<settings::tls> tls_by_scheme(const boost::urls::url_view& url, std::string_view plain,
                                    std::string_view secured) {
  const auto given = parameters_of(url, false);
  if (!given) return given.error();
  if (url.scheme() == "unix") return error{"there is no TLS on a unix socket, and no query"};
  if (url.scheme() == plain)
    return error{"there is no TLS in " + std::string(plain) + "://: write " + std::string(secured) + "://"};
  if (given->sslmode == "disable") return error{std::string(secured) + ":// is TLS: sslmode=disable has no meaning"};
  return tls_of(*given, "verify-full");
}

result<std::string> database_of(const boost::urls::url_view& url, const std::string& user) {
  constexpr std::size_t name_bytes_max = 63;  // the server cuts what is longer
  const std::string_view written(url.encoded_path().data(), url.encoded_path().size());
  if (written.find('/', 1) != std::string_view::npos)
    return error{"the path is one name, that of the database; a slash in it is written %2F"};
  std::string name = url.path();
  if (!name.empty()) name.erase(0, 1);
  if (name.empty()) name = user.empty() ? "postgres" : user;
  if (has_nul(name) || name.size() > name_bytes_max)
    return error{"the name of the database has a NUL byte in it, or more than 63 bytes"};
  return {boost::system::in_place_value, std::move(name)};
}

result<std::uint16_t> postgres_port_of(const boost::urls::url_view& url, const url_parameters& given) {
  if (url.has_port() && given.port) return error{"the port was given twice"};
  if (url.has_port()) return url.port_number();
  if (!given.port) return postgres_port;
  const auto port = parse_count(*given.port, 1, std::numeric_limits<std::uint16_t>::max());
  if (!port) return error{std::string(port_range)};
  return static_cast<std::uint16_t>(*port);
}

result<settings::address> postgres_address(const boost::urls::url_view& url, const url_parameters& given) {
  const auto port = postgres_port_of(url, given);
  if (!port) return port.error();
  settings::address out;
  if (!given.host) {
    auto host = host_of(url, postgres_shape);
    if (!host) return host.error();
    out.host = std::move(*host);
    out.port = *port;
    return out;
  }
  if (!url.host().empty()) return error{"the host was given twice"};
  if (!given.host->starts_with('/'))
    return error{"host= is the directory of a unix socket, such as host=/var/run/postgresql; " +
                 std::string(postgres_shape)};
  std::string directory = *given.host;
  while (directory.ends_with('/')) directory.pop_back();
  auto socket_path = checked_socket_path(directory + "/.s.PGSQL." + std::to_string(*port));
  if (!socket_path) return socket_path.error();
  out.path = std::move(*socket_path);
  return out;
}

}  // namespace

result<upstream> parse_redis_url(std::string_view text) {
  const auto parsed = parse(text, redis_shape);
  if (!parsed) return parsed.error();
  const auto& url = *parsed;

  upstream out;
  out.control = {url.user(), url.password()};
  const std::string scheme = url.scheme();
  if (url.has_fragment()) return error{"a fragment has no meaning here; " + std::string(redis_shape)};
  if (scheme == "rediss" || url.has_query()) {
    auto secured = tls_by_scheme(url, "redis", "rediss");
    if (!secured) return secured.error();
    out.secured = std::move(*secured);
  }
  const std::string path = url.path();
  if (scheme == "unix") {
    if (!url.host().empty() || url.has_port())
      return error{"a unix socket has no host: write unix:///path, three slashes"};
    auto socket_path = checked_socket_path(path);
    if (!socket_path) return socket_path.error();
    out.where.path = std::move(*socket_path);
    return out;
  }
  if (scheme != "redis" && scheme != "rediss") return error{"the scheme must be redis://, rediss:// or unix://"};
  if (!path.empty() && path != "/")
    return error{"a database number has no meaning here: each client selects its own, and marks live in database 0"};
  auto host = host_of(url, redis_shape);
  if (!host) return host.error();
  out.where.host = std::move(*host);
  out.where.port = url.has_port() ? url.port_number() : redis_port;
  return out;
}

result<upstream> parse_postgres_url(std::string_view text) {
  const auto url = parse(text, postgres_shape);
  if (!url) return url.error();
  const std::string scheme = url->scheme();
  if (scheme != "postgres" && scheme != "postgresql") return error{"the scheme must be postgres://"};
  if (url->has_fragment()) return error{"a fragment has no meaning here; " + std::string(postgres_shape)};
  auto given = parameters_of(*url, true);
  if (!given) return given.error();
  auto secured = tls_of(*given, "disable");
  if (!secured) return secured.error();
  upstream out;
  out.control = {url->user(), url->password()};
  if (has_nul(out.control.user) || has_nul(out.control.password.text()))
    return error{"the user or the password has a NUL byte in it"};
  auto where = postgres_address(*url, *given);
  if (!where) return where.error();
  auto database = database_of(*url, out.control.user);
  if (!database) return database.error();
  out.where = std::move(*where);
  out.database = std::move(*database);
  out.secured = std::move(*secured);
  return out;
}

result<upstream> parse_http_url(std::string_view text) {
  const auto url = parse(text, http_shape);
  if (!url) return url.error();
  const std::string scheme = url->scheme();
  if (url->has_userinfo()) return error{"a user has no meaning here: clients authenticate for themselves"};
  if (url->has_fragment()) return error{"a fragment has no meaning here; " + std::string(http_shape)};
  const std::string path = url->path();
  upstream out;
  if (scheme == "https" || url->has_query()) {
    auto secured = tls_by_scheme(*url, "http", "https");
    if (!secured) return secured.error();
    out.secured = std::move(*secured);
  }
  if (scheme == "unix") {
    if (!url->host().empty() || url->has_port())
      return error{"a unix socket has no host: write unix:///path, three slashes"};
    auto socket_path = checked_socket_path(path);
    if (!socket_path) return socket_path.error();
    out.where.path = std::move(*socket_path);
    return out;
  }
  if (scheme != "http" && scheme != "https") return error{"the scheme must be http://, https:// or unix://"};
  if (!path.empty() && path != "/") return error{"a path has no meaning here: requests keep their own"};
  auto host = host_of(*url, http_shape);
  if (!host) return host.error();
  out.where.host = std::move(*host);
  out.where.port = url->has_port() ? url->port_number() : out.secured.wanted() ? https_port : http_port;
  return out;
}

result<void> check_store_url(std::string_view text) {
  const auto url = parse(text, store_shape);
  if (!url) return url.error();
  const std::string scheme = url->scheme();
  if (scheme != "redis" && scheme != "rediss" && scheme != "postgres" && scheme != "postgresql")
    return error{"a store is redis://, rediss:// or postgres://"};
  const auto host = host_of(*url, store_shape);
  if (!host) return host.error();
  if (scheme != "rediss") return {};
  const auto secured = tls_by_scheme(*url, "redis", scheme);
  return secured ? result<void>() : secured.error();
}

bool is_redis_url(std::string_view url) { return url.starts_with("redis:") || url.starts_with("rediss:"); }

result<upstream> parse_store_url(const settings::store& store) {
  auto out = is_redis_url(store.url) ? parse_redis_url(store.url) : parse_postgres_url(store.url);
  if (out && !store.password.empty()) out->control.password = store.password;
  return out;
}

}  // namespace fencegate::cli
