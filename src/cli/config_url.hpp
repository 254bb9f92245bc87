// The URLs of backends: what they may contain, and what a URL that is fine elsewhere means nothing here.
// Errors never repeat the URL: it may hold a password.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <string_view>

namespace fencegate::cli {

struct upstream {
  settings::address where;
  settings::credentials control;
};

// "redis://[[user]:password@]host[:port]" (port 6379 when left out) or "unix://[[user]:password@]/path". A user without
// a password is let through: the password may come from a file.
[[nodiscard]] result<upstream> parse_redis_url(std::string_view text);

// Errors: not the shape of a URL that a store can have (redis:// or postgres://, with a host).
[[nodiscard]] result<void> check_store_url(std::string_view text);

}  // namespace fencegate::cli
