// Small writes of many connections, as one client's pipeline: one arm and one EXEC for all that is under way at the same
// time. I/O-free: gate/redis/redis_shared_link.hpp has the socket.
//
// It is an armed link like a session's, bound to the tags of all its writers, of the same user in the same database, so the
// rule is kept where it always is: a batch needs the proof of every tag in it. What it did not apply is not answered here: it
// goes back to its writer, who judges it anew and sends it on its own link.
//
// It is bound anew only while it is open: when a tag writes that it is not bound to, and now and then when some do not write
// any more.
#pragma once

#include "base/demand.hpp"
#include "gate/redis/armed_link.hpp"
#include "gate/redis/claims.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  [[nodiscard]] bool idle() const { return sent_.empty() && waiting_.writes.empty() && told_.empty(); }
  [[nodiscard]] std::size_t waiting_bytes() const { return waiting_.bytes.size(); }
  // How many were answered so far, in any way.
  [[nodiscard]] std::uint64_t answered() const { return answered_; }

  // The process ends where they do not hold; each event asks. `thorough`: at the price of a walk through the tags.
  void invariants(bool thorough = is_debug_build) const;
  // Of all that was sent so far, how many commands were expected to be answered.
  [[nodiscard]] std::uint64_t commands_expected() const { return link_.commands_expected(); }

  // feed() sends it. False: another tag has a higher token, or there is no room for its resources beside others. REQUIRES:
  // ready(), and one whole command that was inspected by its writer's engine, which holds the claims.
  [[nodiscard]] bool add(std::string_view command, const batched& as, std::weak_ptr<shared_writer> from,
                         const fence::claims_list& tag);
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
  using time_point = std::chrono::steady_clock::time_point;

  struct known_tag {
    fence::claims_list claims;
    time_point used;     // when it was written under last
    bool bound = false;  // the link is bound to it, as of these claims:
    claim_mask all = 0;
    claim_mask needs = 0;  // that are enforced
  };
  struct write {
    std::weak_ptr<shared_writer> from;
    batched as;
    std::shared_ptr<const known_tag> tag;
  };
  struct queue {
    std::vector<write> writes;
    std::string bytes;

    void add(write one, std::string_view command) {
      writes.push_back(std::move(one));
      bytes += command;
    }
  };
  struct outcome {
    std::weak_ptr<shared_writer> to;
    std::optional<std::string> answer;  // nullopt: not applied
  };

  void on_batch() override;
  void on_reply(const expectation& front, const wire::reply_head& head) override;
  void on_reply_end(awaits what, std::string text) override;
  void resume() override {}  // whoever owns it feeds it behind each event
  [[nodiscard]] std::shared_ptr<known_tag> know(const fence::claims_list& claims);
  template <class Predicate>
  void forget_if(Predicate is);
  void count_resources();
  [[nodiscard]] bool is_to_be_bound();
  void bind();
  [[nodiscard]] bool arm();
  void give_back_overtaken();
  template <class Predicate>
  void give_back_unless(Predicate stays);
  template <class Predicate>
  [[nodiscard]] queue take_if(Predicate is);
  void read_answers();
  void tell(std::optional<std::string> answer);

  engine_host& host_;
  metrics::gate& stats_;
  claims claims_;
  std::string answers_;  // to what was sent, in its order
  armed_link link_;
  std::deque<std::weak_ptr<shared_writer>> sent_;  // of the batch in flight, those that were not answered yet
  std::deque<outcome> told_;                       // to be handed out
  queue waiting_;                                  // for the batch under way
  std::size_t greetings_left_;
  backend::mark_memory& marks_;
  std::string server_;                            // that the link has to lead to
  std::vector<std::shared_ptr<known_tag>> tags_;  // one token for a resource; tag_resources_max resources
  std::size_t resources_ = 0;                     // of them
  bool to_be_bound_ = false;
  time_point looked_through_{};      // for tags that are not in use
  std::optional<claim_mask> tried_;  // by the last arm, for what waits; nullopt: nothing waits for one
  std::uint64_t answered_ = 0;
  bool broken_ = false;
  std::string refusal_;
};

}  // namespace fencegate::gate
