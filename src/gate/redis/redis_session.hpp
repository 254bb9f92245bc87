// One client connection of a Redis gate and its backend link: moves bytes between the sockets and the engine, with limits
// in both directions. It decides nothing about commands.
#pragma once

#include "gate/redis/key_waiters.hpp"
#include "gate/redis/redis_engine.hpp"
#include "gate/redis/redis_host.hpp"
#include "gate/redis/redis_shared_link.hpp"
#include "gate/redis/shared_writes.hpp"
#include "gate/relay/relay_session.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::gate {

class redis_session final : public relay_session,
                            public redis_host<redis_session>,
                            public shared_writer,
                            private key_waiter {
 public:
  redis_session(redis_shard& shard, client_link client, session_ended ended, bound_tag tag);

  void on_tick(time_point now) override;
  bool announce_end() override {
    ends_soon_ = connected_;  // who is not served yet has not asked for anything either
    return true;
  }
  void drain() override;

 private:
  friend class redis_host<redis_session>;

  // engine_host
  [[nodiscard]] bool sharing_pays(const session_profile& mine, bool at_once) override;
  void own_write_answered() override { note_answer(way::own); }
  [[nodiscard]] bool share(const session_profile& mine, std::string_view command, const batched& as) override;
  [[nodiscard]] bool turns_away() const override;
  [[nodiscard]] bool holds_back() const override;
  [[nodiscard]] bool wait_for_keys(int database, const std::vector<std::string>& keys) override;
  [[nodiscard]] std::optional<std::string> take_room(const fence::claims_list& tag) override {
    return relay_session::take_room(tag);
  }
  void report(const fence::rejection& why, std::string_view command, bool monitor) override;
  void on_timer() { engine_.on_timer(); }

  // key_waiter
  void on_key() override;
  void stop_waiting();

  // shared_writer
  void on_shared(std::optional<std::string_view> answer) override;
  void on_shared_lost() override;
  [[nodiscard]] bool gone() const override { return closed_; }

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

  enum class way : std::uint8_t { none, own, shared };
  void note_write(way how);
  void note_answer(way how);
  void send_to_server();
  void end_with_server();
  void on_connect_failed(const std::string& why);

  const bound_tag tag_;
  redis_engine engine_;
  bool waits_for_keys_ = false;
  std::shared_ptr<redis_shared_link> shared_;
  way small_write_ = way::none;  // that is under way
  time_point small_write_read_;
  bool small_write_at_once_ = false;
  bool connected_ = false;
  bool server_has_spoken_ = false;
  std::string connect_problem_;
  bool ends_soon_ = false;
  bool asked_last_ = false;  // since: it ends right behind an answer, when its client is not about to ask again
  bool draining_ = false;
  bool backend_told_ = false;  // that the client has ended
  time_point began_;           // or when the last whole command was read
  time_point last_heard_;
  time_point link_used_{};
  time_point client_ended_{};
  time_point turned_away_{};
};

}  // namespace fencegate::gate
