// Watches both sides of a PostgreSQL session machine and notes what it may not do. It judges by the bytes alone:
//
//   - Nothing of a client whose connection is tagged goes to the server before the server has proven the token: the row
//     of the arm with this very token, no error, ReadyForQuery outside a transaction. A statement with a tag of its own
//     goes under that token only.
//   - With guard: transaction, whatever Parse, Bind, Describe, Execute, Query or FunctionCall may run goes behind a guard of
//     its own transaction, what may commit inside goes in a block, and nothing goes before the last ReadyForQuery came.
//   - The client gets whole messages, no ReadyForQuery more than it asked for, and of the gate's own FATAL errors at most
//     one, as the last word.
//   - "applied: no" is said only where the server cannot have applied anything.
//
// No gtest here, so that a fuzz target can use it.
#pragma once

#include "pg_words.hpp"
#include "wire/pg_bytes.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace fencegate::test {

class pg_witness {
 public:
  bool pooled = false;    // guard: transaction
  bool lends = true;      // … in which a name of another transaction may be another client's
  bool untagged = false;  // the connection brought no tag, and need not

  std::vector<std::string> violations;

  // From the server to the machine, before it gets them.
  void fed(std::string_view bytes) {
    each(fed_, bytes, [this](char type, std::string_view body) { on_fed(type, body); });
  }
  // From the machine to the server.
  void sent(std::string_view bytes) {
    if (!opened_) {  // the first packet has no type
      first_ += bytes;
      const std::size_t size = first_.size() < 4 ? 4 : wire::read_u32(first_);
      if (first_.size() < size) return;
      opened_ = true;
      const std::string rest = first_.substr(size);
      return sent(rest);
    }
    each(sent_, bytes, [this](char type, std::string_view body) { on_sent(type, body); });
  }
  // From the machine to the client.
  void told(std::string_view bytes) {
    each(told_, bytes, [this](char type, std::string_view body) { on_told(type, body); });
  }
  // The marks were raised on a connection of the gate's own.
  void raised(const std::string& token) { proven_ = token; }
  // All has been said.
  void finish(bool closing) {
    if (!told_.empty() && !closing) note("a message to the client is not whole");
  }

 private:
  struct prepared {
    std::string sql;
    std::size_t transaction = 0;
  };

  template <class Each>
  void each(std::string& pending, std::string_view bytes, Each one) {
    pending += bytes;
    for (;;) {
      const auto head = wire::decode_pg_head(pending);
      if (!head || !*head || pending.size() < wire::pg_head_bytes + (*head)->body_bytes) return;
      const std::string message = pending.substr(0, wire::pg_head_bytes + (*head)->body_bytes);
      pending.erase(0, message.size());
      one(message[0], std::string_view(message).substr(wire::pg_head_bytes));
    }
  }

  void note(std::string what) { violations.push_back(std::move(what)); }

  void on_sent(char type, std::string_view body) {
    const std::string said = words_of_client(type, body);
    if (type == 'p') return;
    if (said.starts_with("Q ARM ")) {
      if (!awaited_.empty()) note("an arm with something in flight");
      arming_ = said.substr(said.rfind(' ') + 1);
      row_ = failed_ = false;
      return;
    }
    if (said == "Q SELECT pg_catalog.pg_backend_pid()") return;  // the gate's own, before the session begins
    if (!arming_.empty()) note("a message behind an arm: " + said);
    if (proven_.empty() && !untagged) note("a message before the proof: " + said);
    if (type == 'Q' || type == 'P') check_tag(said, between(body, "/*fence:orders=", "*/"));
    if (type == 'P') {
      ++parses_sent_;
      const auto sql = body.substr(std::min(body.size(), body.find('\0') + 1));
      const prepared text{std::string(sql.substr(0, sql.find('\0'))), transaction_};
      const std::string name(body.substr(0, body.find('\0')));
      if (pooled)
        unanswered_.emplace_back(name, text);
      else
        texts_[name] = text;
    }
    // With something in flight the server may skip a Close behind an error, and keep the statement.
    const bool at_rest = awaited_.empty() && !unsynced_ && !copying_;
    if (type == 'C' && at_rest && body.starts_with('S')) texts_.erase(std::string(body.substr(1, body.find('\0') - 1)));
    if (type == 'B') on_bind(body);
    if (pooled && !proven_.empty()) {
      // A function call stands between two Syncs of the gate's.
      calls_ = calls_ || type == 'F';
      const bool begins = std::string_view("QPBDEC").find(type) != std::string_view::npos && !unsynced_;
      if (begins && !awaited_.empty() && !copying_ && !calls_) note("too early: " + said);
      check_guard(type, body);
    }
    if (type == 'Q' || type == 'S' || type == 'F') {
      ++asked_;
      // In a COPY a Sync means nothing.
      if (type != 'S' || !copying_) awaited_.push_back(parses_sent_);
    }
    if (std::string_view("PBEDC").find(type) != std::string_view::npos) unsynced_ = true;
    if (std::string_view("PBEDQFdcf").find(type) != std::string_view::npos) works_ = true;
    if (type == 'Q' || type == 'S' || type == 'F') unsynced_ = false;
  }

  void check_tag(const std::string& said, const std::string& token) {
    if (!pooled && !token.empty() && token != proven_) note("under token " + proven_ + ": " + said);
  }

  // With guard: transaction, what an error keeps from being parsed leaves its name as it was.
  prepared text_of(const std::string& name) {
    const auto sent =
        std::find_if(unanswered_.rbegin(), unanswered_.rend(), [&name](const auto& one) { return one.first == name; });
    return sent == unanswered_.rend() ? texts_[name] : sent->second;
  }

  void on_bind(std::string_view body) {
    if (std::count(body.begin(), body.end(), '\0') < 2) return;
    const auto portal = body.substr(0, body.find('\0'));
    auto statement = body.substr(portal.size() + 1);
    statement = statement.substr(0, statement.find('\0'));
    const auto known = text_of(std::string(statement));
    const auto& text = known.sql;
    // It may by now be another client's.
    const bool lent = pooled && lends && known.transaction != transaction_;
    portals_[std::string(portal)] = lent ? "?" : text;
    check_tag("B " + text, between(text, "/*fence:orders=", "*/"));
  }

  // What a statement may do to its transaction, by its first word.
  enum class effect : std::uint8_t { none, begins, ends, may_end, works, calls, anything };
  static effect effect_of(std::string_view sql) {
    while (sql.starts_with(' ') || sql.starts_with("/*"))
      sql.remove_prefix(sql.starts_with(' ') ? 1 : std::min(sql.size(), sql.find("*/") + 2));
    const auto begins = [sql](std::string_view word) { return sql.starts_with(word); };
    if (begins("COMMIT AND") || begins("ROLLBACK AND") || begins("ROLLBACK TO")) return effect::may_end;
    if (begins("SAVEPOINT") || begins("EXECUTE")) return effect::may_end;
    if (begins("COMMIT") || begins("ROLLBACK")) return effect::ends;
    if (begins("BEGIN")) return effect::begins;
    if (sql.empty() || begins("SET ") || begins("SHOW ")) return effect::none;
    for (const auto* word : {"SELECT ", "INSERT", "UPDATE", "COPY", "LOCK", "DEALLOCATE", "PREPARE s"})
      if (begins(word)) return effect::works;
    return begins("CALL ") || begins("DO ") ? effect::calls : effect::anything;
  }

  void check_guard(char type, std::string_view body) {
    if (std::string_view("QPBDEF").find(type) == std::string_view::npos) return;
    const auto first = std::string(body.substr(0, body.find('\0')));
    const bool of_statement = type == 'D' && first.starts_with('S');
    std::string text = first;
    if (type == 'P') text = text_of(first).sql;
    if (type == 'B') text = portals_[first];
    if (type == 'E') text = portals_[first];
    if (type == 'D')
      text = of_statement ? text_of(first.substr(1)).sql : portals_[first.empty() ? "" : first.substr(1)];
    if (text.find("RAISE EXCEPTION") != text.npos) return;  // the gate's own
    if (type == 'F') {
      if (status_ == 'E' && awaited_.empty() && !unsynced_) return;  // it fails
      text = "SELECT ";
    }
    const bool own = type != 'Q' && type != 'F' && text.starts_with("SELECT fencegate.guard_one_under(");
    if (type == 'E' || type == 'Q') runs_.push_back(own);
    if (own) {
      if (type == 'E') covered_ = true;
      return;
    }
    const auto does = effect_of(text);
    if (type == 'Q') {
      if (unsynced_) note("a Query behind unsynced messages: " + text);
      const auto end = text.find(';');
      if (end != text.npos && text.find_first_not_of("; ", end) != text.npos) note("several statements: " + text);
    }
    const bool bare = does == effect::none || does == effect::begins || does == effect::ends;
    const bool may_end = does == effect::may_end && (status_ == 'E' || block_);
    const bool locks = text.find("LOCK ") != text.npos && block_;  // it takes no snapshot, and writes nothing
    if (!bare && !may_end && !locks && !covered_) note("no guard in front of " + std::string(1, type) + " " + text);
    if (type != 'E' && type != 'Q') return;
    const bool wants_block = does == effect::anything || does == effect::calls;
    if (wants_block && !block_ && status_ != 'E') note("not in a block: " + text);
    if (does == effect::begins) block_ = true;
    if (does == effect::ends || does == effect::may_end || does == effect::anything) covered_ = false;
    if (does == effect::ends || does == effect::may_end) block_ = false;
  }
  void on_fed(char type, std::string_view body) {
    const auto said = words_of_server(type, body);
    if (!arming_.empty()) return on_arm_reply(type, body);
    if (type == 'Z' && body.size() == 1) {
      if (!awaited_.empty()) {
        parses_answered_ = std::max(parses_answered_, awaited_.front());
        awaited_.pop_front();
      }
      if (std::exchange(copying_, false)) {  // nor did one that was on its way
        awaited_.clear();
        unsynced_ = false;
      }
      status_ = body[0];
      unanswered_.clear();
      if (status_ != 'T') holds_ = false;
      covered_ = holds_;
      if (status_ == 'I') ++transaction_;
      if (awaited_.empty() && !unsynced_) {
        works_ = false;
        block_ = status_ == 'T';
        calls_ = false;
      }
      ended_ = fatal_ = false;
    }
    if (type == 'G' || type == 'W') copying_ = true;
    if (type == 'E') {
      covered_ = holds_ = false;
      runs_.clear();
      unanswered_.clear();
    }
    const bool ran = (type == 'C' || type == 'I' || type == 's') && !runs_.empty();
    if (ran && runs_.front()) holds_ = true;
    if (said == "C COMMIT" || said == "C ROLLBACK" || said == "C PREPARE TRANSACTION") holds_ = false;
    if (ran) runs_.pop_front();
    if (type == '1') ++parses_answered_;
    if (type == '1' && !unanswered_.empty()) {
      texts_[unanswered_.front().first] = unanswered_.front().second;
      unanswered_.pop_front();
    }
    // One that was still on its way may have come behind it.
    const bool dropped = type == 'C' && (said == "C DEALLOCATE ALL" || said == "C DISCARD ALL");
    if (dropped && parses_answered_ >= parses_sent_) texts_.clear();
    if (type == 'C')
      for (const char* tag : {"C COMMIT", "C ROLLBACK", "C PREPARE TRANSACTION", "C CALL", "C DO"})
        if (said == tag && !(pooled && tag == std::string_view("C CALL")) && !(pooled && said == "C DO")) ended_ = true;
    if (type == 'E' && said.find("FATAL") != std::string::npos) fatal_ = true;
  }

  void on_arm_reply(char type, std::string_view body) {
    if (std::string_view("NSA").find(type) != std::string_view::npos) return;
    if (type == 'D') {
      const auto cells = wire::decode_pg_row(body);
      const bool right = cells && cells->size() == 5 && (*cells)[0] == "orders" && (*cells)[1] == arming_;
      if (!right || row_) failed_ = true;
      row_ = row_ || right;
    } else if (type == 'Z') {
      if (row_ && !failed_ && body == "I") proven_ = arming_;
      arming_.clear();
    } else if (type != 'T' && type != 'C') {
      failed_ = true;
    }
  }

  void on_told(char type, std::string_view body) {
    // What is answered by the last word may never have reached the server.
    if (last_word_ && (type != 'Z' || body != "I" || std::exchange(last_ready_, true)))
      note("something behind the last word");
    // A Query that is translated was asked for before its Sync is sent.
    const std::size_t more = 1U + (server_said_ ? 1U : 0U) + (pooled ? 1U : 0U);
    if (type == 'Z' && !last_word_ && ++ready_ > asked_ + more) note("a ReadyForQuery that nobody asked for");
    if (type != 'E') return;
    const auto e = wire::decode_pg_error(body);
    if (!e) return note("an error that cannot be read");
    server_said_ = server_said_ || e->severity == "FATAL";
    const bool own = e->severity == "FATAL" && (e->sqlstate.starts_with("ZF") || e->sqlstate.starts_with("08"));
    if (!own) return;
    last_word_ = true;
    const bool rolled_back = (status_ == 'T' || status_ == 'E') && fatal_ && !ended_;
    const bool open = works_ && (!awaited_.empty() || unsynced_);
    if (e->detail.find("\"applied\":\"no\"") != std::string::npos && open && !rolled_back)
      note("not applied, it says: " + e->message);
  }

  std::string fed_, sent_, told_, first_;
  bool last_ready_ = false;
  bool server_said_ = false;  // the server's own FATAL was passed on: the gate answers behind it, too
  bool opened_ = false;
  std::string arming_, proven_;  // tokens
  bool row_ = false, failed_ = false;
  std::map<std::string, prepared> texts_;
  std::deque<std::pair<std::string, prepared>> unanswered_;  // guard: transaction
  std::map<std::string, std::string> portals_;               // SQL by name
  std::deque<std::size_t> awaited_;                          // ReadyForQuery, each with the parses sent before it
  std::size_t parses_sent_ = 0, parses_answered_ = 0;        // or skipped
  std::size_t asked_ = 0, ready_ = 0;
  bool unsynced_ = false;
  bool works_ = false;    // what is in flight is more than a Close and a Sync
  bool copying_ = false;  // since then, no ReadyForQuery
  char status_ = 'I';
  bool ended_ = false, fatal_ = false;
  bool covered_ = false, block_ = false;  // what is sent next: by a guard; in a block, as far as is certain
  bool holds_ = false;                    // a guard, by what the server has said
  std::deque<bool> runs_;                 // Query and Execute without an answer: whether it is a guard
  bool calls_ = false;
  std::size_t transaction_ = 0;
  bool last_word_ = false;
};

}  // namespace fencegate::test
