// A PostgreSQL session machine on the bench. A test writes both sides of the wire:
//
//   pg_rig rig;
//   rig.serve("orders=34");                                     // a session that is armed and served
//   rig.client(query("SELECT 1"));
//   EXPECT_THAT(rig.sent(), ElementsAre("Q SELECT 1"));         // what reached the server since last asked
//   rig.server(complete("SELECT 1") + ready('I'));
//   EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "Z I"));   // what the client got since last asked
#pragma once

#include "unit/gate/postgres/fake_pg_host.hpp"
#include "unit/gate/postgres/pg_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::test {

// A statement of the gate's own with guard: transaction.
inline words own_words(const std::string& sql) { return {"C", "C", "P " + sql, "B", "E", "C", "C"}; }

inline const std::vector<std::pair<std::string, std::string>> orders_35{{"orders", "35"}};

inline std::string stale_35() {
  return error_of("ERROR", "ZF001", "stale", R"({"resource":"orders","token":34,"mark":35})") + ready('I');
}

inline settings::postgres_gate tags_in_sql() {
  settings::postgres_gate out;
  out.tags_in_sql = settings::comment_tags::lead;
  return out;
}

class pg_rig {
 public:
  explicit pg_rig(settings::postgres_gate settings = tags_in_sql())
      : gate(std::move(settings)), engine(host, gate, stats) {
    host.engine = &engine;
  }

  fake_pg_host host;
  settings::postgres_gate gate;
  metrics::gate stats{"rig"};
  gate::pg_engine engine;

  void client(std::string_view bytes) {
    engine.from_client.append(bytes);
    engine.on_client_bytes();
  }
  void server(std::string_view bytes) {
    engine.from_backend.append(bytes);
    engine.on_backend_bytes();
  }
  void server_ends() { engine.on_backend_end(); }
  void fire_timer() {
    ASSERT_TRUE(host.timer.has_value());
    host.clock += *std::exchange(host.timer, std::nullopt);
    engine.on_timer();
  }

  // The server is gone, and why is asked until it is known or given up.
  void server_ends_for_good() {
    server_ends();
    while (host.timer && !engine.closing() && !engine.parting()) fire_timer();
  }

  // The opening packet of a client with this tag ("" = none).
  void open(std::string_view tag, std::vector<std::pair<std::string, std::string>> more = {}) {
    if (!tag.empty()) more.emplace_back("options", "-c fencing.tokens=" + std::string(tag));
    client(start_packet(std::move(more)));
  }
  // … and the server lets it in: the first ReadyForQuery is there.
  void log_in(std::string_view tag, std::vector<std::pair<std::string, std::string>> more = {}) {
    open(tag, std::move(more));
    started = std::exchange(engine.to_backend, "");
    server(authentication_ok() + backend_key() + ready('I'));
  }
  // A session that is armed for `orders` at this token, and served.
  void serve(const std::string& token = "34") {
    log_in("orders=" + token);
    server(armed({{"orders", token}}));
    ASSERT_TRUE(engine.relaying());
    forget();
  }
  // A session without a tag, where that is allowed.
  void serve_untagged() {
    log_in("");
    ASSERT_TRUE(engine.relaying());
    forget();
  }
  // The client sends it, the server answers, all is as expected.
  void run(std::string_view sql, std::string_view tag, char status) {
    client(query(sql));
    server(complete(tag) + ready(status));
    forget();
  }
  void forget() {
    engine.to_client.clear();
    engine.to_backend.clear();
  }

  words sent() { return each_message(std::exchange(engine.to_backend, ""), words_of_client); }
  words answers() { return each_message(std::exchange(engine.to_client, ""), words_of_server); }

  std::string started;  // by log_in: what went to the server before the arm
};

inline settings::postgres_gate behind_pooler(fence::missing_token missing = fence::missing_token::reject) {
  settings::postgres_gate out;
  out.kept_by = settings::guard::transaction;
  out.policy.missing = missing;
  return out;
}
inline settings::postgres_gate pg_settings(fence::missing_token missing,
                                           fence::enforcement mode = fence::enforcement::enforce) {
  auto out = tags_in_sql();
  out.policy.missing = missing;
  out.policy.mode = mode;
  return out;
}
inline settings::postgres_gate untagged_allowed() { return pg_settings(fence::missing_token::allow); }
inline settings::postgres_gate monitoring() {
  return pg_settings(fence::missing_token::allow, fence::enforcement::monitor);
}

}  // namespace fencegate::test
