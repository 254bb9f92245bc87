// A link to Redis that carries small writes of many sessions of one thread: those with the same user, database and protocol,
// under any tags. It exists while such sessions do, and is opened when it pays. Their own links stay theirs.
#pragma once

#include "base/limits.hpp"
#include "gate/redis/redis_host.hpp"
#include "gate/redis/share_choice.hpp"
#include "gate/redis/shared_writes.hpp"
#include "gate/relay/link_owner.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::gate {

class redis_shared_link final : public link_owner, public redis_host<redis_shared_link> {
 public:
  redis_shared_link(redis_shard& shard, const session_profile& like);
  // The shard's link for such writers.
  [[nodiscard]] static std::shared_ptr<redis_shared_link> of(redis_shard& shard, const session_profile& like);

  [[nodiscard]] bool is_like(const session_profile& other) const { return group_ == other.group(); }
  // A session that could use it has come, or has gone. The last one takes the link with it.
  void join();
  void leave();
  // The next write should go over it.
  [[nodiscard]] bool pays(time_point read_at);
  // False: the link is not open, has enough to do, does not move or leads elsewhere; the writer uses its own. True: it hears
  // of the write. REQUIRES: pays(), and `mine` has a server.
  [[nodiscard]] bool send(const session_profile& mine, std::string_view command, const batched& as,
                          std::weak_ptr<shared_writer> from, time_point read_at);
  // How small writes of its sessions go, over it or not.
  [[nodiscard]] share_choice& choice() { return *choice_; }
  // True: the write was not sent, and its writer sends it.
  [[nodiscard]] bool take_back(const shared_writer& from) { return writes_ != nullptr && writes_->take_back(from); }
  void on_tick(time_point now);

 private:
  friend class redis_host<redis_shared_link>;

  // engine_host: the writers judge again what was rejected here, and report it.
  void report(const fence::rejection& /*why*/, std::string_view /*command*/, bool /*monitor*/) override {}

  // As link_owner's, but what is meant for an engine that has failed since does not reach the next one; and an answer that
  // comes at once leaves what follows from it to the event that has asked for it.
  template <class Call>
  auto later(Call call) {
    return [self = std::static_pointer_cast<redis_shared_link>(shared_from_this()), mine = attempt(),
            call = std::move(call)](auto&&... answer) {
      if (self->closed_ || mine != self->attempt()) return;
      self->in_event([&] { call(std::forward<decltype(answer)>(answer)...); });
    };
  }
  template <class Call>
  void in_event(Call call) {
    if (busy_) {
      again_ = true;
      return call();
    }
    busy_ = true;
    before_event();
    call();
    busy_ = false;
    after_event();
  }

  void on_ready() override;
  void read();
  void before_event() override { shard_.refresh(); }
  void after_event() override;
  void on_timer() {}
  void open(const session_profile& like);
  void fail(std::string_view why);
  [[nodiscard]] bool is_always() const;
  [[nodiscard]] bool is_unused(time_point at) const;
  void close_idle();
  void send_batch();
  void note_progress();

  const std::string group_;
  const std::shared_ptr<share_choice> choice_;
  session_profile like_;                   // of the last one that has opened it
  std::unique_ptr<shared_writes> writes_;  // while there is a link
  bool opening_ = false;
  bool refused_ = false;  // the server does not let its user do what it takes
  bool busy_ = false;     // the engine is at work, or its answers are handed out
  bool again_ = false;    // and something has happened meanwhile
  std::size_t members_ = 0;
  time_point opened_{};
  time_point not_before_{};
  time_point used_{};
  std::chrono::seconds pause_ = limits::shared_link_pause_min;
  std::uint64_t answered_ = 0;
  time_point moved_{};          // while there are writes: when the last one was answered, or the first one came
  time_point asked_at_{};       // when the first of what it has said nothing since was sent
  time_point oldest_unsent_{};  // when the first write that was not sent yet was read
};

}  // namespace fencegate::gate
