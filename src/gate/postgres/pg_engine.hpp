// One PostgreSQL client's session as an I/O-free machine: bytes in, bytes out. It reads the start of the connection, has the
// session armed before the client may use it, and from then on frames messages and moves them.
//
// Rule kept: no statement of a client whose connection carries a tag reaches the server before the server has answered,
// for each claim, that this very session is registered under its token (gate/postgres/pg_binding.hpp, arm_reading). From then on
// it is the server that ends the session when a higher token arrives; nothing here needs to be awake for that.
#pragma once

#include "backend/ended_registration.hpp"
#include "backend/pg_raised.hpp"
#include "base/byte_queue.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "gate/postgres/pg_binding.hpp"
#include "gate/postgres/pg_farewell.hpp"
#include "gate/postgres/pg_flight.hpp"
#include "gate/postgres/pg_guarded.hpp"
#include "gate/postgres/pg_unguarded.hpp"
#include "gate/relay/gathered_bytes.hpp"
#include "wire/sql_lead.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

// What the engine asks of the world. Callbacks arrive on the session's thread, never after the session's end, and may
// come before the call returns.
class pg_host {
 public:
  virtual ~pg_host() = default;
  // on_connected() or on_unreachable() follows. `cancels`: the process id and secret of the session that is to be
  // cancelled, whose server it has to be; "": it is for a session.
  virtual void connect(const std::string& cancels) = 0;
  // With which process id and secret this session is cancelled.
  virtual void has_key(const std::string& key) = 0;
  // The client was shown the certificate of the server itself, so that what it binds to this certificate (RFC 5929,
  // tls-server-end-point) holds from end to end. REQUIRES: on_connected() was called.
  [[nodiscard]] virtual bool shows_servers_certificate() const = 0;
  // What the session with this process id was registered for; nullopt: it cannot be asked now.
  virtual void ended(const std::string& database, std::int32_t pid,
                     std::function<void(std::optional<std::vector<backend::ended_registration>>)> done) = 0;
  // The marks as they are; nullopt: they cannot be read now. What has no mark is left out.
  virtual void look(const std::string& database, const claims_list& claims,
                    std::function<void(std::optional<backend::found_marks>)> done) = 0;
  // Raises the marks to these tokens, all or none.
  virtual void raise(const std::string& database, const claims_list& claims,
                     std::function<void(backend::pg_raise_result)> done) = 0;
  // The same in front of an arm; an error where it would have to wait for its turn.
  virtual void raise_ahead(const std::string& database, const claims_list& claims,
                           std::function<void(backend::pg_raise_result)> done) = 0;
  // What this process has seen of a mark; and something it now has.
  [[nodiscard]] virtual std::optional<fence::token> seen(const std::string& database,
                                                         const std::string& resource) const = 0;
  virtual void saw(const std::string& database, const backend::found_mark& found) = 0;
  // The mark was below what had been seen of it, and has risen to this. To be told before that is seen.
  virtual void went_back(const std::string& database, const backend::found_mark& to) = 0;
  // on_timer() comes once, after the delay; a later call replaces an earlier one.
  virtual void set_timer(std::chrono::milliseconds delay) = 0;
  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() const = 0;
  // The client brings this tag. Why there is no room for its connection, which then has to end.
  [[nodiscard]] virtual std::optional<std::string> take_room(const claims_list& tag) = 0;
  // One line in the log, and counted.
  virtual void report(const fence::rejection& why, std::string_view command, bool monitor) = 0;
  // The server ended this session because of a higher token.
  virtual void report_cut(const fence::rejection& why, applied certain) = 0;
};

class pg_engine {
 public:
  pg_engine(pg_host& host, const settings::postgres_gate& gate, metrics::gate& stats);
  // `tag`: what the session is bound to, in place of the gate's. REQUIRES: everything given lives longer.
  pg_engine(pg_host& host, const settings::postgres_gate& gate, metrics::gate& stats, const claims_list& tag);

  // The client comes through TLS already: to ask for it once more is no PostgreSQL.
  void on_secured() { encryption_asked_ = encryption_asked_most; }

  byte_queue from_client;
  byte_queue from_backend;
  std::string to_client;
  std::string to_backend;

  void on_client_bytes() { resume(); }
  void on_backend_bytes();
  void on_connected();
  void on_unreachable(std::string_view why);
  // The server has closed the connection; its last bytes were read.
  void on_backend_end();
  void on_timer();
  // The world outside has moved (an answer, room in a buffer): go on where it stopped.
  void resume();
  // With what the client asks for next between two transactions, it is told that the gate is going, and the session ends; what
  // it listens to reaches it until then. Who is not served yet hears of it no more than of drain().
  void announce_end() { ends_soon_ = phase_ == phase::relaying; }
  // At the next boundary the client is told so, whether it can hear it or not, and the connection ends.
  void drain();

  // Nothing more will be read or sent but to_client and to_backend; then the connection ends.
  [[nodiscard]] bool closing() const { return phase_ == phase::closing; }
  // The session at the server is over; the client is told when it can hear it.
  [[nodiscard]] bool parting() const { return phase_ == phase::parting; }
  // The lease of its tag was lost: the session at the server ends, and the client is told when it can hear it.
  void lose_lease();
  // A client that waits to be told is, and the connection ends: its place is needed.
  void give_up();
  // The client was silent for too long: it is told, and the connection ends.
  // REQUIRES: idles().
  void end_idle();
  // The next client bytes cannot be used before something else happens.
  [[nodiscard]] bool blocked() const;
  // Nothing is in flight or half-said; the connection may be closed without loss.
  [[nodiscard]] bool at_rest() const;
  // What comes next is up to the client. A message that is held back takes of the room of all.
  [[nodiscard]] bool idles() const { return at_rest() || parting() || (gathers_ != 0 && !closing() && !blocked()); }
  // A CancelRequest is on its way to the server.
  [[nodiscard]] bool cancels() const { return cancels_ && !closing(); }
  // The client's opening or authentication is not finished.
  [[nodiscard]] bool opening() const { return phase_ < phase::arming; }
  // The client is served, and may be silent as long as it likes.
  [[nodiscard]] bool relaying() const { return phase_ == phase::relaying; }
  // Bytes of a message in front that is held back until it is there as a whole; 0: there is none.
  [[nodiscard]] std::size_t gathers() const { return gathers_; }

 private:
  enum class phase : std::uint8_t {
    opening,     // the client's first packet is awaited
    connecting,  // the link is being opened
    cancelling,  // a CancelRequest was sent on; the server answers by closing
    starting,    // authentication, up to the first ReadyForQuery, which is held back
    arming,      // the replies to an arm_query are being read
    raising,     // the marks are being raised on a connection of the gate's own
    looking,     // monitor: the marks are being read
    relaying,
    diagnosing,  // the server has ended the session: why?
    parting,     // the session is over, and the client will be told why
    closing,
  };

  // ── opening (pg_engine.cpp)
  bool step_opening();
  void open(const wire::pg_opening& opening);
  bool step_starting_client();
  // Its next message, head and body, when all of it is there. One that is none, or too long, ends the session.
  std::optional<std::string> take_from_backend();
  bool step_starting_backend();
  void on_first_ready(std::string_view message);
  void serve();

  // ── arming (pg_engine_arming.cpp)
  [[nodiscard]] bool joins_tag_of_name();
  void begin_arming(claims_list claims);
  bool step_arming();
  // What older tokens have prepared is closed. false: there is none.
  bool close_superseded();
  void step_closing(std::string_view message);
  // guard: transaction without a pooler: whether the session is the one that was announced.
  void begin_checking();
  void step_checking(std::string_view message);
  void begin_raising();
  [[nodiscard]] bool is_to_raise() const;
  void raise_ahead();
  void send_arm();
  void on_armed(const backend::pg_raised& did);
  void saw_mark_of(const fence::rejection& why);
  void on_arming_failed(const fence::rejection& why);
  void watch_only(const claims_list& claims);
  [[nodiscard]] std::optional<fence::rejection> refused_by_memory(const claims_list& claims);

  // ── the client's messages (pg_engine_client.cpp, pg_engine_admission.cpp)
  bool step_client();
  bool step_statement(const wire::pg_head& head);
  bool step_bind(const wire::pg_head& head);
  // The two strings at the start of Bind's body, portal and statement; nullopt: they are not there yet.
  [[nodiscard]] static std::optional<std::pair<std::string_view, std::string_view>> bind_names(std::string_view body);
  bool step_passing();
  // Sends on what is there of the message in front; the rest follows in step_passing().
  void forward(const wire::pg_head& head);
  struct judged {
    enum class verdict : std::uint8_t { forward, wait, arm, refuse } what = verdict::forward;
    claims_list claims;  // arm: for these
    fence::rejection why;
    bool begins = false;  // refuse: a transaction under a tag, without which its statements would each run by itself
  };
  // Those of the comment in front, where it may carry a tag. `whole`: else there is more of the text to come.
  [[nodiscard]] result<claims_list> claims_in(const wire::sql_lead& lead, bool whole) const;
  // `key`: of the prepared statement, if it is one. `mends`: see gate/postgres/pg_mending.hpp.
  judged judge(const wire::sql_lead& lead, const result<claims_list>& claims, const std::optional<std::string>& key,
               bool mends);
  judged judge_text(const wire::sql_lead& lead, const claims_list& claims, const std::optional<std::string>& key);
  [[nodiscard]] static bool begins_transaction(const wire::sql_lead& lead);
  [[nodiscard]] static bool calls_fence(const wire::sql_lead& lead);
  [[nodiscard]] bool has_tagged_names() const;
  judged judge_bind(std::string_view statement);
  judged judge_name();
  judged judge_tagged(const claims_list& in_comments);
  judged judge_claims(const claims_list& wanted);
  void note_own_arms();
  void refuse_to_begin(const wire::pg_head& head, const fence::rejection& why, std::string_view command);
  bool obey(const judged& j, const wire::pg_head& head, std::string_view command);
  // One that names nothing is about the session's only claim.
  [[nodiscard]] fence::rejection about_session(fence::rejection why) const;
  // Reports it; a statement that fails with it.
  [[nodiscard]] std::string refusal_of(fence::rejection why, std::string_view command);
  void refuse_statement(const wire::pg_head& head, const fence::rejection& why, std::string_view command);
  void remember_statement(const std::string& key, claims_list claims, bool begins);
  void forget_statement(const wire::pg_head& head);

  enum class passage : std::uint8_t {
    through,
    dropped,    // it answers a message of the gate's
    replaced,   // by the machine's reply
    held_back,  // the server ends the session; what the client is told depends on why
    stopped,    // the connection ends; wrong_ says why
  };

  // ── guard: transaction (pg_engine_guard.cpp)
  [[nodiscard]] bool guards() const;
  void begin_guarding();
  bool step_guarded(const wire::pg_head& head);
  bool step_unguarded(const wire::pg_head& head);
  // Nothing but what mends a refused name passes.
  [[nodiscard]] bool is_refused_by_name(char type, std::string_view body, std::size_t body_bytes);
  [[nodiscard]] static bool is_malformed(const wire::pg_head& head, std::string_view body);
  [[nodiscard]] pg_guarded::verdict judge_guarded(char type, std::string_view body, std::size_t body_bytes);
  [[nodiscard]] pg_guarded::verdict refuse_to_gather();
  void note_gathered();
  [[nodiscard]] passage inspect_guarded(char type, std::string_view body);
  void on_guard_answer(std::string_view body);
  void send_behind();

  // ── the server's messages (pg_engine_backend.cpp), the end (pg_engine_end.cpp)
  bool step_backend();
  passage inspect(const wire::pg_head& head, std::string_view message);
  [[nodiscard]] bool is_read(char type) const;
  // A FATAL error with this SQLSTATE is no raise's: it says all there is to say.
  [[nodiscard]] bool speaks_for_itself(std::string_view sqlstate) const;
  void on_parameter(std::string_view body);
  void take_tag_of_name();
  void on_terminated(bool with_error);
  void ask_why();
  void ask_again();
  void on_why(const std::optional<std::vector<backend::ended_registration>>& answer);
  void end_as_told();
  void end_as_superseded(const fence::rejection& why);
  void tell_end();
  void part(const wire::pg_error& e);
  void part_with(std::string words);
  void step_parting();

  // Ends the session; `certain`: of what was sent before.
  void reject(fence::rejection why, std::string_view command, applied certain = applied::no);
  void close_with(const wire::pg_error& e);
  void protocol_error(metrics::side whose, std::string_view what);
  // Everything that was sent is answered, and nothing is half sent.
  [[nodiscard]] bool is_quiet() const;
  // … outside a transaction.
  [[nodiscard]] bool at_boundary() const;
  // Until the server has answered some of it, nothing more is sent.
  [[nodiscard]] bool awaits_too_much() const;
  [[nodiscard]] bool enforces() const { return gate_.policy.mode == fence::enforcement::enforce; }

  pg_host& host_;
  const settings::postgres_gate& gate_;
  metrics::gate& stats_;
  const claims_list& tag_;  // of the listener; empty: it has none
  phase phase_ = phase::opening;
  bool stepping_ = false;  // an answer that comes before its question returns goes on where that stands

  // The connection.
  static constexpr int encryption_asked_most = 2;  // for each of both
  int encryption_asked_ = 0;
  std::string first_packet_;  // what goes to the server first
  std::string database_;
  std::int32_t pid_ = 0;
  bool cancels_ = false;  // the first packet is a CancelRequest
  bool authenticated_ = false;
  bool on_standby_ = false;  // as the server reported it (PostgreSQL 14 and newer)
  bool superuser_ = false;   // as the server reported it
  bool terminated_ = false;  // the client has said Terminate

  // The fence.
  claims_list bound_;         // armed for, or monitored
  claims_list proven_;        // of these, what the server has for certain
  bool arms_itself_ = false;  // the client calls the fence's functions, whose effect is not seen here
  claims_list wanted_;        // from a changed application_name: to be armed before the next statement
  std::optional<fence::rejection> name_refused_;  // the same, but its tag is not taken
  std::string application_name_;                  // as the server reported it last
  bool brought_name_ = false;                     // the client has given it in its first packet
  claims_list arming_for_;
  std::vector<std::string> seen_before_;  // of these, whose marks were seen there already
  arm_reading arm_;
  bool checks_session_ = false;      // behind the raise
  bool is_announced_ = false;        // … and it is the one
  bool closes_superseded_ = false;   // behind the arm; its replies are still to come
  backend::pg_raised raised_ahead_;  // of this arm
  std::string held_ready_;  // the first ReadyForQuery, for the client once it is armed; empty: the client has it
  std::chrono::steady_clock::time_point arm_sent_;
  std::optional<fence::rejection> statement_refused_;  // by the arm in front of it

  // What passes.
  pg_flight flight_;
  bool waits_for_boundary_ = false;  // the statement in front needs an arm, which needs quiet
  std::size_t client_passing_ = 0;   // bytes of a message whose head went through
  std::size_t backend_passing_ = 0;  // the same, towards the client
  std::size_t swallowed_ = 0;        // bytes of a refused message that are still to come
  // Prepared statements whose text has a tag; by wire::pg_name_key().
  struct prepared_statement {
    claims_list claims;
    bool begins = false;  // a transaction
    claims_list before;   // of texts that the server may have kept instead
  };
  std::map<std::string, prepared_statement, std::less<>> prepared_;
  // Statements prepared since the last Sync that mend a refused application_name: only there is it sure what a name means.
  std::set<std::string, std::less<>> mending_;

  claims_list guarded_claims_;
  std::string guard_answer_;                 // the last one, as it came
  std::unique_ptr<pg_guarded> guarded_;      // guard: transaction; flight_ knows nothing of such a session
  std::unique_ptr<pg_unguarded> unguarded_;  // the same in mode: monitor; flight_ knows it
  std::size_t gathers_ = 0;                  // see gathers()
  gathered_bytes gathered_;
  std::string client_encoding_, conforming_strings_;  // as the server reported them before

  // The end.
  bool ends_soon_ = false, draining_ = false;
  bool backend_ended_ = false;
  std::string wrong_;  // passage::stopped: what is wrong with the server's message
  bool fatal_seen_ = false;
  bool fatal_held_ = false;                    // among last_words_
  std::string last_words_;                     // the server's, to be passed on when nobody superseded this session
  std::optional<fence::rejection> arm_ended_;  // it ended in the middle of an arm: what is said unless a raise did it
  pg_farewell farewell_;
  applied certain_ = applied::unknown;
  std::optional<fence::claim> raise_seen_;  // a raise was under way on this resource when the session had ended
  std::chrono::steady_clock::time_point ended_at_;
};

}  // namespace fencegate::gate
