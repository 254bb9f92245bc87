// One Redis client's session as an I/O-free machine: bytes in, bytes out. It decides what reaches the backend and when.
// armed_link.hpp says how the link keeps the rule.
//
// The session (gate/redis/redis_session.hpp) moves the bytes, owns the clock, and calls on_*(); each may change to_client,
// to_backend and closing().
#pragma once

#include "base/byte_queue.hpp"
#include "base/demand.hpp"
#include "gate/redis/armed_link.hpp"
#include "gate/redis/claims.hpp"
#include "gate/redis/pubsub.hpp"
#include "gate/redis/redis_engine_host.hpp"
#include "gate/redis/redis_engine_state.hpp"
#include "gate/redis/redis_route.hpp"
#include "wire/resp_reply.hpp"
#include "wire/resp_request.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

class redis_engine final : private redis_engine_state, private link_user {
 public:
  redis_engine(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks, metrics::gate& stats);

  byte_queue from_client;
  std::string to_client;

  // Where the listener has a tag, which outlives this. Once, when the link to the server is there.
  void bind_to_listener(const fence::claims_list& tag);
  void on_client_bytes();
  void on_backend_bytes();
  void on_timer();
  // Something may have come under the keys for which it waits.
  void on_key() { on_timer(); }
  // It does, or is about to look again.
  [[nodiscard]] bool waits_for_keys() const { return poll_.since.has_value(); }
  // What became of the write that the host has shared: Redis' answer, or nullopt: certainly not applied, and to be sent on
  // this link.
  void on_shared(std::optional<std::string_view> answer);
  // The world outside has moved (an asynchronous answer, room in a buffer): go on where it stopped.
  void resume() override;

  // The client gets no more than rejections: it reads nothing (redis_engine_unread.cpp).
  [[nodiscard]] bool turned_away() const { return turned_away_; }
  // And has all of them.
  [[nodiscard]] bool has_said_all() const;
  // It waits until the client has read; what it holds for the client, or will.
  [[nodiscard]] bool held_back() const { return held_back_; }
  [[nodiscard]] std::size_t answers_held() const { return to_client.size() + local_bytes_; }
  // Has to_client been sent, there may be more, for the client or the server. True: there was.
  [[nodiscard]] bool say_more();

  // The process ends where they do not hold; each event asks. `thorough`: at the price of a walk through what is awaited.
  void invariants(bool thorough = is_debug_build) const;
  // Of all that was sent so far, how many commands were expected to be answered.
  [[nodiscard]] std::uint64_t commands_expected() const { return link_.commands_expected(); }

  // The backend has closed the connection.
  void end() { link_.close(); }
  // Nothing more will be read or sent but to_client; then the connection ends.
  [[nodiscard]] bool closing() const { return link_.closed(); }
  // The next client bytes cannot be used before something else happens.
  [[nodiscard]] bool blocked() const { return blocked_; }
  // Nothing more is read from the client (QUIT, a protocol error).
  [[nodiscard]] bool input_over() const { return input_over_; }
  // At a boundary: nothing is in flight or half-said; the connection may be closed without loss.
  [[nodiscard]] bool at_rest() const;
  // Its client has gone: all that it has said is done and answered, but for what it has not said whole.
  [[nodiscard]] bool has_finished() const;
  // The connection may be closed without loss: it is at rest, or waits for others and has asked for nothing else.
  [[nodiscard]] bool may_end() const;
  // The client waits for something of its own making (a blocking command, a subscription): not idle.
  [[nodiscard]] bool waits_on_purpose() const;
  // It waits for other clients, and nothing was sent: there is nothing to finish for a client that has gone.
  [[nodiscard]] bool may_block() const {
    return polling() || phase_ == phase::monitor_stream || connection_.subscriptions > 0;
  }
  // A bare command may be waiting in the server, whatever was sent behind it.
  [[nodiscard]] bool may_block_in_server() const;
  // A blocking write found nothing, and is to be tried again.
  [[nodiscard]] bool polling() const { return phase_ == phase::waiting && poll_.since.has_value(); }
  // A value larger than the buffer is on its way.
  [[nodiscard]] bool streaming() const { return large_ != nullptr; }
  // Commands that were not answered yet.
  [[nodiscard]] std::size_t replies_awaited() const { return link_.expected().size(); }
  // An incomplete command stands in from_client.
  [[nodiscard]] bool half_read() const { return !from_client.empty() && !blocked_; }
  // Writes of this session that the backend may have applied without our knowing.
  [[nodiscard]] bool write_in_flight() const;
  // The backend cannot be reached at all: answers what stands in from_client with this, then closes.
  void fail_all(std::string_view detail);

 private:
  // ── client side (redis_engine.cpp)
  void pump();
  void command_done();
  progress step(const wire::request& r);
  [[nodiscard]] const backend::command_spec& find_spec(const wire::request& r);
  progress step_plain(const wire::request& r, const backend::command_spec& spec);
  std::optional<progress> check_keys(const wire::request& r, const backend::command_spec& spec);
  [[nodiscard]] std::string refusal_text(const backend::command_spec& spec) const;
  [[nodiscard]] static std::string refusal_while_subscribed(std::string_view name);
  [[nodiscard]] static std::string_view name_of(const wire::request& r, const backend::command_spec& spec);
  void forward_raw(const wire::request& r, awaits what = awaits::relay);
  void add_to_batch(const wire::request& r, const backend::command_spec& spec, const claims::verdict& verdict);
  [[nodiscard]] batched facts_for_batch(std::string_view bytes, const wire::request& r,
                                        const backend::command_spec& spec, const claims::verdict& verdict) const;
  [[nodiscard]] bool batch_full(const wire::request& r) const;
  void reply_local(std::string text);
  void reject(const fence::rejection& why, std::string_view command);
  void count(const backend::command_spec& spec);
  [[nodiscard]] const backend::command_spec& wrapped_spec(const wire::request& r,
                                                          const backend::command_spec& spec) const;
  [[nodiscard]] progress block();
  // True: the link is outside MULTI and nothing is in flight. False: on the way there.
  [[nodiscard]] bool quiet();
  void arm();

  // ── clients that do not read (redis_engine_unread.cpp)
  void turn_away(const wire::request& r);
  void wait_with(std::string local);
  [[nodiscard]] static std::string turned_away_text();

  // ── reads and writes (redis_engine_write.cpp; where they go: redis_route.hpp)
  progress step_data(const wire::request& r, const backend::command_spec& spec, route_facts::stand where);
  progress step_bare(const wire::request& r, const backend::command_spec& spec, const claims::verdict& verdict = {});
  progress refuse(const fence::rejection& why, std::string_view command);
  [[nodiscard]] claims::verdict judge(const std::vector<std::string_view>& arguments,
                                      const backend::command_spec& spec);
  [[nodiscard]] claim_mask claims_to_raise(const claims::verdict& verdict) const;
  [[nodiscard]] std::optional<fence::rejection> refusal_by_claim(const backend::command_spec& spec,
                                                                 claim_mask required) const;
  [[nodiscard]] static bool shows_data(const backend::command_spec& spec);
  [[nodiscard]] route_facts facts_of(const std::vector<std::string_view>& arguments, const backend::command_spec& spec,
                                     const claims::verdict& verdict, route_facts::stand where);
  [[nodiscard]] fence::rejection rejection_of(refusal why, const backend::command_spec& spec,
                                              const claims::verdict& verdict, route_facts::stand where) const;
  [[nodiscard]] static std::string link_error(std::string_view text, const fence::rejection& otherwise);
  progress answer_arm_error(const wire::request& r, const backend::command_spec& spec, claim_mask required);
  progress step_poll(const wire::request& r, const backend::command_spec& spec, const claims::verdict& verdict);
  [[nodiscard]] const backend::command_spec* spec_of(const wire::request& r) const;
  progress step_replayed(const wire::request& r, const backend::command_spec& spec);

  // ── batches (redis_engine_batch.cpp)
  void send_batch();
  void on_batch() override;
  void wait_and_poll(const std::string& bytes, bool muted);
  [[nodiscard]] bool still_polling() const;
  void rewind_batch();

  // ── the listener's tag (redis_engine_listener.cpp)
  [[nodiscard]] const fence::claims_list& tag_of_listener() const;
  void bind(const fence::claims_list& tag);
  void unbind();
  [[nodiscard]] std::optional<fence::rejection> refusal_of_tag(const fence::claims_list& brought) const;

  // ── raising (redis_engine_raise.cpp)
  [[nodiscard]] bool raise_pending(claim_mask mask);
  void raise_claims(std::function<void()> then);

  // ── what comes of the link (redis_engine_replies.cpp)
  void on_tail() override { finish_transaction(); }
  void on_left() override;
  void on_reply(const expectation& front, const wire::reply_head& head) override;
  void on_reply_end(awaits what, std::string text) override;
  [[nodiscard]] sink on_element(std::size_t at, const wire::reply_head& head) override;
  [[nodiscard]] bool on_polled(const wire::reply_head& head) override;
  void hold(std::string_view bytes) override;
  void on_turn() override;
  [[nodiscard]] push on_push(const wire::reply_head& head, std::string_view rest) override;
  void on_push_end(const std::string& text) override;
  [[nodiscard]] bool on_unasked(const wire::reply_head& head) override;
  [[nodiscard]] std::string nil_text() const;

  // ── sharing (redis_engine_share.cpp)
  [[nodiscard]] bool may_share(const wire::request& r, const backend::command_spec& spec, claim_mask required) const;
  [[nodiscard]] bool share(const wire::request& r, const backend::command_spec& spec, const claims::verdict& verdict);
  void ask_identity();
  void identity_done(std::string_view info);
  // The server gets a command of this link; only since 7.2 that is not enough for WAIT.
  void note_command() { wait_lags_ = wait_lags_ && server_.notes_own_writes; }
  void renew_offset();
  [[nodiscard]] progress renew_offset_of_aof();
  void on_renewal_of_aof(std::string text);
  void renewal_refused(std::string_view why);
  [[nodiscard]] const session_profile& my_profile();

  // ── commands that change the connection (redis_engine_connection.cpp)
  progress step_connection(const wire::request& r, const backend::command_spec& spec);
  progress step_in_monitor_stream(const wire::request& r, const backend::command_spec& spec);
  progress step_barrier(const wire::request& r, const backend::command_spec& spec);
  progress step_client_reply(const wire::request& r);
  progress step_subscribe(const wire::request& r, const backend::command_spec& spec);
  [[nodiscard]] bool read_hello(const std::vector<std::string_view>& arguments);
  void on_state_reply();
  [[nodiscard]] std::optional<fence::rejection> report_binding(const std::vector<fence::claim>& asked,
                                                               std::string_view command);
  void answer_binding(const std::vector<fence::claim>& asked);
  void reset_state();
  void protocol_error(std::string_view message);
  void end_input();
  void end_without_room(const std::string& why);

  // ── monitor mode (redis_engine_monitor.cpp)
  void on_look(const std::string& problem) override;
  void note(std::vector<noted>& where, const claims::verdict& verdict, bool reads, std::string_view name);
  void note_bare(const claims::verdict& verdict, bool reads, std::string_view name);
  void book(const std::vector<noted>& notes, claim_mask used = 0);
  void spend(bound_claim& one);

  // ── FENCE (redis_engine_fence.cpp)
  progress step_fence(const wire::request& r);
  progress fence_set(const wire::request& r);
  void lose_claims(const wire::request& r, const fence::rejection& why);
  void lose_tag(const std::vector<std::string_view>& arguments, fence::reason why, const std::string& detail);
  void lose_binding(const wire::request& r, const backend::command_spec& spec);
  progress fence_get(const wire::request& r);
  progress fence_mark(const wire::request& r);
  progress fence_call(const wire::request& r);
  progress call(const wire::request& r, const std::vector<std::string_view>& command,
                const backend::command_spec& spec);
  [[nodiscard]] bool authenticated();
  void probe_done(std::string_view answer);

  // ── single commands with their check (redis_engine_wrapped.cpp)
  progress wrap_command(const wire::request& r, const backend::command_spec& spec, const claims::verdict& verdict);
  [[nodiscard]] std::optional<std::string_view> refusal_in_script(const std::vector<std::string_view>& command,
                                                                  const backend::command_spec& spec) const;
  void wrap(const std::vector<std::string_view>& command, const backend::command_spec& spec,
            const std::vector<const bound_claim*>& under, const wire::request& whole);
  void look_behind(const std::vector<std::string_view>& command);
  void look_behind_done(std::string_view raw);
  void start_single(const wire::reply_head& head);
  void single_done();

  // ── the client's own transactions (redis_engine_transaction.cpp)
  progress step_multi(const wire::request& r);
  void begin_transaction(bool adopted);
  progress step_in_transaction(const wire::request& r, const backend::command_spec& spec);
  [[nodiscard]] std::optional<progress> join_transaction(const wire::request& r, const backend::command_spec& spec);
  void judge_in_transaction(const std::vector<std::string_view>& arguments, const backend::command_spec& spec);
  void leave_server_transaction();
  void spoil_transaction(std::string text);
  void end_transaction(std::string text);
  [[nodiscard]] static std::string wrong_arity(const backend::command_spec& spec);
  void leave_transaction();
  void watching_ends();
  progress step_exec(const wire::request& r);
  void start_client_exec(const wire::reply_head& head);
  void finish_transaction();

  // ── commands larger than the buffer (redis_engine_large.cpp)
  void start_large();
  [[nodiscard]] bool continue_large();
  [[nodiscard]] std::vector<std::string_view> large_arguments() const;
  void lose_large_binding();
  [[nodiscard]] bool decide_large();
  [[nodiscard]] bool decide_large_in_transaction();
  [[nodiscard]] bool decide_large_write();
  [[nodiscard]] bool key_is_known() const;
  [[nodiscard]] std::optional<fence::rejection> refusal_of_large_read();
  [[nodiscard]] bool late_check();
  void finish_large();
  bool refuse_large(const fence::rejection& why);
  bool swallow_large(std::string answer, bool replaces);
  void finish_streamed_batch();

  engine_host& host_;
  const settings::redis_gate& gate_;
  backend::mark_memory& marks_;
  metrics::gate& stats_;
  claims claims_;
  armed_link link_;

 public:
  byte_queue& from_backend;
  std::string& to_backend;

 private:
  phase phase_ = phase::ready;
  bool blocked_ = false;
  bool turned_away_ = false, held_back_ = false, pumping_ = false;
  wire::request_decoder decoder_;
  wire::request request_;
  std::vector<std::size_t> keys_;
  std::string last_name_;  // of the last command, and what the table says of it
  std::shared_ptr<const backend::command_table> last_table_;
  const backend::command_spec* last_spec_ = nullptr;
  std::size_t consumed_ = 0;  // bytes of the command at hand
  bool again_ = false;        // something was answered while the pump ran
  bool input_over_ = false;   // nothing of the client is read any more
  phase phase_before_wait_ = phase::ready;

  connection_state connection_;

  // Sharing.
  const fence::claims_list* tag_of_listener_ = nullptr;  // nullptr: it has none
  bool private_ = false;    // the server knows something of this connection that a shared link cannot be given
  bool counted_ = false;    // the command at hand: it has come back
  bool asks_identity_;      // the next arm finds out where the link leads
  bool measured_ = false;   // the host waits for the end of the write under way
  bool wait_lags_ = false;  // a WAIT on this link would not count a write of the client's that went over another one
  bool aof_lags_ = false;   // nor would a WAITAOF
  server_identity server_;  // to which the link leads; no run_id: not asked yet
  int own_turns_ = 0;       // so many writes go on this link before the next may be shared
  int own_turns_next_ = 1;  // that many when the next one fails
  int sign_ins_ = 0;        // connection_.sign_in has changed so often
  known_profile like_;

  bool muted_ = false;  // the command at hand: its answer is not for the client (CLIENT REPLY)

  // Answers of the gate's own, that wait for their turn.
  std::deque<std::string> locals_;
  std::size_t local_bytes_ = 0;  // in them
  pubsub::message_kind push_kind_ = pubsub::message_kind::other;

  int tries_ = 0;  // arms since a command was last taken

  int batch_attempts_ = 0;
  int reads_in_a_row_ = 0;
  std::deque<replayed> replay_;
  transaction tx_;
  std::unique_ptr<large> large_;
  wrapped single_;
  std::unique_ptr<claims> call_;  // of the FENCE CALL at hand

  poll poll_;

  change change_;
  std::string held_reply_;
  std::optional<std::vector<std::string>> asked_keys_;
  bool keys_asked_ = false;
  bool raise_tried_ = false;  // for the command at hand
  int raise_round_ = 1;
  std::vector<noted> looked_at_;  // sent bare, behind a look at the marks whose answer is still to come
  std::string refused_ahead_;  // what the server said to a command of ours in front of the one at hand, with its CRLF
};

}  // namespace fencegate::gate
