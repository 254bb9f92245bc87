// The sessions of one gate on one thread.
#pragma once

#include "base/seldom.hpp"
#include "gate/relay/server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
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
  seldom no_tls_logged{std::chrono::seconds(1)};  // of those who knock in vain
};

}  // namespace fencegate::gate
