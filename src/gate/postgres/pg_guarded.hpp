// guard: transaction. Behind a transaction pooler no session can be armed, so each transaction is: a call of
// fencegate.guard goes in front of its first statement, and its lock on the marks holds until the transaction ends. This
// machine stands between a client and its server: it puts guards in front of the client's messages, a transaction block of
// its own around what may commit inside, and takes the replies to both out again. Pure.
//
// Rule kept: whatever may run code runs behind a guard of its own transaction. The server decides what one statement is:
// each goes to it in a Parse, which takes one only, and a simple Query is translated to Parse, Bind, Describe, Execute. All
// that is read of SQL is how a statement begins (gate/postgres/pg_statement_kind.hpp). Where it is not certain that the transaction
// of the last guard is still open, there is another guard: two are one too many, and do no harm.
//
// A segment is what the client sends up to a Sync. None leaves before everything in front of it was answered: a pooler may
// lend the server to somebody else at the first ReadyForQuery.
#pragma once

#include "gate/postgres/pg_guard_rules.hpp"
#include "wire/sql_pieces.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::gate {

// A simple Query on its way as extended messages.
struct pg_translated {
  std::string text;
  std::optional<wire::sql_pieces> rest;               // of the text, behind these two
  std::optional<wire::sql_piece> next = {}, after{};  // nullopt: there is none
  bool several = false;
  bool waits = false;  // for what was sent of it: a COPY, the isolation, or only room
  bool synced = false;
};

class pg_guarded : private pg_guard_rules {
 public:
  // `guard`: the statement that checks the token and locks the marks. `refusal`: a statement that fails and says why.
  pg_guarded(const std::string& guard, pg_session_kind at, std::function<std::string(std::string_view why)> refusal);

  // ── the client's messages
  enum class verdict : std::uint8_t {
    pass,       // `in_front`, then the message, goes to the server
    body_only,  // the same, but without the message's head
    gather,     // the message has to be there as a whole; then it is asked again
    drop,       // `in_front` goes in its place
    wait,       // the server has to speak first; then it is asked again
    malformed
  };
  // The message's body as far as it is there: of Query, Parse, Bind, Describe, Execute and Close at least
  // limits::pg_statement_buffered_bytes_max bytes, or all.
  [[nodiscard]] verdict on_message(char type, std::string_view body, std::size_t body_bytes);
  // The same, where the message is refused by one who knows why: the statement that `refusal` makes fails in its place.
  [[nodiscard]] verdict on_refused(char type, const std::function<std::string()>& refusal);
  std::string in_front;
  // Goes to the server at the next place between two messages.
  std::string behind;

  // ── the server's messages, but for ParameterStatus
  enum class passage : std::uint8_t {
    pass,
    drop,
    replace,  // by `reply`
    broken    // it answers nothing that was asked
  };
  [[nodiscard]] passage on_reply(char type, std::string_view body);
  std::string reply;
  // What stands in front of the next message to the client: of a translated Query, as the server itself does, success is
  // told when it is committed.
  [[nodiscard]] std::string take_held(char next);
  // What comes next answers a statement of the machine's.
  [[nodiscard]] bool own_turn() const { return !expected_.empty() && expected_.front().what == asked::own; }
  // … a guard.
  [[nodiscard]] bool guard_turn() const { return own_turn() && expected_.front().does == task::guard; }
  void on_parameter(std::string_view name, std::string_view value);

  // ── what is in flight
  // Everything was answered, and the last answer was ReadyForQuery.
  [[nodiscard]] bool idle() const { return expected_.empty() && !segment_.open; }
  // A ReadyForQuery is owed to the client.
  [[nodiscard]] bool owes_ready() const;
  // Messages were sent without a Sync behind them, or the server reads COPY data.
  [[nodiscard]] bool unsynced() const { return segment_.open || copy_in_; }
  [[nodiscard]] std::size_t size() const { return expected_.size(); }
  [[nodiscard]] char status() const { return status_; }
  // Since the last ReadyForQuery, which said that a transaction is open, none was ended: when the session
  // ends now with an error, what it did in that transaction was not applied.
  [[nodiscard]] bool uncommitted() const { return status_ != 'I' && !left_; }
  // Bytes of a Query that is being sent piece by piece.
  [[nodiscard]] std::size_t translates() const { return query_ ? query_->text.size() : 0; }

 private:
  enum class asked : std::uint8_t { parse, bind, describe, execute, close, sync, query, call, own };
  enum class task : std::uint8_t { none, guard, begin, commit, rollback, isolation, refusal };

  // What the server owes an answer.
  struct entry {
    asked what;
    task does = task::none;                     // own
    bool of_query = false;                      // a part of a translated Query
    bool quiet = false;                         // its ReadyForQuery is not the client's
    bool opens = false;                         // nor is this one, if a function call may go now
    kind runs = kind::unsure;                   // parse, execute, query
    std::string name = {};                      // parse, close of a statement: by wire::pg_name_key()
    std::size_t at = 0;                         // of_query: where the statement stands in the message
    std::string_view replies = {};              // own: to its messages; a row may come in front of CommandComplete
    std::size_t answered = 0;                   // own: how many of them have come
    std::optional<std::uint64_t> unnamed = {};  // it changes the statement without a name: to this of `unnamed_`
  };

  // pg_guarded_own.cpp
  struct own_statement {
    std::string messages;
    std::string_view replies;
  };
  [[nodiscard]] static own_statement own_messages(std::string_view sql);
  [[nodiscard]] static own_statement unnamed_messages(std::string_view sql);
  void send_own(std::string_view sql, task does);
  void send_guard();
  void changes_unnamed(bool clients);
  [[nodiscard]] std::optional<std::uint64_t> change_of(bool changes) const {
    return changes ? std::optional(unnamed_) : std::nullopt;
  }
  void unnamed_changed(const entry& by);
  void undo_unnamed(const entry& failed);
  [[nodiscard]] bool is_kept_guard(std::string_view name) const;
  // pg_guarded.cpp: what is sent
  [[nodiscard]] bool begin_segment();
  void end_segment(bool of_query);
  [[nodiscard]] std::optional<verdict> in_its_way(kind what);
  [[nodiscard]] verdict ask_isolation();
  void refuse(std::string_view why);
  void executed(kind what);
  void send(char type, std::string_view body, entry e);
  void expect(entry e);
  [[nodiscard]] bool all_answered();
  [[nodiscard]] verdict skip();
  [[nodiscard]] verdict refused(std::string_view why);
  [[nodiscard]] verdict on_sync();
  [[nodiscard]] verdict on_parse(std::string_view body, bool whole);
  [[nodiscard]] verdict on_bind(std::string_view body);
  [[nodiscard]] verdict on_describe(std::string_view body);
  [[nodiscard]] verdict on_execute(std::string_view body);
  [[nodiscard]] verdict on_close(std::string_view body);
  // pg_guarded_query.cpp: what stands for itself
  [[nodiscard]] std::optional<verdict> not_yet();
  [[nodiscard]] verdict refuse_alone(const std::string& sql);
  [[nodiscard]] verdict on_query(std::string_view body, std::size_t body_bytes);
  [[nodiscard]] verdict on_large_query(kind what, std::size_t body_bytes);
  [[nodiscard]] verdict translate(std::string_view sql);
  [[nodiscard]] bool passes_as_it_is(kind what) const;
  [[nodiscard]] verdict on_call();
  void send_piece(kind what, std::size_t at);
  void send_pieces();
  // pg_guarded_copy.cpp
  // It may begin to read data from the client.
  [[nodiscard]] static bool may_turn(const entry& e) {
    const bool runs = e.what == asked::execute || e.what == asked::query;
    return runs && (e.runs == kind::copy || e.runs == kind::named || e.runs == kind::unknown);
  }
  [[nodiscard]] verdict on_data(char type);
  [[nodiscard]] verdict on_unexpected_in_copy(char type);
  [[nodiscard]] passage on_copy_in();
  // pg_guarded_replies.cpp
  [[nodiscard]] passage judge_reply(char type, std::string_view body);
  [[nodiscard]] passage on_own_reply(char type, std::string_view body);
  [[nodiscard]] passage on_notice(std::string_view body) const;
  [[nodiscard]] passage answered();
  [[nodiscard]] passage on_described(char type);
  [[nodiscard]] passage on_complete(char type, std::string_view body);
  [[nodiscard]] passage on_ready(std::string_view body);
  [[nodiscard]] passage on_error(std::string_view body);
  void note_tag(std::string_view tag);
  [[nodiscard]] passage with_position(std::string_view body, std::size_t at);

  const own_statement guard_, guard_parsed_, guard_kept_;  // under a name; without one; that was parsed there before
  const std::function<std::string(std::string_view)> refusal_;

  std::deque<entry> expected_;          // bounded by limits::replies_awaited_max, see the engine
  char status_ = 'I';                   // as the last ReadyForQuery said
  bool guard_holds_ = false;            // the open transaction has a guard, whose reply was seen
  bool left_ = false;                   // the transaction of the last ReadyForQuery was ended
  std::optional<bool> read_committed_;  // the open transaction
  bool skipping_ = false;               // the server skips everything up to a Sync, and so does the machine
  bool own_open_ = false;               // the server is in a block of the machine's
  std::string held_;                    // the last CommandComplete of a translated Query
  bool copy_in_ = false;                // the server reads COPY data
  bool sync_held_ = false;              // … and the client has sent a Sync, which means nothing there
  bool flushed_ = false;                // what is in flight will be answered without a Sync
  std::optional<pg_translated> query_;
  bool calls_ = false;             // a function call is under way, or what has to stand in front of it
  bool call_failed_ = false;       // … and the client has its error
  bool call_is_answered_ = false;  // it will not be sent, since its guard failed
  bool backslashes_ = false;
  bool utf8_ = true;

  // The server's statement without a name. Of a direct session it is the guard where the client leaves it free: SQL cannot name
  // it, so that only what is sent through here changes it. `unnamed_`: how often that was; `kept_`: its value where the last
  // change was a guard's Parse, whose ParseComplete came.
  std::uint64_t unnamed_ = 0;
  std::optional<std::uint64_t> kept_;
  bool unnamed_is_clients_ = false;
  // Both as the server has last answered: what was sent since may be skipped.
  std::uint64_t unnamed_seen_ = 0;
  bool clients_seen_ = false;
};

}  // namespace fencegate::gate
