// The link by which a shard hears that something has come under keys for which its clients wait: Redis tells when a key
// that was read is touched (CLIENT TRACKING). One link for all of them, with the gate's own user, opened when somebody
// waits. It says when it is worth looking; where it cannot say that, clients look for themselves, again and again.
#pragma once

#include "base/byte_queue.hpp"
#include "gate/redis/key_waiters.hpp"
#include "gate/redis/redis_shard.hpp"
#include "gate/relay/link_owner.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace fencegate::wire {
struct reply_value;
}

namespace fencegate::gate {

class redis_key_watch final : public link_owner {
 public:
  explicit redis_key_watch(redis_shard& shard)
      : link_owner(shard.context, shard.sockets, shard.state->tls), shard_(shard) {}

  // As key_waiters.
  [[nodiscard]] bool wait(key_waiter& who, int database, const std::vector<std::string>& keys);
  void leave(key_waiter& who);
  void on_tick(time_point now);
  void stop();

 private:
  void on_ready() override;
  void after_event() override;
  void open();
  void greet();
  void read();
  void take(const wire::reply_value& said);
  void fail(std::string_view why);

  redis_shard& shard_;
  key_waiters waiters_;
  byte_queue in_;
  std::string out_;
  bool opening_ = false;
  bool up_ = false;
  enum class answer_to : std::uint8_t { greeting, tracking, select, question };
  std::deque<answer_to> awaited_;
  int database_ = 0;  // behind what was sent
  time_point opened_{};
  time_point moved_{};  // while there is something to be answered
  time_point not_before_{};
};

}  // namespace fencegate::gate
