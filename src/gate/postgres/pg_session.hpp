// One client connection of a PostgreSQL gate and its link to the server: moves bytes between the sockets and the engine,
// with limits in both directions. It decides nothing about messages.
#pragma once

#include "backend/pg_control.hpp"
#include "gate/postgres/cancel_routes.hpp"
#include "gate/postgres/pg_engine.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/relay_session.hpp"
#include "gate/relay/waiting_room.hpp"

#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace fencegate::gate {

// What the sessions of one gate on one thread share.
struct pg_shard {
  boost::asio::io_context& context;
  const settings::postgres_gate& gate;
  metrics::gate& stats;
  rejection_log& rejections;
  std::shared_ptr<backend::pg_control> control;
  poller& sockets;
  std::shared_ptr<backend::tls_context> tls;  // of the links to the server; nullptr: they are plain text
  std::shared_ptr<cancel_routes> cancels;     // of all threads
  std::shared_ptr<waiting_room> waiting;      // the same
};

class pg_session final : public relay_session, public pg_host {
 public:
  pg_session(pg_shard& shard, client_link client, session_ended ended, bound_tag tag);

  void on_tick(time_point now) override;
  bool announce_end() override;
  void drain() override;
  void cut() override;

 private:
  enum class link : std::uint8_t { none, connecting, open };

  // pg_host
  void connect(const std::string& cancels) override;
  void has_key(const std::string& key) override;
  bool shows_servers_certificate() const override { return client_.socket.has_certificate_of(backend_.socket); }
  void ended(const std::string& database, std::int32_t pid,
             std::function<void(std::optional<std::vector<backend::ended_registration>>)> done) override;
  void look(const std::string& database, const claims_list& claims,
            std::function<void(std::optional<backend::found_marks>)> done) override;
  void raise(const std::string& database, const claims_list& claims,
             std::function<void(backend::pg_raise_result)> done) override;
  void raise_ahead(const std::string& database, const claims_list& claims,
                   std::function<void(backend::pg_raise_result)> done) override;
  std::optional<fence::token> seen(const std::string& database, const std::string& resource) const override;
  void saw(const std::string& database, const backend::found_mark& found) override;
  void went_back(const std::string& database, const backend::found_mark& to) override;
  void set_timer(std::chrono::milliseconds delay) override;
  time_point now() const override { return std::chrono::steady_clock::now(); }
  std::optional<std::string> take_room(const claims_list& tag) override { return relay_session::take_room(tag); }
  void report(const fence::rejection& why, std::string_view command, bool monitor) override;
  void report_cut(const fence::rejection& why, applied certain) override;

  // relay_session
  void on_client_bytes(std::string_view bytes) override;
  void on_backend_bytes(std::string_view bytes) override;
  void on_end(peer& of, const boost::system::error_code& why) override;
  void after_event() override;
  [[nodiscard]] bool wants_client() const override;
  [[nodiscard]] bool wants_backend() const override;
  void on_close() override;

  void secure(const std::shared_ptr<stream::socket>& fresh, const backend::tls_opened& done) override;

  void on_connect_failed(const std::string& why);
  void drop_link();
  void forget_key();
  void wait_in_room();

  pg_shard& shard_;
  const bound_tag tag_;
  pg_engine engine_;
  boost::asio::steady_timer timer_;
  const std::shared_ptr<std::atomic<bool>> left_ =
      std::make_shared<std::atomic<bool>>(false);  // the client, for raises
  link link_ = link::none;
  std::string key_;          // as it stands in shard_.cancels
  std::uint64_t place_ = 0;  // in shard_.waiting
  time_point began_;
  time_point last_heard_;
};

}  // namespace fencegate::gate
