// A PostgreSQL server as far as a fence is concerned: transactions, pipelines, COPY, prepared statements, arms that end
// older sessions, guards that lock the mark, what commits inside of itself. It knows some thirty statements by their texts,
// and is honest: what it applied, and under which token, is known. Its answers wait until they are asked for. No gtest here.
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

  // A pooler lends a session on which the name means something else: true where that can be.
  bool lend(const std::string& name, const std::string& sql) {
    if (!pooled || block_ || unsynced_ || !pending_.empty() || gone_) return false;
    if (texts_.contains(name)) texts_[name] = sql;
    return true;
  }

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
    block_ = failed_ = dirty_ = savepoint_ = read_committed_ = false;
    guard_ = -1;
    portals_.clear();
    hidden_end_.clear();
  }

  bool fail(std::string_view state) {
    hidden_end_.clear();
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
    if (type == 'Q' || type == 'F') {
      // From version 18 on it would go on with their transaction, and not end it.
      if (pooled && !untagged && unsynced_) violations.push_back("behind unsynced messages: " + body);
      unsynced_ = false;
    }
    if (type == 'Q') {
      texts_.erase("");
      run_query(body.substr(0, body.find('\0')));
      return;
    }
    if (type == 'F') {
      if (failed_ ? fail("25P02") : write("F")) {
        answer(function_result());
        finish();
      }
      return ready();
    }
    if (type == 'S') {
      skips_ = unsynced_ = false;
      finish();
      return ready();
    }
    if (std::string_view("PBDEC").find(type) == std::string_view::npos) return;
    unsynced_ = true;
    if (!extended(type, body)) skips_ = true;
  }

  // An implicit transaction ends with its message.
  void finish() {
    if (const std::string end = std::exchange(hidden_end_, ""); !end.empty()) {
      if (end.starts_with("ROLLBACK TO")) {
        if (savepoint_) guard_ = savepoint_guard_;
        return;
      }
      end_quietly(end);
    }
    if (!block_) commit();
  }

  void run_query(std::string_view text) {
    while (true) {
      const auto end = text.starts_with("DO LANGUAGE") ? text.npos : text.find(';');
      const auto one = text.substr(0, end);
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
      if (several || words_of(second).starts_with("SELEC ")) return fail("42601");
      if (!reads(second)) return false;
      texts_[first] = second;
      answer(parse_complete());
    } else if (type == 'B') {
      if (!texts_.contains(second)) return fail("26000");
      if (!reads(texts_[second])) return false;
      portals_[first] = texts_[second];
      answer(bind_complete());
    } else if (type == 'D') {
      const bool of_statement = first.starts_with('S');
      const auto& all = of_statement ? texts_ : portals_;
      const auto known = all.find(first.empty() ? first : first.substr(1));
      if (known == all.end()) return fail(of_statement ? "26000" : "34000");
      if (!reads(known->second)) return false;
      if (of_statement) answer(wire::encode_pg_message('t', "\0\0"s));
      answer(no_data());
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

  // Behind blanks and comments.
  static std::string_view words_of(std::string_view sql) {
    while (sql.starts_with(' ') || sql.starts_with("/*"))
      sql.remove_prefix(sql.starts_with(' ') ? 1 : std::min(sql.size(), sql.find("*/") + 2));
    return sql;
  }

  // Parse, Bind and Describe have a statement analysed and planned, which calls functions that write.
  bool reads(const std::string& sql) {
    const auto words = words_of(sql);
    const auto begins = [words](std::string_view word) { return words.starts_with(word); };
    const bool ends = begins("ROLLBACK") || begins("COMMIT") || begins("EXECUTE");
    if (failed_ && !ends) return fail("25P02");
    return begins("INSERT") || begins("COPY") ? write(sql) : true;
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

  bool run(const std::string& text) {
    const std::string sql(words_of(text));
    const auto begins = [&sql](std::string_view words) { return sql.starts_with(words); };
    if (begins("ROLLBACK TO")) {
      if (!block_ || !savepoint_) return fail("3B001");
      failed_ = false;
      guard_ = savepoint_guard_;  // locks taken behind it are gone
      answer(complete("ROLLBACK"));
      return true;
    }
    if (begins("COMMIT") || begins("ROLLBACK")) return end_transaction(sql);
    if (failed_ && !begins("EXECUTE s")) return fail("25P02");
    if (begins("DO LANGUAGE")) return fail(between(sql, "ERRCODE='", "'"));
    if (begins("SELEC ")) return fail("42601");
    if (sql.find("fencegate.arm_all(") != sql.npos) return arm(sql);
    if (begins("SELECT fencegate.guard_one_under(")) return guard(sql);
    if (begins("SELECT pg_catalog.pg_backend_pid()")) answer(row({"4097"}));
    if (begins("SHOW transaction_isolation")) answer(row({keeps_snapshot() ? "serializable" : "read committed"}));
    if (begins("SET TRANSACTION")) {
      if (guard_ >= 0 || dirty_) return fail("25001");
      if (block_) read_committed_ = true;
    }
    if (begins("LOCK") && !lock(sql)) return false;
    if (begins("BEGIN")) {
      if (block_) answer(warning_of("25001"));
      block_ = true;
    }
    if (begins("SAVEPOINT")) {
      if (!block_) return fail("25P01");
      savepoint_ = true;
      savepoint_guard_ = guard_;
    }
    if (begins("PREPARE TRANSACTION") && pooled && !untagged) violations.push_back("prepared: " + sql);
    if (begins("PREPARE s")) return prepare_s(sql);
    if (begins("EXECUTE s")) return execute_s();
    if (begins("DEALLOCATE ALL")) texts_.clear();
    if (begins("SET name ")) answer(parameter("application_name", sql.substr(9)));
    const bool calls = begins("DO ") || begins("CALL ");
    if (begins("INSERT") || begins("COPY") || calls) {
      if (!write(text)) return false;
    }
    if (calls && !block_) {
      commit();
      write(text);
    }
    if (calls && sql.find("fail") != sql.npos) return fail("22012");
    if (begins("COPY")) {
      copies_ = true;
      answer(copy_in());
      return true;
    }
    // A function that does EXECUTE 'EXECUTE s': its transaction ends with the message, and no tag says so.
    const bool hides = begins("SELECT f()") && block_ && texts_.contains("s");
    if (hides && (texts_["s"].starts_with("COMMIT") || texts_["s"].starts_with("ROLLBACK"))) hidden_end_ = texts_["s"];
    const std::string word = sql.substr(0, sql.find(' '));
    answer(complete(begins("DEALLOCATE") ? sql.substr(0, 14) : begins("SAVEPOINT") || calls ? word : "OK"));
    return true;
  }

  bool end_transaction(const std::string& sql) {
    const bool chains = sql.find(" AND CHAIN") != sql.npos;
    if (chains && !block_) return fail("25P01");
    if (!block_) answer(warning_of("25P01"));
    answer(complete(end_quietly(sql) ? "COMMIT" : "ROLLBACK"));
    return true;
  }

  // true: it was committed.
  bool end_quietly(const std::string& sql) {
    const bool kept = sql.starts_with("COMMIT") && !failed_;
    const bool chains = sql.find(" AND CHAIN") != sql.npos;
    const bool read_committed = read_committed_;
    kept ? commit() : roll_back();
    block_ = chains;
    read_committed_ = chains && read_committed;
    return kept;
  }

  [[nodiscard]] bool keeps_snapshot() const { return serializable && !read_committed_; }

  bool lock(const std::string& sql) {
    if (!block_) return fail("25P01");
    if (pooled && !untagged && !keeps_snapshot() && guard_ < 0)
      violations.push_back("no raise would end the one behind " + sql);
    return true;
  }

  bool prepare_s(const std::string& sql) {
    if (texts_.contains("s")) return fail("42P05");
    texts_["s"] = sql.substr(sql.find(" AS ") + 4);
    answer(complete("PREPARE"));
    return true;
  }

  // In a message of several statements, a COMMIT that EXECUTE runs takes effect at its end: left out there; so is what
  // EXECUTEs itself.
  bool execute_s() {
    const std::string text = texts_["s"];
    const auto words = words_of(text);
    if (words.starts_with("EXECUTE")) return fail("0A000");
    if (!pooled)
      for (const char* no : {"COMMIT", "ROLLBACK", "BEGIN"})
        if (words.starts_with(no)) return fail("0A000");
    // What EXECUTE runs may not commit inside.
    if (!block_ && (words.starts_with("DO ") || words.starts_with("CALL "))) return fail("2D000");
    return text.empty() ? fail("26000") : run(text);
  }

  bool write(const std::string& sql) {
    const std::int64_t under = pooled ? guard_ : armed_;
    const std::string tag = pooled ? "" : between(sql, "/*fence:orders=", "*/");
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
    answer(row({"orders", std::to_string(token), raises ? "t" : "f", "0", "0"}));
    answer(complete("SELECT 1"));
    return true;
  }

  bool guard(const std::string& sql) {
    const auto token = std::stoll(between(sql, "','", "'"));
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
  std::int64_t armed_ = -1, guard_ = -1, savepoint_guard_ = -1;
  bool opened_ = false, gone_ = false;
  bool block_ = false, failed_ = false, dirty_ = false, savepoint_ = false;
  bool read_committed_ = false;  // by SET TRANSACTION
  std::string hidden_end_;       // what a function has run
  bool skips_ = false, copies_ = false, simple_copy_ = false, unsynced_ = false;
};

}  // namespace fencegate::test
