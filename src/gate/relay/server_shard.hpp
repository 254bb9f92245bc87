// The sessions of one gate on one thread.
#pragma once

#include "gate/relay/server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>

namespace fencegate::gate {

struct server::shard {
  shard(boost::asio::io_context& io, std::unique_ptr<protocol_shard> spoken)
      : context(io), common(std::move(spoken)), ticker(io) {}

  boost::asio::io_context& context;
  std::unique_ptr<protocol_shard> common;
  std::unordered_set<std::shared_ptr<session>> sessions;
  boost::asio::steady_timer ticker;
  bool announced = false, draining = false;  // to all sessions: announce_end(), drain()
  bool stopped = false;
  std::chrono::steady_clock::time_point no_tls_logged{};
  std::uint64_t no_tls_since = 0;  // that were not logged
};

}  // namespace fencegate::gate
