// Watches both sides of a PostgreSQL session machine and notes what it may not do. It judges by the bytes alone:
//
//   - Nothing of a client whose connection is tagged goes to the server before the server has proven the token: the row
//     of the arm with this very token, no error, ReadyForQuery outside a transaction. A statement with a tag of its own
//     goes under that token only. With guard: transaction, what works goes behind a guard of its own transaction.
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
    if (!arming_.empty()) note("a message behind an arm: " + said);
    if (proven_.empty() && !untagged) note("a message before the proof: " + said);
    if (type == 'Q' || type == 'P') check_tag(said, between(body, "/*fence:orders=", "*/"));
    if (type == 'P') {
      ++parses_sent_;
      texts_[std::string(body.substr(0, body.find('\0')))] = std::string(body.substr(body.find('\0') + 1));
    }
    // With something in flight the server may skip a Close behind an error, and keep the statement.
    const bool at_rest = awaited_.empty() && !unsynced_ && !copying_;
    if (type == 'C' && at_rest && body.starts_with('S')) texts_.erase(std::string(body.substr(1, body.find('\0') - 1)));
    if (type == 'B') on_bind(body);
    if (pooled && !proven_.empty()) check_guard(type, body);
    if (type == 'Q' || type == 'S' || type == 'F') {
      ++asked_;
      // In a COPY a Sync means nothing; behind a guard that failed it answers for the Query, which was skipped.
      const bool answers = type != 'S' || (!copying_ && !rides_);
      if (answers) awaited_.push_back(parses_sent_);
      rides_ = type == 'Q' && std::exchange(guard_just_sent_, false);
    }
    if (std::string_view("PBEDC").find(type) != std::string_view::npos) unsynced_ = true;
    if (type == 'Q' || type == 'S' || type == 'F') unsynced_ = false;
  }

  void check_tag(const std::string& said, const std::string& token) {
    if (!pooled && !token.empty() && token != proven_) note("under token " + proven_ + ": " + said);
  }

  void on_bind(std::string_view body) {
    if (std::count(body.begin(), body.end(), '\0') < 2) return;
    const auto portal = body.substr(0, body.find('\0'));
    auto statement = body.substr(portal.size() + 1);
    statement = statement.substr(0, statement.find('\0'));
    const auto text = texts_[std::string(statement)];
    portals_[std::string(portal)] = text;
    check_tag("B " + text, between(text, "/*fence:orders=", "*/"));
  }

  static bool ends(std::string_view sql) {
    return sql.starts_with("COMMIT") || (sql.starts_with("ROLLBACK") && !sql.starts_with("ROLLBACK TO"));
  }

  void check_guard(char type, std::string_view body) {
    if (type != 'Q' && type != 'E') return;
    auto text = std::string(body.substr(0, body.find('\0')));
    if (type == 'E') text = portals_[text];
    if (text.starts_with("SELECT fencegate.guard(")) {
      covered_ = guard_just_sent_ = true;
      return;
    }
    const auto begins = [&text](std::string_view word) { return text.starts_with(word); };
    const bool quiet = (begins("SET ") || begins("SHOW ") || begins("LOCK ")) && text.find(';') == text.npos;
    const bool bare =
        quiet || ends(text) || text.starts_with("BEGIN") || text.starts_with("DO LANGUAGE plpgsql $fencegate$");
    if (!bare && !covered_ && status_ != 'E') note("no guard in front of " + text);
    if (ends(text)) covered_ = false;
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
      if (status_ != 'T') covered_ = false;
      ended_ = fatal_ = rides_ = false;
    }
    if (type == 'G' || type == 'W') copying_ = true;
    if (type == '1') ++parses_answered_;
    // One that was still on its way may have come behind it.
    const bool dropped = type == 'C' && (said == "C DEALLOCATE ALL" || said == "C DISCARD ALL");
    if (dropped && parses_answered_ >= parses_sent_) texts_.clear();
    if (type == 'C')
      for (const char* tag : {"C COMMIT", "C ROLLBACK", "C PREPARE TRANSACTION", "C CALL", "C DO"})
        if (said == tag) ended_ = true;
    if (type == 'E' && said.find("FATAL") != std::string::npos) fatal_ = true;
  }

  void on_arm_reply(char type, std::string_view body) {
    if (std::string_view("NSA").find(type) != std::string_view::npos) return;
    if (type == 'D') {
      const auto cells = wire::decode_pg_row(body);
      const bool right = cells && cells->size() == 4 && (*cells)[0] == "orders" && (*cells)[1] == arming_;
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
    if (type == 'Z' && !last_word_ && ++ready_ > asked_ + 1 + (server_said_ ? 1 : 0))
      note("a ReadyForQuery that nobody asked for");
    if (type != 'E') return;
    const auto e = wire::decode_pg_error(body);
    if (!e) return note("an error that cannot be read");
    server_said_ = server_said_ || e->severity == "FATAL";
    const bool own = e->severity == "FATAL" && (e->sqlstate.starts_with("ZF") || e->sqlstate.starts_with("08"));
    if (!own) return;
    last_word_ = true;
    const bool rolled_back = (status_ == 'T' || status_ == 'E') && fatal_ && !ended_;
    const bool open = !awaited_.empty() || unsynced_;
    if (e->detail.find("\"applied\":\"no\"") != std::string::npos && open && !rolled_back)
      note("not applied, it says: " + e->message);
  }

  std::string fed_, sent_, told_, first_;
  bool last_ready_ = false;
  bool server_said_ = false;  // the server's own FATAL was passed on: the gate answers behind it, too
  bool opened_ = false;
  std::string arming_, proven_;  // tokens
  bool row_ = false, failed_ = false;
  std::map<std::string, std::string> texts_, portals_;  // SQL by name
  std::deque<std::size_t> awaited_;                     // ReadyForQuery, each with the parses sent before it
  std::size_t parses_sent_ = 0, parses_answered_ = 0;   // or skipped
  std::size_t asked_ = 0, ready_ = 0;
  bool unsynced_ = false;
  bool copying_ = false;  // since then, no ReadyForQuery
  char status_ = 'I';
  bool ended_ = false, fatal_ = false;
  bool covered_ = false;
  bool guard_just_sent_ = false, rides_ = false;  // … a Query behind it
  bool last_word_ = false;
};

}  // namespace fencegate::test
