// What a PostgreSQL session has in flight: which of the client's messages will be answered by a ReadyForQuery that has not
// come yet, and in which transaction state the server stands. Pure.
//
// ReadyForQuery is counted, not completions (https://www.postgresql.org/docs/15/protocol-flow.html). Two things make the
// count hard. While the server reads COPY data it ignores Sync, also one that was sent before it had begun to. And behind
// an error it skips everything up to the next Sync, a simple Query too. Where the count may be wrong, `certain()` is false:
// nothing is injected any more, and nothing is claimed about what was applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

namespace fencegate::gate {

class pg_flight {
 public:
  // A message of this type goes to the server.
  void on_sent(char type);
  // The gate has put a Parse and a Bind of its own in front of an Execute: their replies are not the client's.
  void on_injected_statement();
  // ParseComplete ('1') or BindComplete ('2'); true: it answers a message of the gate's.
  [[nodiscard]] bool on_statement_reply(char type);
  // The server's messages that matter. false: a ReadyForQuery that nobody asked for.
  [[nodiscard]] bool on_ready(char status);
  void on_copy_in();
  void on_error();
  void on_complete(std::string_view tag);

  // Nothing is in flight: every message was answered, and the last answer was ReadyForQuery.
  [[nodiscard]] bool idle() const { return waiting_.empty() && !unsynced_; }
  // The same, outside a transaction.
  [[nodiscard]] bool at_boundary() const { return idle() && status_ == 'I' && certain_; }
  // Extended messages were sent without a Sync behind them: the server will not say that it is ready.
  [[nodiscard]] bool unsynced() const { return unsynced_; }
  // The server reads COPY data, and the client has not ended it.
  [[nodiscard]] bool copying() const { return copying_; }
  // The COPY that is going on has ignored a Sync, behind which the client awaits ReadyForQuery.
  [[nodiscard]] bool ignores_sync() const { return eaten_ != 0; }
  // A statement of the gate's own fails everything up to the next Sync.
  [[nodiscard]] bool failing() const { return failing_; }
  // The server has read every Parse that was sent.
  [[nodiscard]] bool parses_answered() const { return certain_ && parses_.answered == parses_.sent; }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  [[nodiscard]] char status() const { return status_; }
  [[nodiscard]] bool certain() const { return certain_; }
  // Since the last ReadyForQuery, which said that a transaction is open, none was ended: when the session
  // ends now with an error, what it did in that transaction was not applied.
  [[nodiscard]] bool uncommitted() const { return certain_ && (status_ == 'T' || status_ == 'E') && !left_; }

 private:
  enum class kind : std::uint8_t { query, sync, copy_end };
  struct sent {
    kind what;
    std::uint64_t runs = 0;  // Query and Execute messages up to it: only such a one begins a COPY
    // All Parse and Bind messages sent before it: it is answered when they are, or were skipped.
    std::uint64_t parses = 0, binds = 0;
  };
  // Of one type of message: how many were sent, how many were answered or skipped, and which are the gate's.
  struct count {
    std::uint64_t sent = 0, answered = 0;
    std::deque<std::uint64_t> ours;
    [[nodiscard]] bool on_answer();
    void skip_to(std::uint64_t n);
  };

  std::deque<sent> waiting_;  // bounded by limits::replies_awaited_max, see the session
  char status_ = 'I';
  bool unsynced_ = false;
  bool copying_ = false;
  bool failing_ = false;
  std::size_t eaten_ = 0;    // Syncs that were taken for ignored by the COPY that is going on
  std::size_t surplus_ = 0;  // of COPYs that failed: each may be answered, or not
  sent last_eaten_{};
  bool query_unsynced_ = false;  // a simple Query behind extended messages without a Sync
  bool left_ = false;            // the transaction of the last ReadyForQuery was ended
  bool certain_ = true;
  std::uint64_t runs_ = 0;
  count parses_, binds_;
};

}  // namespace fencegate::gate
