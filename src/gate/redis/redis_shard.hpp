// What the sessions of one Redis gate on one thread share.
#pragma once

#include "backend/redis_control.hpp"
#include "backend/redis_state.hpp"
#include "gate/redis/share_choice.hpp"
#include "gate/relay/poller.hpp"
#include "gate/relay/rejection_log.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

namespace fencegate::gate {

class redis_shared_link;
class redis_key_watch;

struct redis_shard {
  redis_shard(boost::asio::io_context& io, std::shared_ptr<backend::redis_state> backend_state, rejection_log& log,
              std::shared_ptr<share_choices> all_choices)
      : context(io),
        state(std::move(backend_state)),
        rejections(log),
        choices(std::move(all_choices)),
        control(std::make_shared<backend::redis_control>(io, state)),
        sockets(poller::of(io)),
        snapshot(state->look()) {}

  boost::asio::io_context& context;
  std::shared_ptr<backend::redis_state> state;
  rejection_log& rejections;
  std::shared_ptr<share_choices> choices;  // of all shards of the gate
  std::shared_ptr<backend::redis_control> control;
  poller& sockets;
  // By what opens them; each lives as long as one of its writers.
  std::map<std::string, std::weak_ptr<redis_shared_link>, std::less<>> shared_links;

  std::shared_ptr<redis_key_watch> key_watch;  // once somebody has waited

  backend::redis_state::snapshot snapshot;
  std::uint64_t snapshot_version = 0;
  // A command under way may still use the table with which it began.
  std::deque<std::shared_ptr<const backend::command_table>> retired_tables;
  void refresh() {
    const std::uint64_t now = state->version.load(std::memory_order_acquire);
    if (now == snapshot_version) return;
    snapshot_version = now;
    auto before = snapshot.commands;
    snapshot = state->look();
    if (before == snapshot.commands) return;
    retired_tables.push_back(std::move(before));
    if (retired_tables.size() > 4) retired_tables.pop_front();
  }
};

}  // namespace fencegate::gate
