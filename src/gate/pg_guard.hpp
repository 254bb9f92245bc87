// guard: transaction. Behind a transaction pooler no session can be armed, so each transaction is: a call of
// fencegate.guard goes in front of its first statement, and its lock on the marks holds until the transaction ends. This
// class follows the client's messages and says where a guard is needed. Pure.
//
// Rule kept: whatever may write runs behind a guard of its own transaction. Where it is not certain that the transaction of
// the last guard is still open, there is another guard (two are one too many, and do no harm); what commits in a way
// that cannot be seen from outside is refused.
//
//   C P "_fencegate", C S "_fencegate", P "_fencegate", B, E, C P, C S, then the client's message. No Sync in between: for
//   a simple Query, too, this is one implicit transaction with one ReadyForQuery. When the guard fails, the server skips
//   what follows, and is silent until it gets a Sync.
#pragma once

#include "gate/pg_flight.hpp"
#include "wire/sql_scanner.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::gate {

class pg_guard {
 public:
  struct advice {
    enum class kind : std::uint8_t {
      bare,   // the message may go on as it is
      guard,  // behind a guard
      ask,    // not before the server has said which isolation its transaction has: on_isolation()
      wait,   // not before everything sent was answered
      refuse
    } what = kind::bare;
    std::string_view why = {};  // refuse
  };

  // Each is asked before its message goes on, and counts it as sent unless it says `ask`, `wait` or `refuse`.
  [[nodiscard]] advice on_query(const wire::sql_scanner::findings& text, const pg_flight& flight, bool whole);
  [[nodiscard]] advice on_parse(std::string_view name, const wire::sql_scanner::findings& text, const pg_flight& flight,
                                bool whole);
  [[nodiscard]] advice on_bind(std::string_view portal, std::string_view statement, const pg_flight& flight);
  [[nodiscard]] advice on_execute(std::string_view portal, const pg_flight& flight);
  // Every other message type.
  [[nodiscard]] advice on_other(char type, const pg_flight& flight);
  // A Parse, Bind or Execute is refused, and one that fails goes in its place. false: not before everything sent was answered.
  [[nodiscard]] bool on_refused(const pg_flight& flight);
  // What is known by now of a statement that goes through in pieces: "" or why it must not be finished.
  [[nodiscard]] static std::string_view unfit(const wire::sql_scanner::findings& text);

  // The server's messages that matter.
  void on_ready(char status);
  void on_complete(std::string_view tag);
  void on_error();
  // Something failed since the last ReadyForQuery.
  [[nodiscard]] bool failed() const { return failed_; }
  // The answer to `ask`, as SHOW gives it.
  void on_isolation(std::string_view level);

 private:
  // What a statement does to the transaction around it.
  struct effect {
    bool begins = false;
    bool ends = false;
    bool commits_inside = false;  // CALL, DO: unless in a transaction block
    bool works = false;           // anything else: needs a guard
    bool quiet = false;           // … unless in a transaction block, whose first statement to do more gets it
    bool locks = false;  // … but READ COMMITTED: it may hold tables for as long as the client pauses behind it
  };
  [[nodiscard]] static effect effect_of(const std::vector<std::string>& words);
  [[nodiscard]] static effect effect_of(const wire::sql_scanner::findings& text);
  [[nodiscard]] static std::string_view unfit(const std::vector<std::vector<std::string>>& statements);
  [[nodiscard]] static effect either(const effect& one, const effect& other);
  using effects = std::map<std::string, effect, std::less<>>;
  static void remember(effects& all, std::string_view name, const effect& e);
  [[nodiscard]] bool begin_stretch(const pg_flight& flight);
  [[nodiscard]] bool in_block(const pg_flight& flight) const;
  [[nodiscard]] advice before(const effect& e, const pg_flight& flight);

  bool guarded_ = false;
  std::optional<bool> read_committed_;  // the open transaction; asked for in front of LOCK
  // Since the last Sync or Query:
  bool in_stretch_ = false;
  bool begun_ = false;           // BEGIN was executed
  bool ended_ = false;           // COMMIT or ROLLBACK was executed
  bool failed_ = false;          // the server skips what comes up to the next Sync
  bool unnamed_parsed_ = false;  // else it is not known which statement the unnamed one is
  // By pg_name_key(); a name that was used again keeps what it was, too.
  effects statements_, portals_;
};

// The messages of a guard.
[[nodiscard]] std::string guard_messages(std::string_view sql);

}  // namespace fencegate::gate
