// uses: gate
// A hostile client on one side of a PostgreSQL session machine, a hostile or an honest server on the other. Input: a byte
// of options, then actions of one byte, some with an operand.
//
// Claims: no crash, whatever either side says, and what pg_witness.hpp claims of the bytes. With an honest server: no
// write is applied under another token than its own or below the mark, and "applied: no" is never said of what was
// committed and not heard of.
#include "../unit/gate/postgres/fake_pg_server.hpp"
#include "../unit/gate/postgres/pg_witness.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

using namespace fencegate;
using namespace fencegate::test;

namespace {

void require(bool claim, std::string_view what) {
  if (claim) return;
  std::fprintf(stderr, "broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

class input {
 public:
  input(const std::uint8_t* bytes, std::size_t size) : left_(reinterpret_cast<const char*>(bytes), size) {}
  [[nodiscard]] bool over() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto b = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return b;
  }
  std::string_view text(std::size_t size) {
    const auto out = left_.substr(0, size);
    left_.remove_prefix(out.size());
    return out;
  }

 private:
  std::string_view left_;
};

// What fake_pg_server knows.
constexpr const char* statements[] = {"INSERT",
                                      "/*fence:orders=34*/ INSERT",
                                      "/*fence:orders=35*/ INSERT",
                                      "/*fence:orders=36*/ INSERT",
                                      "BEGIN",
                                      "COMMIT",
                                      "ROLLBACK",
                                      "SAVEPOINT a",
                                      "ROLLBACK TO a",
                                      "COPY t FROM STDIN",
                                      "SELEC 1",
                                      "SELECT 1",
                                      "DO $$x$$",
                                      "EXECUTE s",
                                      "DEALLOCATE ALL",
                                      "SET name fence:orders=35",
                                      "SET name fence:orders=x",
                                      "SET name x",
                                      "BEGIN; INSERT",
                                      "INSERT; COMMIT",
                                      "ROLLBACK; INSERT",
                                      "COMMIT; INSERT; COMMIT",
                                      "ROLLBACK TO a; INSERT",
                                      "PREPARE TRANSACTION 'x'",
                                      "INSERT; EXECUTE s; INSERT",
                                      "LOCK TABLE t",
                                      "LOCK TABLE t; INSERT"};
// … and what matters to guards. The last of 256 are theirs, so that seeds keep their meaning.
constexpr const char* statements_of_guards[] = {"CALL p()",
                                                "DO $$fail$$",
                                                "COMMIT AND CHAIN",
                                                "ROLLBACK AND CHAIN",
                                                "COPY t FROM STDIN; INSERT",
                                                "SET TRANSACTION",
                                                "PREPARE s AS INSERT",
                                                "BEGIN; LOCK TABLE t; INSERT; COMMIT",
                                                "SAVEPOINT a; INSERT",
                                                "INSERT; CALL p(); INSERT",
                                                "CALL p(); SAVEPOINT a; CALL p()",
                                                "COMMIT; LOCK TABLE t; INSERT",
                                                "ROLLBACK; CALL p()",
                                                "SELECT f()"};
constexpr const char* names[] = {"", "s", "t"};
constexpr const char* lent[] = {"INSERT", "BEGIN", "COMMIT", "DO $$x$$"};

const char* statement_of(std::uint8_t which) {
  if (which >= 216) return statements_of_guards[(which - 216) % std::size(statements_of_guards)];
  return statements[which % std::size(statements)];
}

std::string client_message(std::uint8_t action, input& in) {
  const char* sql = statement_of(in.byte());
  const char* name = names[action / 16 % std::size(names)];
  switch (action % 16) {
    case 0:
    case 1:
    case 2: return query(sql);
    case 3:
    case 4: return parse(name, sql);
    case 5:
    case 6: return bind_to(name);
    case 7:
    case 8: return execute();
    case 9:
    case 10: return test::sync();
    case 11: return action < 128 ? close_statement(name) : describe_statement(name);
    case 12: return copy_data("1\n");
    case 13: return action < 128 ? copy_done() : wire::encode_pg_message('f', "\0"s);
    case 14: return action < 128 ? flush() : describe_portal();
    default: return action < 200 ? wire::encode_pg_message('F', "x") : wire::encode_pg_message('X', "");
  }
}

std::string server_message(std::uint8_t which) {
  const std::string messages[] = {authentication_ok(),
                                  backend_key(),
                                  ready('I'),
                                  ready('T'),
                                  ready('E'),
                                  armed({{"orders", "34"}}),
                                  armed({{"orders", "35"}}),
                                  row({"orders", "34", "t", "0", "0"}),
                                  complete("COMMIT"),
                                  complete("SELECT 1"),
                                  complete("DEALLOCATE ALL"),
                                  parse_complete(),
                                  bind_complete(),
                                  close_complete(),
                                  copy_in(),
                                  error_of("ERROR", "ZF001"),
                                  error_of("ERROR", "40001"),
                                  shut_down(),
                                  warning_of("57P01"),
                                  parameter("application_name", "fence:orders=35"),
                                  parameter("application_name", "fence:orders=x"),
                                  wire::encode_pg_message('A', "\0\0\0\1a\0b\0"s),
                                  wire::encode_pg_message('R', "\0\0\0\5salt"s),
                                  wire::encode_pg_message('H', "\0\0\0"s)};
  return messages[which % std::size(messages)];
}

class scene {
 public:
  explicit scene(std::uint8_t options) : gate_(settings_of(options)), engine_(host_, gate_, stats_) {
    host_.engine = &engine_;
    host_.hold_answers = (options & 2) != 0;
    witness_.pooled = server_.pooled = (options & 4) != 0;
    witness_.untagged = server_.untagged = (options & 8) != 0;
    server_.serializable = (options & 32) != 0;
    witness_.lends = lends_ = gate_.pooled;
    judged_ = (options & 16) == 0;  // a client's own bytes may hold anything
    host_.on_raise = [this](const gate::claims_list& claims) -> std::optional<wire::pg_error> {
      const auto token = claims.empty() ? 0 : claims[0].presented.value();
      if (token < server_.mark) return wire::pg_error{"ERROR", "ZF001", "stale", {}, {}};
      if (!server_.raise_to(token)) return wire::pg_error{"ERROR", "ZF006", "waited", {}, {}};
      return std::nullopt;
    };
    std::vector<std::pair<std::string, std::string>> settings;
    if (!witness_.untagged) settings.emplace_back("options", "-c fencing.tokens=orders=34");
    client(start_packet(settings));
  }

  void against_a_hostile_server(input& in) {
    while (!in.over() && !engine_.closing()) {
      const std::uint8_t action = in.byte();
      switch (action % 8) {
        case 0:
        case 1: act_as_client(in); break;
        case 2:
        case 3:
        case 4: server(server_message(in.byte())); break;
        case 5: server(in.text(in.byte() % 32)); break;
        case 6: move_on(); break;
        default:
          if (action > 240) server_ends();
      }
    }
    finish();
  }

  void against_an_honest_server(input& in) {
    while (!in.over() && !engine_.closing()) {
      const std::uint8_t action = in.byte();
      switch (action % 8) {
        case 0:
        case 1:
        case 2: act_as_client(in); break;
        case 3: serve(); break;
        case 4:
        case 5: hear(); break;
        case 6: move_on(); break;
        default: happen(in.byte());
      }
      for (const auto& one : server_.violations) require(!judged_, one);
    }
    serve();
    for (int i = 0; i < 10'000 && server_.has_answers() && !engine_.closing(); ++i) hear();
    finish();
    for (const auto& one : server_.violations) require(!judged_, one);
  }

 private:
  static settings::postgres_gate settings_of(std::uint8_t options) {
    settings::postgres_gate out;
    if ((options & 4) != 0)
      out.kept_by = settings::guard::transaction;
    else
      out.tags_in_sql = settings::comment_tags::lead;
    out.pooled = (options & 64) == 0;
    if ((options & 8) != 0) out.policy.missing = fence::missing_token::allow;
    return out;
  }

  void act_as_client(input& in) {
    const std::uint8_t action = in.byte();
    if (!judged_ && action > 240) return client(in.text(in.byte()));
    client(client_message(action, in));
  }

  void client(std::string_view bytes) {
    if (engine_.closing()) return;
    engine_.from_client.append(bytes);
    engine_.on_client_bytes();
    look();
  }
  void server(std::string_view bytes) {
    if (engine_.closing() || ended_) return;
    witness_.fed(bytes);
    engine_.from_backend.append(bytes);
    engine_.on_backend_bytes();
    look();
  }
  void server_ends() {
    if (engine_.closing() || std::exchange(ended_, true)) return;
    engine_.on_backend_end();
    look();
  }
  // The honest one reads what was sent, and one of its answers is heard.
  void serve() { server_.read(std::exchange(to_server_, "")); }
  void hear() {
    if (server_.has_answers()) return server(server_.next_answer());
    if (server_.gone()) server_ends();
  }
  void move_on() {
    if (host_.holds_answers()) {
      host_.answer_next();
    } else if (host_.timer) {
      host_.clock += *std::exchange(host_.timer, std::nullopt);
      engine_.on_timer();
    }
    look();
  }
  // A raise, a crash.
  void happen(std::uint8_t what) {
    const bool was_there = !server_.gone();
    if (what % 4 == 0) server_.raise_to(33 + what / 4 % 5);
    if (what % 4 == 1) server_.end();
    if (what % 4 == 2 && lends_) server_.lend(names[what / 4 % 3], lent[what / 16 % std::size(lent)]);
    tell_host();
    if (!was_there || !server_.gone()) return;
    // What it says in the end comes behind all that it said before.
    const int last_words = what / 32 % 4;
    if (last_words == 3) server_.drop_answers();
    if (what >= 128) server_.drop_last_ready();
    while (server_.has_answers()) server(server_.next_answer());
    if (last_words == 0) server(shut_down());
    if (last_words == 1) server(warning_of("57P01"));
    server_ends();
  }

  void look() {
    const auto sent = std::exchange(engine_.to_backend, ""), told = std::exchange(engine_.to_client, "");
    for (const auto& c : std::exchange(host_.raised, {})) witness_.raised(c.presented.to_string());
    to_server_ += sent;
    witness_.sent(sent);
    witness_.told(told);
    const bool not_applied = told.find("\"applied\":\"no\"") != std::string::npos;
    if (honest_ && judged_ && not_applied) require(!server_.applied_unheard(), "not applied, it said");
    for (const auto& one : witness_.violations) require(!judged_, one);
    // It keeps one message of each side at most, and what it says is no more than a little for each that it got.
    require(told.size() < 1 << 20 && sent.size() < 1 << 20, "more and more");
    tell_host();
  }

  // What the gate's own connection would find.
  void tell_host() {
    if (server_.mark >= 0) host_.marks = *fence::parse_tag("orders=" + std::to_string(server_.mark));
    host_.registrations.emplace();
    if (server_.armed() >= 0)
      host_.registrations->push_back({{"orders", fence::token(server_.armed())}, fence::token(server_.mark), false});
  }

  void finish() {
    server_ends();
    for (int i = 0; i < 20'000 && !engine_.closing() && (host_.timer || host_.holds_answers()); ++i) move_on();
    engine_.give_up();
    require(engine_.closing() || engine_.opening(), "the server is gone, and the session goes on");
    witness_.finish(engine_.closing());
    for (const auto& one : witness_.violations) require(!judged_, one);
  }

  fake_pg_host host_;
  settings::postgres_gate gate_;
  metrics::gate stats_{"fuzz"};
  gate::pg_engine engine_;
  pg_witness witness_;
  fake_pg_server server_;
  std::string to_server_;
  bool judged_ = true, ended_ = false, lends_ = true;

 public:
  bool honest_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  input in(data, size);
  const std::uint8_t options = in.byte();
  scene s(options);
  s.honest_ = (options & 1) != 0;
  if (s.honest_)
    s.against_an_honest_server(in);
  else
    s.against_a_hostile_server(in);
  return 0;
}
