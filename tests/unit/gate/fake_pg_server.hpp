// A PostgreSQL server as far as a fence is concerned: transactions, pipelines, COPY, prepared statements, arms that end
// older sessions, guards that lock the mark. It knows some twenty statements by their texts, and is honest: what it
// applied, and under which token, is known. Its answers wait until they are asked for. No gtest here.
#pragma once

#include "fake_pg_host.hpp"
#include "pg_words.hpp"
#include "wire/pg_bytes.hpp"

#include <deque>
#include <map>
#include <utility>

namespace fencegate::test {

class fake_pg_server {
 public:
  bool pooled = false;    // guard: transaction, behind a pooler
  bool untagged = false;  // a session without a token may write
  bool serializable = false;
  std::int64_t mark = -1;

  std::vector<std::string> violations;  // writes that should not have been

  // Reads and does what the machine has sent.
  void read(std::string_view bytes) {
    pending_ += bytes;
    if (!opened_) {
      if (pending_.size() < 4 || pending_.size() < wire::read_u32(pending_)) return;
      pending_.erase(0, wire::read_u32(pending_));
      opened_ = true;
      answer(authentication_ok() + parameter("application_name", ""));
      answer(backend_key());
      ready();
    }
    while (!gone_) {
      const auto head = wire::decode_pg_head(pending_);
      if (!head || !*head || pending_.size() < wire::pg_head_bytes + (*head)->body_bytes) return;
      const std::string body = pending_.substr(wire::pg_head_bytes, (*head)->body_bytes);
      pending_.erase(0, wire::pg_head_bytes + body.size());
      on_message((*head)->type, body);
    }
  }

  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  std::string next_answer() {
    auto [bytes, commits] = std::move(answers_.front());
    answers_.pop_front();
    if (bytes[0] == 'Z') told_commits_ = commits;
    return bytes;
  }
  // Something was committed since the last ReadyForQuery that was taken.
  [[nodiscard]] bool applied_unheard() const { return commits_ != told_commits_; }

  // Somebody else raises the mark; what is in the way is ended, or (a guard's lock) makes the raise wait: false.
  bool raise_to(std::int64_t token) {
    if (token <= mark) return true;
    if (guard_ >= 0) return false;
    mark = token;
    if (!pooled && armed_ >= 0 && armed_ < mark) end();
    return true;
  }
  // The session is over, what was not committed is not applied.
  void end() {
    gone_ = true;
    roll_back();
  }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] std::int64_t armed() const { return armed_; }
  void drop_answers() { answers_.clear(); }
  // It was ended behind a commit, before it could say that it is ready.
  void drop_last_ready() {
    if (!answers_.empty() && answers_.back().first[0] == 'Z') answers_.pop_back();
  }

 private:
  void answer(std::string bytes) { answers_.emplace_back(std::move(bytes), commits_); }
  void ready() { answer(test::ready(!block_ ? 'I' : failed_ ? 'E' : 'T')); }

  void commit() {
    commits_ += dirty_ ? 1 : 0;
    leave();
  }
  void roll_back() { leave(); }
  void leave() {
    block_ = failed_ = dirty_ = savepoint_ = false;
    guard_ = -1;
    portals_.clear();
  }

  bool fail(std::string_view state) {
    answer(error_of("ERROR", state));
    if (block_)
      failed_ = true;
    else
      roll_back();
    return false;
  }

  void on_message(char type, const std::string& body) {
    if (skips_ && type != 'S') return;
    if (copies_ && on_copy(type)) return;
    if (type == 'Q') {
      texts_.erase("");
      run_query(body.substr(0, body.find('\0')));
      return;
    }
    if (type == 'F') {
      if (failed_ ? fail("25P02") : write("F")) finish();
      return ready();
    }
    if (type == 'S') {
      skips_ = false;
      finish();
      return ready();
    }
    if (std::string_view("PBEC").find(type) == std::string_view::npos) return;
    if (!extended(type, body)) skips_ = true;
  }

  // An implicit transaction ends with its message.
  void finish() {
    if (!block_) commit();
  }

  void run_query(std::string_view text) {
    while (true) {
      const auto end = text.starts_with("DO LANGUAGE") ? text.npos : text.find(';');
      auto one = text.substr(0, end);
      while (one.starts_with(' ')) one.remove_prefix(1);
      const bool worked = run(std::string(one));
      if (copies_) {
        simple_copy_ = true;
        return;
      }
      if (!worked || end == text.npos) break;
      text.remove_prefix(end + 1);
    }
    finish();
    ready();
  }

  bool extended(char type, const std::string& body) {
    const std::string first = body.substr(0, body.find('\0'));
    const std::string rest = body.size() > first.size() ? body.substr(first.size() + 1) : "";
    const std::string second = rest.substr(0, rest.find('\0'));
    if (type == 'P') {
      if (first.empty()) texts_.erase("");
      if (texts_.contains(first)) return fail("42P05");
      const bool several = second.find(';') != second.npos && !second.starts_with("DO LANGUAGE");
      if (several || second.starts_with("SELEC ")) return fail("42601");
      texts_[first] = second;
      answer(parse_complete());
    } else if (type == 'B') {
      if (!texts_.contains(second)) return fail("26000");
      portals_[first] = texts_[second];
      answer(bind_complete());
    } else if (type == 'C') {
      if (!first.empty()) (first[0] == 'S' ? texts_ : portals_).erase(first.substr(1));
      answer(close_complete());
    } else {
      const auto at = portals_.find(first);
      if (at == portals_.end()) return fail("34000");
      simple_copy_ = false;
      return run(std::string(at->second));
    }
    return true;
  }

  // true: the message is done with.
  bool on_copy(char type) {
    if (type == 'd' || type == 'H' || type == 'S') return true;
    copies_ = false;
    const bool worked = type == 'c';
    if (worked)
      answer(complete("COPY 1"));
    else
      fail("57014");
    if (simple_copy_) {
      finish();
      ready();
    } else {
      skips_ = !worked;
    }
    return true;
  }

  bool run(const std::string& sql) {
    const auto begins = [&sql](std::string_view words) { return sql.starts_with(words); };
    if (begins("ROLLBACK TO")) {
      if (!block_ || !savepoint_) return fail("3B001");
      failed_ = false;
    } else if (begins("COMMIT") || begins("ROLLBACK")) {
      const bool kept = begins("COMMIT") && !failed_;
      kept ? commit() : roll_back();
      answer(complete(kept ? "COMMIT" : "ROLLBACK"));
      return true;
    } else if (failed_) {
      return fail("25P02");
    }
    if (begins("DO LANGUAGE")) return fail(between(sql, "ERRCODE='", "'"));
    if (begins("SELEC ")) return fail("42601");
    if (sql.find("fencegate.arm_all(") != sql.npos) return arm(sql);
    if (begins("SELECT fencegate.guard(")) return guard(sql);
    if (begins("SHOW transaction_isolation")) answer(row({serializable ? "serializable" : "read committed"}));
    if (begins("LOCK")) {
      if (!block_) return fail("25P01");
      const bool endable = !pooled || untagged || serializable || guard_ >= 0;
      if (!endable) violations.push_back("no raise would end the one behind " + sql);
    }
    if (begins("BEGIN")) block_ = true;
    if (begins("SAVEPOINT")) {
      if (!block_) return fail("25P01");
      savepoint_ = true;
    }
    if (begins("EXECUTE s")) return execute_s();
    if (begins("DEALLOCATE ALL")) texts_.clear();
    if (begins("SET name ")) answer(parameter("application_name", sql.substr(9)));
    if (begins("INSERT") || begins("DO ") || begins("COPY")) {
      if (!write(sql)) return false;
    }
    if (begins("DO ") && !block_) commit();
    if (begins("COPY")) {
      copies_ = true;
      answer(copy_in());
      return true;
    }
    answer(complete(begins("DEALLOCATE") || begins("ROLLBACK") || begins("SAVEPOINT") ? sql.substr(0, 14)
                    : begins("DO ")                                                   ? "DO"
                                                                                      : "OK"));
    return true;
  }

  // A COMMIT that EXECUTE runs takes effect at the end of its message, hence is left out; so is what EXECUTEs itself.
  bool execute_s() {
    const std::string text = texts_["s"];
    for (const char* no : {"COMMIT", "ROLLBACK", "BEGIN", "EXECUTE"})
      if (text.starts_with(no)) return fail("0A000");
    return text.empty() ? fail("26000") : run(text);
  }

  bool write(const std::string& sql) {
    const std::int64_t under = pooled ? guard_ : armed_;
    const std::string tag = between(sql, "/*fence:orders=", "*/");
    if (under < 0 && !(untagged && tag.empty())) violations.push_back("without a token: " + sql);
    if (under >= 0 && under < mark) violations.push_back("stale: " + sql);
    if (!tag.empty() && tag != std::to_string(under))
      violations.push_back("under " + std::to_string(under) + ": " + sql);
    dirty_ = true;
    return true;
  }

  bool arm(const std::string& sql) {
    const auto token = std::stoll(between(sql, "text[],ARRAY['", "']"));
    if (token < mark) return fail("ZF001");
    const bool raises = token > mark;
    armed_ = mark = token;
    answer(wire::encode_pg_message('T', "\0\0"s));
    answer(row({"orders", std::to_string(token), raises ? "t" : "f", "0"}));
    answer(complete("SELECT 1"));
    return true;
  }

  bool guard(const std::string& sql) {
    const auto token = std::stoll(between(sql, "text[],ARRAY['", "']"));
    if (token < mark) return fail("ZF001");
    guard_ = mark = token;
    answer(row({""}));
    answer(complete("SELECT 1"));
    return true;
  }

  std::string pending_;
  std::deque<std::pair<std::string, std::uint64_t>> answers_;  // with the commits up to there
  std::uint64_t commits_ = 0, told_commits_ = 0;
  std::map<std::string, std::string> texts_, portals_;
  std::int64_t armed_ = -1, guard_ = -1;
  bool opened_ = false, gone_ = false;
  bool block_ = false, failed_ = false, dirty_ = false, savepoint_ = false;
  bool skips_ = false, copies_ = false, simple_copy_ = false;
};

}  // namespace fencegate::test
