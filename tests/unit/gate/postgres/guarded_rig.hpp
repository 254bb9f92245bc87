// gate::pg_guarded on the bench, with a client that keeps what has to wait. What goes to the server and to the client is
// read as words; the machine's own statements are one word each, in brackets ([guard]; in a direct session [unnamed guard],
// and then [kept guard]):
//
//   guarded_rig rig;
//   rig.client(parse("", "INSERT") + bind_to("") + execute() + sync());
//   EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P INSERT", "B", "E", "S"));
//   rig.server(guarded() + parse_complete() + bind_complete() + complete("INSERT 0 1") + ready('I'));
//   EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C INSERT 0 1", "Z I"));
#pragma once

#include "base/limits.hpp"
#include "gate/postgres/pg_guarded.hpp"
#include "unit/gate/postgres/pg_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fencegate::test {

inline constexpr auto direct = gate::pg_session_kind::direct;
inline constexpr auto pooled = gate::pg_session_kind::pooled;

// ── replies
inline std::string guarded() { return own("SELECT 1", {""}); }
// … to one in the statement without a name; and to one that was there already.
inline std::string guard_kept() {
  return close_complete() + bind_complete() + row({""}) + complete("SELECT 1") + close_complete();
}
inline std::string guard_parsed() {
  return close_complete() + parse_complete() + guard_kept().substr(close_complete().size());
}
inline std::string done(std::string_view tag) { return parse_complete() + bind_complete() + complete(tag); }
// … to a piece of a translated Query that returns no rows, and to its end.
inline std::string piece(std::string_view tag) {
  return parse_complete() + bind_complete() + no_data() + complete(tag);
}
inline std::string query_end(char status) { return close_complete() + ready(status); }
inline std::string fails(std::string_view state = "22012") { return error_of("ERROR", state); }

// ── messages
inline std::string statement(std::string_view sql) { return parse("", sql) + bind_to("") + execute(); }

class guarded_rig {
 public:
  explicit guarded_rig(gate::pg_session_kind at = pooled)
      : machine("GUARD", at, [this](std::string_view why) {
          refused.emplace_back(why);
          return std::string("REFUSAL");
        }) {}

  gate::pg_guarded machine;
  words refused;             // why
  std::size_t gathered = 0;  // messages that had to be there as a whole
  bool malformed = false, broken = false;
  std::string refuses;  // types of messages that somebody else refuses

  void client(std::string_view bytes) {
    from_client_ += bytes;
    go_on();
  }
  void server(std::string_view bytes) {
    while (!bytes.empty() && !broken) {
      const auto head = wire::decode_pg_head(bytes).value().value();
      const auto message = bytes.substr(0, wire::pg_head_bytes + head.body_bytes);
      bytes.remove_prefix(message.size());
      const auto did = machine.on_reply(head.type, message.substr(wire::pg_head_bytes));
      if (did == gate::pg_guarded::passage::pass) to_client_ += machine.take_held(head.type) + std::string(message);
      if (did == gate::pg_guarded::passage::replace) to_client_ += machine.reply;
      broken = did == gate::pg_guarded::passage::broken;
      to_server_ += std::exchange(machine.behind, {});
      go_on();
    }
  }
  // The client sends it, the server answers, and nobody looks at either.
  void run(std::string_view messages, std::string_view replies) {
    client(messages);
    server(replies);
    forget();
  }
  // A transaction block is open, perhaps with a guard that was answered.
  void begin() { run(query("BEGIN"), complete("BEGIN") + ready('T')); }
  void begin_guarded() {
    begin();
    run(query("SELECT 1"), guarded() + piece("SELECT 1") + query_end('T'));
  }
  // … that failed.
  void begin_failed() {
    begin_guarded();
    run(query("SELECT 1/0"), fails() + ready('E'));
  }
  void forget() {
    to_server_.clear();
    to_client_.clear();
  }

  [[nodiscard]] bool waits() const { return !from_client_.empty(); }
  std::string sent_bytes() { return std::exchange(to_server_, ""); }
  words sent() { return with_own_as_one(each_message(sent_bytes(), words_of_client)); }
  std::string told_bytes() { return std::exchange(to_client_, ""); }
  words told() { return each_message(told_bytes(), words_of_server); }

 private:
  void go_on() {
    using verdict = gate::pg_guarded::verdict;
    while (!from_client_.empty() && !malformed) {
      const auto head = wire::decode_pg_head(from_client_).value().value();
      const auto message = from_client_.substr(0, wire::pg_head_bytes + head.body_bytes);
      const auto body = std::string_view(message).substr(wire::pg_head_bytes);
      const auto there = std::exchange(gathers_, false) ? body.size() : limits::pg_statement_buffered_bytes_max;
      const auto did = refuses.find(head.type) != std::string::npos
                           ? machine.on_refused(head.type, [] { return std::string("FOREIGN"); })
                           : machine.on_message(head.type, body.substr(0, there), body.size());
      to_server_ += std::exchange(machine.in_front, {});
      if (did == verdict::pass) to_server_ += message;
      if (did == verdict::body_only) to_server_ += body;
      to_server_ += std::exchange(machine.behind, {});
      malformed = did == verdict::malformed;
      if (did == verdict::wait || malformed) return;
      if (did == verdict::gather) {
        gathers_ = true;
        ++gathered;
        continue;
      }
      from_client_.erase(0, message.size());
    }
  }

  static words with_own_as_one(const words& all) {
    static const std::vector<std::pair<std::string, std::string>> own_statements{
        {"P GUARD", "[guard]"},       {"P BEGIN", "[begin]"},     {"P COMMIT", "[commit]"},
        {"P ROLLBACK", "[rollback]"}, {"P REFUSAL", "[refusal]"}, {"P SHOW transaction_isolation", "[isolation]"},
        {"P FOREIGN", "[foreign]"}};
    words out;
    for (std::size_t at = 0; at < all.size(); ++at) {
      const auto is = [&all, at](std::size_t n, std::string_view what) {
        return at + n < all.size() && all[at + n] == what;
      };
      const bool ends = is(2, "B") && is(3, "E") && is(4, "C");
      if (is(0, "C") && ((is(1, "P GUARD") && ends) || (is(1, "B") && is(2, "E") && is(3, "C")))) {
        out.emplace_back(ends ? "[unnamed guard]" : "[kept guard]");
        at += ends ? 4 : 3;
        continue;
      }
      const bool frame = is(0, "C") && is(1, "C") && is(3, "B") && is(4, "E") && is(5, "C") && is(6, "C");
      const auto known = std::find_if(own_statements.begin(), own_statements.end(),
                                      [&is, frame](const auto& one) { return frame && is(2, one.first); });
      if (known == own_statements.end()) {
        out.push_back(all[at]);
        continue;
      }
      out.push_back(known->second);
      at += 6;
    }
    return out;
  }

  std::string from_client_, to_server_, to_client_;
  bool gathers_ = false;
};

// A statement of a simple Query as it goes to the server, and what comes behind the last one.
inline words translated(const std::string& sql) { return {"P " + sql, "B", "D", "E"}; }
inline const words query_ends{"C", "S"};

// The same by extended messages.
inline const std::string insert = statement("INSERT") + sync();
inline const words unguarded{"P INSERT", "B", "E", "S"};
inline const words with_guard{"[guard]", "P INSERT", "B", "E", "S"};

}  // namespace fencegate::test
