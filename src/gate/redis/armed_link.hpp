// A link to Redis behind a proof: I/O-free, bytes in, bytes out. It arms itself, sends batches, reads what became of them,
// and knows which replies are still to come, its user's among them.
//
// Rule kept (success must enable): a fenced write is sent only while the link sits inside a MULTI whose +OK was read,
// behind a WATCH and an MGET of its marks whose values were read and are byte-equal to the tokens. EXEC then applies it
// only if no mark has moved. See src/README.md, "MULTI-ahead".
#pragma once

#include "base/byte_queue.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "gate/redis/armed_link_state.hpp"
#include "gate/redis/redis_engine_host.hpp"
#include "wire/resp_reply.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

// Whose commands go over the link: a client's session, or a link that many share.
class link_user {
 public:
  // The batch and the arm behind it were answered. To be followed by finish_arm().
  virtual void on_batch() = 0;
  // So was the arm behind a transaction of the client's. As above.
  virtual void on_tail() {}
  // The link has left our MULTI, and with it every WATCH.
  virtual void on_left() {}
  // The control link has looked at the marks again: what waits for the link may go on.
  virtual void resume() = 0;
  // A reply of the user's begins: begin() it, or begin_elements(), or say that it is unexpected().
  virtual void on_reply(const expectation& front, const wire::reply_head& head) = 0;
  // It was read, and is not expected any more. `text` is what was captured of it.
  virtual void on_reply_end(awaits what, std::string text) = 0;
  // An element of the client's EXEC begins.
  [[nodiscard]] virtual sink on_element(std::size_t /*at*/, const wire::reply_head& /*head*/) { return sink::answers; }
  // A batch that polls is answered. True: the reply was begun.
  [[nodiscard]] virtual bool on_polled(const wire::reply_head& /*head*/) { return false; }
  virtual void hold(std::string_view /*bytes*/) {}
  // What stands in front is `local` or `close`: all such are the user's to take away, by drop_front().
  virtual void on_turn() {}
  enum class push : std::uint8_t { no, need_more, begun };
  // An array or a push that may belong to no command. begun: begin() was called for it.
  [[nodiscard]] virtual push on_push(const wire::reply_head& /*head*/, std::string_view /*rest*/) { return push::no; }
  virtual void on_push_end(const std::string& /*text*/) {}
  // Nothing is expected. False: it is not the user's, either.
  [[nodiscard]] virtual bool on_unasked(const wire::reply_head& /*head*/) { return false; }
  // The look at marks (look()) was answered. Not "": they could not be read.
  virtual void on_look(const std::string& /*problem*/) {}

 protected:
  ~link_user() = default;
};

class armed_link {
 public:
  // `answers`: where replies go that are the client's. All of these outlive the link.
  armed_link(link_user& user, engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks,
             metrics::gate& stats, claims& proves, std::string& answers);

  byte_queue in;    // from the server
  std::string out;  // to it
  write_batch batch;
  int database = 0;        // that the client has chosen
  bool signed_in = false;  // the server took a user, or answered a command as it answers no stranger

  // Reads what has come.
  void read();
  // Nothing more is read or sent.
  void close() { closed_ = true; }
  [[nodiscard]] bool closed() const { return closed_; }
  // The server said what it must not say: closes, and counts it.
  void unexpected(std::string_view what);

  // ── where it stands
  enum class state : std::uint8_t {
    open,     // outside MULTI; bare commands may be in flight
    arming,   // an arm was sent; its proof was not read yet
    looking,  // the arm has shown something else than it should: the control link looks again
    armed,    // inside our MULTI, proof read; `batch` may be filling
    batch,    // a batch and the arm behind it were sent
    lent,     // inside a MULTI of the client's
    tailed,   // its EXEC and an arm behind it were sent
  };
  [[nodiscard]] state at() const { return at_; }
  [[nodiscard]] bool is_open() const { return at_ == state::open; }
  [[nodiscard]] bool armed() const { return at_ == state::armed; }
  // What it is to do for its user is not over yet.
  [[nodiscard]] bool busy() const { return at_ == state::arming || at_ == state::looking || at_ == state::batch; }
  // These marks are proven.
  [[nodiscard]] bool proves(claim_mask these) const { return (these & ~armed_mask_) == 0; }
  // What the last arm was for, whatever came of it.
  [[nodiscard]] claim_mask armed_for() const { return arm_mask_; }
  // The first error among its replies; "" = none.
  [[nodiscard]] const std::string& arm_error() const { return arm_error_; }
  [[nodiscard]] std::string take_arm_error() { return std::exchange(arm_error_, {}); }
  // The last arm has shown a mark that is lower than it was, or another epoch.
  [[nodiscard]] bool went_back() const { return gone_back_ || epoch_moved_; }

  // ── replies to come
  void expect(expectation one);
  // Of all that was sent so far, how many commands were expected to be answered.
  [[nodiscard]] std::uint64_t commands_expected() const { return commands_expected_; }
  [[nodiscard]] bool quiet() const { return expectations_.empty(); }
  [[nodiscard]] const std::deque<expectation>& expected() const { return expectations_; }
  [[nodiscard]] bool next_is(awaits what) const { return !expectations_.empty() && expectations_.front().what == what; }
  [[nodiscard]] expectation& front() { return expectations_.front(); }
  [[nodiscard]] expectation& back() { return expectations_.back(); }
  void drop_front() { expectations_.pop_front(); }
  // The reply whose head this is goes there. REQUIRES: it stands in front of `in`.
  void begin(const wire::reply_head& head, sink where);
  // The same, of what belongs to no command (on_push).
  void begin_push(const wire::reply_head& head, sink where) {
    in_push_ = true;
    begin(head, where);
  }
  // As many replies as the array has are asked for one by one (on_element).
  void begin_elements(const wire::reply_head& head);
  // One of the expected has come.
  void pop_expectation();

  // ── the proof
  // REQUIRES: is_open(). `keeps_watches`: the client's own stand.
  void arm(bool keeps_watches);
  // REQUIRES: armed().
  void leave();
  // All replies of an arm were read: armed, or not. REQUIRES: on_batch(), or on_tail().
  void finish_arm();
  // Reads the marks of all claims, outside MULTI, unless that is under way.
  void look();
  [[nodiscard]] bool is_looked_at() const { return looked_; }
  // Asks for marks, outside MULTI; and what was answered, or why there is nothing. `raw` outlives it.
  void ask_marks(const std::vector<std::string_view>& command, awaits what);
  [[nodiscard]] result<std::vector<wire::reply_value>> asked_marks(std::string_view raw) const;
  static void append_select(std::string& out, int number);

  // ── batches
  // REQUIRES: armed(), and something in `batch` that needs no more than is proven.
  void send_batch();
  // EXEC, and the next arm behind it.
  void send_exec();
  // equal_token: reject: the token is spent in the same transaction as the writes that it admits.
  void append_spent_marks(claim_mask required, std::size_t& count);
  // → how many tokens
  std::size_t mark_spent(claim_mask required);
  // A merged batch was refused: the next ones go as they are.
  void merge_no_more() { unmerged_ = batches_unmerged; }

  // ── transactions of the client's
  // MULTI is the client's from here on: the one that was armed, or its own.
  void lend() { at_ = state::lent; }
  // Behind its EXEC.
  void arm_behind_exec();
  // It is over, without an arm behind it.
  void take_back();
  // Nothing is proven any more.
  void disprove() { armed_mask_ = 0; }
  // The server holds no watch any more.
  void watches_ended() { watching_ = false; }
  // What RESET leaves of it.
  void reset();

  // An error of the server's own, that reaches the client as it is.
  [[nodiscard]] static bool is_native_error(std::string_view text);
  // "-NOPERM no\r\n" without what frames it.
  [[nodiscard]] static std::string_view error_text(std::string_view reply);

  // The process ends where they do not hold. `over`: its client says nothing more.
  void invariants(bool over) const;

 private:
  // A user who may SET but not MSET has one refusal in so many batches.
  static constexpr int batches_unmerged = 64;

  // ── armed_link_arm.cpp
  void append_arm_tail(claim_mask mask);
  void write_arm_tail(claim_mask mask);
  void arm_reply(awaits what, const wire::reply_head& head);
  void select_reply(awaits what, const wire::reply_head& head);
  void marks_reply(std::string_view raw);
  [[nodiscard]] bool mark_reply(std::size_t i, const wire::reply_value& found);
  void arm_done();
  void look_again();
  void on_mark(const backend::mark_cell& cell, const backend::mark_reading& reading);
  void look_done(std::string_view raw);
  // The marks are at their tokens: perhaps others have raised them there, behind a lowering.
  void remember_proven();
  void see_mark(bound_claim& one, const wire::reply_value& found, const backend::mark_memory::moment& asked);

  // ── armed_link_batch.cpp
  [[nodiscard]] bool mergeable() const;
  void append_merged();
  void start_queued(const wire::reply_head& head);
  void start_exec(const wire::reply_head& head);
  void start_batch_element(const wire::reply_head& head);

  // ── armed_link.cpp
  [[nodiscard]] bool start_value(const wire::reply_head& head, std::string_view view);
  [[nodiscard]] bool take_run(std::string_view view);
  [[nodiscard]] bool take_elements(std::string_view view);
  void start_reply(const wire::reply_head& head);
  void start_element(const wire::reply_head& head);
  void element_done();
  void deliver(std::string_view bytes);
  void value_done();

  link_user& user_;
  engine_host& host_;
  const settings::redis_gate& gate_;
  backend::mark_memory& marks_;
  metrics::gate& stats_;
  claims& claims_;
  std::string& answers_;

  state at_ = state::open;
  bool closed_ = false;

  // Replies.
  std::deque<expectation> expectations_;
  std::uint64_t commands_expected_ = 0;
  std::size_t elements_left_ = 0, elements_seen_ = 0;  // of EXEC's reply
  wire::value_scanner scanner_;
  sink sink_ = sink::drop;
  bool in_push_ = false, in_attribute_ = false;
  std::string captured_;

  // The proof.
  claim_mask arm_mask_ = 0;    // what the last arm covers
  claim_mask arm_looks_ = 0;   // marks that it only reads
  claim_mask armed_mask_ = 0;  // proven
  std::string arm_epoch_;
  backend::mark_memory::moment asked_;  // when the last EXEC or arm was sent
  arm_tail tail_;
  std::string arm_error_;       // the first error among the arm's replies
  bool select_stayed_ = false;  // SELECT 0 was refused: the link is in the client's database
  bool multi_ok_ = false;       // our MULTI was confirmed
  bool marks_ok_ = false;
  std::vector<std::size_t> looks_again_;          // marks that are not what was seen of them
  bool gone_back_ = false, epoch_moved_ = false;  // one of them is lower; the epoch is another
  bool watching_ = false;                         // the server may hold watches of ours
  std::chrono::steady_clock::time_point arm_started_{};
  int unmerged_ = 0;  // so many batches go as they are, since Redis has refused a merged one

  bool looked_ = false;  // a look is under way: no claim is bound or unbound meanwhile, for that needs a link at rest
  backend::mark_memory::moment look_asked_;
};

}  // namespace fencegate::gate
