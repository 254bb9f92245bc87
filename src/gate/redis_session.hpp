// One client connection of a Redis gate and its backend link: moves bytes between the sockets and the engine, with limits
// in both directions. It decides nothing about commands.
#pragma once

#include "backend/redis_control.hpp"
#include "backend/redis_state.hpp"
#include "gate/redis_engine.hpp"
#include "gate/rejection_log.hpp"
#include "gate/relay_session.hpp"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::gate {

// What the sessions of one gate on one thread share.
struct redis_shard {
  redis_shard(boost::asio::io_context& io, std::shared_ptr<backend::redis_state> backend_state, rejection_log& log)
      : context(io),
        state(std::move(backend_state)),
        rejections(log),
        control(std::make_shared<backend::redis_control>(io, state)),
        sockets(poller::of(io)),
        picture(state->look()) {}

  boost::asio::io_context& context;
  std::shared_ptr<backend::redis_state> state;
  rejection_log& rejections;
  std::shared_ptr<backend::redis_control> control;
  poller& sockets;

  backend::redis_state::picture picture;
  std::uint64_t picture_version = 0;
  // A command under way may still use the table with which it began.
  std::deque<std::shared_ptr<const backend::command_table>> retired_tables;
  void refresh() {
    const std::uint64_t now = state->version.load(std::memory_order_acquire);
    if (now == picture_version) return;
    picture_version = now;
    auto before = picture.commands;
    picture = state->look();
    if (before == picture.commands) return;
    retired_tables.push_back(std::move(before));
    if (retired_tables.size() > 4) retired_tables.pop_front();
  }
};

class redis_session final : public relay_session, public engine_host {
 public:
  redis_session(redis_shard& shard, stream::socket client, std::string client_address, session_ended ended);

  void on_tick(time_point now) override;
  void drain() override;

 private:
  // engine_host
  const backend::redis_state::picture& picture() const override { return shard_.picture; }
  void raise(std::shared_ptr<backend::mark_cell> cell, fence::token wanted, std::int64_t max_step,
             backend::raise_callback done) override;
  void read_mark(std::shared_ptr<backend::mark_cell> cell,
                 std::function<void(const backend::mark_reading&)> done) override;
  void keys_of(const std::vector<std::string>& arguments,
               std::function<void(std::optional<std::vector<std::string>>)> done) override;
  void recheck(std::function<void()> done) override;
  void set_timer(std::chrono::milliseconds delay) override;
  time_point now() const override { return std::chrono::steady_clock::now(); }
  void report(const fence::rejection& why, std::string_view command, bool monitor) override;

  // relay_session
  void on_started() override;
  void before_event() override { shard_.refresh(); }
  void on_client_bytes(std::string_view bytes) override;
  void on_backend_bytes(std::string_view bytes) override;
  void on_end(peer& of, const boost::system::error_code& why) override;
  void after_event() override;
  [[nodiscard]] bool wants_client() const override;
  [[nodiscard]] bool wants_backend() const override;
  void on_close() override;

  void on_connect_failed(const std::string& why);

  redis_shard& shard_;
  redis_engine engine_;
  std::unique_ptr<boost::asio::steady_timer> timer_;
  bool connected_ = false;
  std::string connect_problem_;
  bool draining_ = false;
  bool backend_told_ = false;  // that the client has ended
  time_point began_;           // or when the last whole command was read
  time_point last_heard_;
  time_point bytes_read_at_{};
  time_point client_ended_{};
};

}  // namespace fencegate::gate
