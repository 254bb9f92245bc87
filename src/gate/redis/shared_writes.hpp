// Small writes of many connections under one tag, as one client's pipeline: one arm and one EXEC for all that is under way
// at the same time. I/O-free: gate/redis/redis_shared_link.hpp has the socket.
//
// It is an armed link like a session's, bound to the same token by the same user in the same database, so the rule is kept
// where it always is. What it did not apply is not answered here: it goes back to its writer, who judges it anew and sends
// it on its own link.
#pragma once

#include "gate/redis/armed_link.hpp"
#include "gate/redis/claims.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::gate {

// A connection whose write went to a shared link.
class shared_writer {
 public:
  // Redis' answer, whole. nullopt: certainly not applied, and to be sent on the writer's own link.
  virtual void on_shared(std::optional<std::string_view> answer) = 0;
  // The link has gone with the write in flight: its outcome is unknown.
  virtual void on_shared_lost() = 0;
  // Nobody waits for the write any more: it is not sent if it was not sent yet.
  [[nodiscard]] virtual bool gone() const = 0;

 protected:
  ~shared_writer() = default;
};

class shared_writes final : private link_user {
 public:
  // Says at once what makes the link like its writers'.
  shared_writes(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks, metrics::gate& stats,
                const session_profile& like);

  // What the server says, and that it says nothing more.
  void on_backend_bytes(std::string_view bytes);
  void on_backend_end() { link_.close(); }
  [[nodiscard]] std::string& to_backend() { return link_.out; }
  // Every command that made the link like its writers' was answered without an error.
  [[nodiscard]] bool ready() const { return greetings_left_ == 0 && !broken_; }
  // It is of no use any more: end() and a new one.
  [[nodiscard]] bool broken() const { return broken_ || link_.closed(); }
  // Why the server does none of those commands for this user, now or later; "": it does, or does not say so.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] bool idle() const { return sent_.empty() && waiting_.empty() && told_.empty(); }
  [[nodiscard]] std::size_t waiting_bytes() const { return waiting_bytes_.size(); }
  // How many were answered so far, in any way.
  [[nodiscard]] std::uint64_t answered() const { return answered_; }

  // REQUIRES: ready(), and one whole command that was inspected by its writer's engine. feed() sends it.
  void add(std::string_view command, const batched& as, std::weak_ptr<shared_writer> from);
  // Sends what waits, if that can be done at once, else arms the link.
  void feed();
  // True: it was not sent, and will not be.
  [[nodiscard]] bool take_back(const shared_writer& from);
  // What was not sent goes back to its writers.
  void give_back();
  // Hands out what Redis has answered. Writers may add() meanwhile.
  void hand_out();
  // The link has gone. What was not sent goes back. REQUIRES: hand_out().
  void end();

 private:
  struct write {
    std::weak_ptr<shared_writer> from;
    batched as;
  };
  struct outcome {
    std::weak_ptr<shared_writer> to;
    std::optional<std::string> answer;  // nullopt: not applied
  };

  void on_batch() override;
  void on_reply(const expectation& front, const wire::reply_head& head) override;
  void on_reply_end(awaits what, std::string text) override;
  void resume() override {}  // whoever owns it feeds it behind each event
  [[nodiscard]] bool is_held();
  [[nodiscard]] bool arm();
  void read_answers();
  void tell(std::optional<std::string> answer);

  engine_host& host_;
  metrics::gate& stats_;
  claims claims_;
  std::string answers_;  // to what was sent, in its order
  armed_link link_;
  std::deque<std::weak_ptr<shared_writer>> sent_;  // of the batch in flight, those that were not answered yet
  std::deque<outcome> told_;                       // to be handed out
  std::deque<write> waiting_;                      // for the batch under way
  std::string waiting_bytes_;
  std::size_t greetings_left_;
  std::string server_;   // that the link has to lead to
  bool arming_ = false;  // what waits, waits for that
  std::uint64_t answered_ = 0;
  bool broken_ = false;
  std::string refusal_;
};

}  // namespace fencegate::gate
