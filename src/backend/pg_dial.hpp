// The way to a PostgreSQL server, without blocking: resolves its name, then connects.
#pragma once

#include "backend/pg_link.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/ip/address.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::backend {

struct pg_target {
  settings::address where;  // a unix socket's path is that of the socket itself
  settings::credentials login;
  std::string database;
  settings::tls secured;

  friend bool operator==(const pg_target&, const pg_target&) = default;
};

// For pg_link::connect. `addresses`: those of the host, which libpq would otherwise resolve, and block; none for a unix
// socket.
[[nodiscard]] pg_link::parameters parameters_of(const pg_target& to,
                                                const std::vector<boost::asio::ip::address>& addresses);

// Connects the link; `done` once, on its thread.
void dial(boost::asio::io_context& context, const std::shared_ptr<pg_link>& link, const pg_target& to,
          std::function<void(const result<void>&)> done);

}  // namespace fencegate::backend
