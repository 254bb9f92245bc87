// The URLs of backends: what they may contain, and what a URL that is fine elsewhere means nothing here.
// Errors never repeat the URL: it may hold a password.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <string>
#include <string_view>

namespace fencegate::cli {

struct upstream {
  settings::address where;
  settings::credentials control;
  std::string database;  // "" for redis
  settings::tls secured;
};

// TLS is asked for in one way, whatever the scheme: `sslmode=require`, `verify-ca` or `verify-full`, with `cafile`, `cert` and
// `key`, which for PostgreSQL are libpq's `sslrootcert`, `sslcert` and `sslkey`. Where the scheme says that there is TLS, sslmode is verify-full when left out.

// "redis://[[user]:password@]host[:port]" (port 6379 when left out), "rediss://…[?cafile=…]" for TLS, or
// "unix://[[user]:password@]/path". A user without a password is let through: the password may come from a file.
[[nodiscard]] result<upstream> parse_redis_url(std::string_view text);

// "postgres://[user[:password]@]host[:port][/database]", or for a unix socket
// "postgres://[user[:password]@]/[database]?host=/directory[&port=…]", whose path is then that of the socket itself,
// "/directory/.s.PGSQL.5432". Port 5432 when left out; the database is by default named as the user, or "postgres"
// where there is none. A user without a password is fine: the server decides what it asks for. There is no TLS by
// default. What may end up in plain text (`allow`, `prefer`) is an error.
[[nodiscard]] result<upstream> parse_postgres_url(std::string_view text);

// "http://host[:port]" (port 80 when left out), "https://host[:port][?cafile=…]" (443), or "unix:///path": where requests
// are forwarded to.
[[nodiscard]] result<upstream> parse_http_url(std::string_view text);

// Errors: not the shape of a URL that a store can have (redis://, rediss:// or postgres://, with a host).
[[nodiscard]] result<void> check_store_url(std::string_view text);

[[nodiscard]] bool is_redis_url(std::string_view url);

// Where it is, with its password wherever that came from. REQUIRES: its URL was checked.
[[nodiscard]] result<upstream> parse_store_url(const settings::store& store);

}  // namespace fencegate::cli
