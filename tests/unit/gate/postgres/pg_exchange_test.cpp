// Whole exchanges, step by step. Each runs once as it should; then again for each step and each thing that can go wrong
// in its place: ends, errors, messages that are cut, unknown, out of place, twice or missing, lengths that lie. Whatever
// happens, the claims of pg_witness hold, and a session whose server is gone comes to its end.
#include "unit/gate/postgres/pg_rig.hpp"
#include "unit/gate/postgres/pg_witness.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAreArray;
using testing::IsEmpty;
using test::operator+;

struct step {
  char side;  // 'c' or 's'
  std::string bytes;
};
using script = std::vector<step>;

struct exchange {
  std::string name;
  script steps;
  words at_server, at_client;  // what reaches both when nothing goes wrong
  settings::guard kept_by = settings::guard::session;
  bool ends = false;    // by itself
  bool direct = false;  // guard: transaction, and no pooler in between
};

// ── the exchanges

script operator+(script a, const script& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
script says(char side, const std::vector<std::string>& messages) {
  script out;
  for (const auto& one : messages) out.push_back({side, one});
  return out;
}
script client(const std::vector<std::string>& messages) { return says('c', messages); }
script server(const std::vector<std::string>& messages) { return says('s', messages); }

std::string authentication(char kind, std::string_view more = "") {
  return wire::encode_pg_message('R', "\0\0\0"s + kind + std::string(more));
}
std::string password(std::string_view words) { return wire::encode_pg_message('p', words); }

script opened() { return client({start_packet({{"options", "-c fencing.tokens=orders=34"}})}); }
script let_in() { return server({authentication_ok(), parameter("server_version", "15"), backend_key(), ready('I')}); }
script arm(const std::string& token) { return server(arm_replies({{"orders", token}})); }
script logged_in() { return opened() + let_in() + arm("34"); }

const words armed_at_server{"Q ARM orders 34"};
const words armed_at_client{"R", "S", "K", "Z I"};

exchange served(std::string name, const script& steps, const words& at_server, const words& at_client) {
  return {std::move(name), logged_in() + steps, armed_at_server + at_server, armed_at_client + at_client};
}

script own_answer(std::string_view tag, const std::vector<std::string>& rows = {}) {
  return server(own_replies(tag, rows));
}
script guard_replies() { return own_answer("SELECT 1", {"t"}); }
const words guard_words = own_words("GUARD orders 34");
// A statement by Parse, Bind and Execute, and its replies.
std::vector<std::string> statement(std::string_view sql) { return {parse("", sql), bind_to(""), execute()}; }
script done(std::string_view tag) { return server({parse_complete(), bind_complete(), complete(tag)}); }
// A piece of a simple Query, with Describe.
words piece_words(const std::string& sql) { return {"P " + sql, "B", "D", "E"}; }
script piece_done(std::string_view tag) {
  return server({parse_complete(), bind_complete(), no_data(), complete(tag)});
}
script query_done(char status) { return server({close_complete(), ready(status)}); }
const words query_ends{"C", "S"};

script isolation(const std::string& level) { return own_answer("SHOW", {level}); }
const words ask_words = own_words("SHOW transaction_isolation") + words{"H"};

exchange pooled(std::string name, const script& steps, const words& at_server, const words& at_client) {
  return {std::move(name), opened() + let_in() + steps, at_server, armed_at_client + at_client,
          settings::guard::transaction};
}

std::vector<exchange> logins() {
  const std::string ssl("\0\0\0\x08\x04\xd2\x16\x2f", 8);
  const std::string cancel("\0\0\0\x10\x04\xd2\x16\x2e\0\0\x10\x01\1\2\3\4", 16);
  return {
      {"trust", logged_in(), armed_at_server, armed_at_client},
      {"md5 behind a request for encryption",
       client({ssl}) + opened() + server({authentication('\5', "salt")}) + client({password("md5")}) + let_in() +
           arm("34"),
       words{"p"} + armed_at_server, words{"R"} + armed_at_client},
      {"SCRAM",
       opened() + server({authentication('\x0a', "SCRAM-SHA-256\0\0"s)}) + client({password("first")}) +
           server({authentication('\x0b', "challenge")}) + client({password("proof")}) +
           server({authentication('\x0c', "signature")}) + let_in() + arm("34"),
       words{"p", "p"} + armed_at_server, words{"R", "R", "R"} + armed_at_client},
      {"a client that does not wait",
       opened() + client({query("INSERT")}) + let_in() + arm("34") + server({complete("INSERT 0 1"), ready('I')}),
       armed_at_server + words{"Q INSERT"}, armed_at_client + words{"C INSERT 0 1", "Z I"}},
      {"cancel", client({cancel}), {}, {}},
  };
}

std::vector<exchange> conversations() {
  const auto insert_35 = query("/*fence:orders=35*/ INSERT");
  return {
      served("simple query", client({query("INSERT")}) + server({complete("INSERT 0 1"), ready('I')}), {"Q INSERT"},
             {"C INSERT 0 1", "Z I"}),
      served("extended pipeline",
             client({parse("", "INSERT"), bind_to(""), execute(), bind_to(""), execute(), sync()}) +
                 server({parse_complete(), bind_complete(), complete("INSERT 0 1"), bind_complete(),
                         complete("INSERT 0 1"), ready('I')}),
             {"P INSERT", "B", "E", "B", "E", "S"}, {"1", "2", "C INSERT 0 1", "2", "C INSERT 0 1", "Z I"}),
      served("COPY in",
             client({query("COPY t FROM STDIN")}) + server({copy_in()}) +
                 client({copy_data("1\n"), copy_data("2\n"), copy_done()}) + server({complete("COPY 2"), ready('I')}),
             {"Q COPY t FROM STDIN", "d", "d", "c"}, {"G", "C COPY 2", "Z I"}),
      served("COPY in, extended",
             client({parse("", "COPY t FROM STDIN"), bind_to(""), execute(), sync()}) +
                 server({parse_complete(), bind_complete(), copy_in()}) +
                 client({copy_data("1\n"), copy_done(), sync()}) + server({complete("COPY 1"), ready('I')}),
             {"P COPY t FROM STDIN", "B", "E", "S", "d", "c", "S"}, {"1", "2", "G", "C COPY 1", "Z I"}),
      served("COPY out",
             client({query("COPY t TO STDOUT")}) + server({wire::encode_pg_message('H', "\0\0\0"s), copy_data("1\n"),
                                                           copy_done(), complete("COPY 1"), ready('I')}),
             {"Q COPY t TO STDOUT"}, {"H", "d", "c", "C COPY 1", "Z I"}),
      served("transaction",
             client({query("BEGIN")}) + server({complete("BEGIN"), ready('T')}) + client({query("INSERT")}) +
                 server({complete("INSERT 0 1"), ready('T')}) + client({query("COMMIT")}) +
                 server({complete("COMMIT"), ready('I')}),
             {"Q BEGIN", "Q INSERT", "Q COMMIT"}, {"C BEGIN", "Z T", "C INSERT 0 1", "Z T", "C COMMIT", "Z I"}),
      served("another token in a comment",
             client({query("SELECT 1"), insert_35}) + server({complete("SELECT 1"), ready('I')}) + arm("35") +
                 server({complete("INSERT 0 1"), ready('I')}),
             {"Q SELECT 1", "Q ARM orders 35", "Q /*fence:orders=35*/ INSERT"},
             {"C SELECT 1", "Z I", "C INSERT 0 1", "Z I"}),
      served("another token in a prepared statement",
             client({parse("s", "/*fence:orders=35*/ INSERT")}) + arm("35") +
                 client({bind_to("s"), execute(), sync()}) +
                 server({parse_complete(), bind_complete(), complete("INSERT 0 1"), ready('I')}),
             {"Q ARM orders 35", "P /*fence:orders=35*/ INSERT", "B", "E", "S"}, {"1", "2", "C INSERT 0 1", "Z I"}),
      served("another token inside a transaction",
             client({query("BEGIN")}) + server({complete("BEGIN"), ready('T')}) + client({insert_35}) +
                 server({error_of("ERROR", "ZF003"), ready('E')}),
             {"Q BEGIN", "Q FAIL ZF003"}, {"C BEGIN", "Z T", "E ERROR ZF003", "Z E"}),
  };
}

std::vector<exchange> guarded() {
  const auto begun = client({query("BEGIN")}) + server({complete("BEGIN"), ready('T')});
  return {
      pooled("guarded query", client({query("INSERT")}) + guard_replies() + piece_done("INSERT 0 1") + query_done('I'),
             guard_words + piece_words("INSERT") + query_ends, {"C INSERT 0 1", "Z I"}),
      pooled("guarded query of several statements",
             client({query("INSERT;COMMIT;INSERT")}) + guard_replies() + piece_done("INSERT 0 1") +
                 piece_done("COMMIT") + guard_replies() + piece_done("INSERT 0 1") + query_done('I'),
             guard_words + piece_words("INSERT") + piece_words("COMMIT") + guard_words + piece_words("INSERT") +
                 query_ends,
             {"C INSERT 0 1", "C COMMIT", "C INSERT 0 1", "Z I"}),
      pooled(
          "guarded pipeline",
          client(statement("INSERT")) + client({sync()}) + guard_replies() + done("INSERT 0 1") + server({ready('I')}),
          guard_words + words{"P INSERT", "B", "E", "S"}, {"1", "2", "C INSERT 0 1", "Z I"}),
      pooled("guarded transaction",
             begun + client({query("INSERT")}) + guard_replies() + piece_done("INSERT 0 1") + query_done('T') +
                 client({query("INSERT")}) + server({complete("INSERT 0 1"), ready('T')}) + client({query("COMMIT")}) +
                 server({complete("COMMIT"), ready('I')}),
             words{"Q BEGIN"} + guard_words + piece_words("INSERT") + query_ends + words{"Q INSERT", "Q COMMIT"},
             {"C BEGIN", "Z T", "C INSERT 0 1", "Z T", "C INSERT 0 1", "Z T", "C COMMIT", "Z I"}),
      pooled("a guard that fails",
             client({query("INSERT")}) +
                 server({close_complete(), close_complete(), parse_complete(), bind_complete(),
                         error_of("ERROR", "ZF001"), ready('I')}) +
                 client({query("INSERT")}) + guard_replies() + piece_done("INSERT 0 1") + query_done('I'),
             guard_words + piece_words("INSERT") + query_ends + guard_words + piece_words("INSERT") + query_ends,
             {"E ERROR ZF001", "Z I", "C INSERT 0 1", "Z I"}),
      pooled("a guard of which not even the first message is answered",
             client({query("INSERT")}) + server({error_of("ERROR", "57014"), ready('I')}),
             guard_words + piece_words("INSERT") + query_ends, {"E ERROR 57014", "Z I"}),
      pooled("a prepared statement of another transaction",
             client({parse("s", "INSERT"), sync()}) + guard_replies() + server({parse_complete(), ready('I')}) +
                 client({bind_to("s"), execute(), sync()}) +
                 server({close_complete(), close_complete(), parse_complete(), bind_complete(),
                         error_of("ERROR", "ZF007"), ready('I')}),
             guard_words + words{"P INSERT", "S", "C", "C", "P FAIL ZF007", "B", "E", "C", "C", "S"},
             {"1", "Z I", "E ERROR ZF007", "Z I"}),
      pooled("CALL",
             client({query("CALL p()")}) + own_answer("BEGIN") + guard_replies() + piece_done("CALL") +
                 server({close_complete()}) + own_answer("COMMIT") + server({ready('I')}),
             own_words("BEGIN") + guard_words + piece_words("CALL p()") + words{"C"} + own_words("COMMIT") + words{"S"},
             {"C CALL", "Z I"}),
      pooled("CALL that fails",
             client({query("CALL p()")}) + own_answer("BEGIN") + guard_replies() +
                 server({parse_complete(), error_of("ERROR", "22012"), ready('E')}) + own_answer("ROLLBACK") +
                 server({ready('I')}),
             own_words("BEGIN") + guard_words + piece_words("CALL p()") + words{"C"} + own_words("COMMIT") +
                 words{"S"} + own_words("ROLLBACK") + words{"S"},
             {"E ERROR 22012", "Z I"}),
      pooled("a function call",
             client({call_function()}) + own_answer("BEGIN") + guard_replies() +
                 server({ready('T'), function_result(), ready('T')}) + own_answer("COMMIT") + server({ready('I')}),
             own_words("BEGIN") + guard_words + words{"S", "F"} + own_words("COMMIT") + words{"S"}, {"V", "Z I"}),
      pooled("a query behind unsynced messages",
             client(statement("INSERT")) + client({query("UPDATE")}) + guard_replies() + done("INSERT 0 1") +
                 piece_done("UPDATE 1") + query_done('I'),
             guard_words + words{"P INSERT", "B", "E", "H"} + piece_words("UPDATE") + query_ends,
             {"1", "2", "C INSERT 0 1", "C UPDATE 1", "Z I"}),
      pooled("COPY in a query of several statements",
             client({query("COPY t FROM STDIN;INSERT")}) + guard_replies() +
                 server({parse_complete(), bind_complete(), no_data(), copy_in()}) +
                 client({copy_data("1\n"), copy_done()}) + server({complete("COPY 1")}) + piece_done("INSERT 0 1") +
                 query_done('I'),
             guard_words + piece_words("COPY t FROM STDIN") + words{"H", "d", "c", "H"} + piece_words("INSERT") +
                 query_ends,
             {"G", "C COPY 1", "C INSERT 0 1", "Z I"}),
      pooled("COPY in, extended and guarded",
             client(statement("COPY t FROM STDIN")) + client({sync()}) + guard_replies() +
                 server({parse_complete(), bind_complete(), copy_in()}) +
                 client({copy_data("1\n"), copy_done(), sync()}) + server({complete("COPY 1"), ready('I')}),
             guard_words + words{"P COPY t FROM STDIN", "B", "E", "H", "d", "c", "S"},
             {"1", "2", "G", "C COPY 1", "Z I"}),
      pooled("what is refused",
             client({query("PREPARE TRANSACTION 'x'")}) +
                 server({close_complete(), close_complete(), parse_complete(), bind_complete(),
                         error_of("ERROR", "ZF007"), ready('I')}),
             own_words("FAIL ZF007") + query_ends, {"E ERROR ZF007", "Z I"}),
  };
}

// What is prepared stays, once it is known that the session is the one that was announced.
exchange of_its_own() {
  const auto check = server({row_description(), row({"4097"}), complete("SELECT 1"), ready('I')});
  const auto kept = server({bind_complete(), row({"t"}), complete("SELECT 1"), close_complete()});
  auto out =
      pooled("a prepared statement in a session of its own",
             check + client({parse("s", "INSERT"), sync()}) + server({close_complete(), parse_complete()}) + kept +
                 server({parse_complete(), ready('I')}) + client({bind_to("s"), execute(), sync()}) +
                 server({close_complete()}) + kept + server({bind_complete(), complete("INSERT 0 1"), ready('I')}),
             words{"Q SELECT pg_catalog.pg_backend_pid()", "C", "P GUARD orders 34", "B", "E", "C", "P INSERT", "S",
                   "C", "B", "E", "C", "B", "E", "S"},
             {"1", "Z I", "2", "C INSERT 0 1", "Z I"});
  out.direct = true;
  return out;
}

std::vector<exchange> locked() {
  const auto begun = client({query("BEGIN")}) + server({complete("BEGIN"), ready('T')});
  const auto locks = client({query("LOCK TABLE t")}), done_with = piece_done("LOCK TABLE") + query_done('T');
  const auto pipeline = client(statement("BEGIN")) + client(statement("LOCK TABLE t")) + client({sync()});
  const words sent{"P BEGIN", "B", "E"};
  const words lock_words = piece_words("LOCK TABLE t") + query_ends;
  return {
      pooled("LOCK, READ COMMITTED", begun + locks + isolation("read committed") + guard_replies() + done_with,
             words{"Q BEGIN"} + ask_words + guard_words + lock_words, {"C BEGIN", "Z T", "C LOCK TABLE", "Z T"}),
      pooled("LOCK, SERIALIZABLE", begun + locks + isolation("serializable") + done_with,
             words{"Q BEGIN"} + ask_words + lock_words, {"C BEGIN", "Z T", "C LOCK TABLE", "Z T"}),
      pooled("LOCK in a pipeline",
             pipeline + done("BEGIN") + isolation("read committed") + guard_replies() + done("LOCK TABLE") +
                 server({ready('T')}),
             sent + ask_words + guard_words + words{"P LOCK TABLE t", "B", "E", "S"},
             {"1", "2", "C BEGIN", "1", "2", "C LOCK TABLE", "Z T"}),
      pooled("LOCK in a pipeline that fails in front of it",
             pipeline + server({parse_complete(), bind_complete(), error_of("ERROR", "57014"), ready('I')}),
             sent + ask_words + words{"S"}, {"1", "2", "E ERROR 57014", "Z I"}),
      pooled("LOCK whose isolation cannot be asked for",
             begun + locks + server({close_complete(), error_of("ERROR", "57014"), ready('E')}) +
                 client({query("ROLLBACK")}) + server({complete("ROLLBACK"), ready('I')}),
             words{"Q BEGIN"} + ask_words + words{"S", "Q ROLLBACK"},
             {"C BEGIN", "Z T", "E ERROR 57014", "Z E", "C ROLLBACK", "Z I"}),
      pooled("LOCK whose guard fails",
             begun + locks + isolation("read committed") +
                 server({close_complete(), error_of("ERROR", "ZF001"), ready('E')}),
             words{"Q BEGIN"} + ask_words + guard_words + lock_words, {"C BEGIN", "Z T", "E ERROR ZF001", "Z E"}),
      pooled("LOCK among others",
             client({query("LOCK TABLE t;INSERT")}) + own_answer("BEGIN") + isolation("read committed") +
                 guard_replies() + piece_done("LOCK TABLE") + piece_done("INSERT 0 1") + server({close_complete()}) +
                 own_answer("COMMIT") + server({ready('I')}),
             own_words("BEGIN") + ask_words + guard_words + piece_words("LOCK TABLE t") + piece_words("INSERT") +
                 words{"C"} + own_words("COMMIT") + words{"S"},
             {"C LOCK TABLE", "C INSERT 0 1", "Z I"}),
  };
}

exchange superseded() {
  auto out = served("superseded inside a transaction",
                    client({query("BEGIN")}) + server({complete("BEGIN"), ready('T')}) + client({query("INSERT")}) +
                        server({shut_down()}),
                    {"Q BEGIN", "Q INSERT"}, {"C BEGIN", "Z T", "E FATAL ZF001 applied no", "Z I"});
  out.ends = true;
  return out;
}

std::vector<exchange> all() {
  auto out = logins();
  for (auto& one : conversations()) out.push_back(std::move(one));
  for (auto& one : guarded()) out.push_back(std::move(one));
  for (auto& one : locked()) out.push_back(std::move(one));
  out.push_back(of_its_own());
  out.push_back(superseded());
  return out;
}

// ── a run

class run {
 public:
  run(const exchange& what, std::size_t piece) : rig_(settings_of(what)), piece_(piece) {
    witness_.pooled = what.kept_by == settings::guard::transaction;
    witness_.lends = !what.direct;
    // Whenever it asks, it was superseded: so every end is explained, and something is claimed about what was applied.
    rig_.host.registrations = {{{{"orders", fence::token(34)}, fence::token(35), false}}};
  }

  void take(const step& one) {
    for (std::size_t at = 0; at < one.bytes.size() && !rig_.engine.closing(); at += piece_) {
      const auto piece = std::string_view(one.bytes).substr(at, piece_);
      if (one.side == 's') witness_.fed(piece);
      if (one.side == 's')
        rig_.server(piece);
      else
        rig_.client(piece);
      look();
    }
  }
  void server_ends() {
    if (rig_.engine.closing()) return;
    rig_.server_ends();
    look();
    // Whatever it waits for comes, or its time runs out.
    for (int i = 0; i < 10'000 && !rig_.engine.closing() && rig_.host.timer; ++i) {
      rig_.fire_timer();
      look();
    }
    // At rest it hears of it when it speaks.
    if (rig_.engine.parting()) rig_.engine.give_up();
    look();
  }
  words violations() {
    witness_.finish(rig_.engine.closing());
    return witness_.violations;
  }

  pg_rig& rig() { return rig_; }
  std::string at_server, at_client;

 private:
  static settings::postgres_gate settings_of(const exchange& what) {
    settings::postgres_gate out;
    out.kept_by = what.kept_by;
    out.pooled = !what.direct;
    if (out.kept_by == settings::guard::session) out.tags_in_sql = settings::comment_tags::lead;
    return out;
  }
  void look() {
    for (const auto& c : rig_.host.raised) witness_.raised(c.presented.to_string());
    const auto sent = std::exchange(rig_.engine.to_backend, ""), told = std::exchange(rig_.engine.to_client, "");
    at_server += sent;
    witness_.sent(sent);
    if (told == "N") return;  // no encryption here
    at_client += told;
    witness_.told(told);
  }

  pg_rig rig_;
  pg_witness witness_;
  std::size_t piece_;
};

constexpr std::size_t whole = 1 << 20;

TEST(PgExchange, RunsAsItShouldAtEverySizeOfPieces) {
  for (const auto& one : all())
    for (const std::size_t piece : {whole, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
      run r(one, piece);
      for (const auto& s : one.steps) r.take(s);
      std::string typed = r.at_server;
      if (!typed.empty()) typed.erase(0, wire::read_u32(typed));  // the first packet
      EXPECT_THAT(each_message(typed, words_of_client), ElementsAreArray(one.at_server)) << one.name << " " << piece;
      EXPECT_THAT(each_message(r.at_client, words_of_server), ElementsAreArray(one.at_client)) << one.name;
      EXPECT_EQ(r.rig().engine.closing(), one.ends) << one.name;
      EXPECT_THAT(r.violations(), IsEmpty()) << one.name;
    }
}

// A pipelining client does not wait for anything.
TEST(PgExchange, WhatTheClientSaysMayAllBeThereAtOnce) {
  for (const auto& one : all()) {
    run r(one, whole);
    step at_once{'c', ""};
    for (const auto& s : one.steps)
      if (s.side == 'c') at_once.bytes += s.bytes;
    if (at_once.bytes.find("COPY") != std::string::npos) continue;  // data and Sync ahead of a COPY mean something else
    if (at_once.bytes.find("BEGIN") != std::string::npos) continue;  // the state of a transaction is not known ahead
    r.take(at_once);
    for (const auto& s : one.steps)
      if (s.side == 's') r.take(s);
    EXPECT_THAT(each_message(r.at_client, words_of_server), ElementsAreArray(one.at_client)) << one.name;
    EXPECT_THAT(r.violations(), IsEmpty()) << one.name;
  }
}

// ── what can go wrong

struct fault {
  std::string name;
  std::vector<std::string> instead;
  bool ends = false;  // the one who speaks is gone
};

std::string with_length(std::string message, std::uint32_t length) {
  std::string bytes;
  wire::append_u32(bytes, length);
  if (message.size() >= 5) message.replace(1, 4, bytes);
  return message;
}

std::vector<fault> faults_of_both(const std::string& message) {
  std::vector<fault> out{{"it ends", {}, true},
                         {"it is missing", {}},
                         {"it comes twice", {message, message}},
                         {"its last byte is missing", {message.substr(0, message.size() - 1)}, true},
                         {"half of it is missing", {message.substr(0, message.size() / 2)}, true},
                         {"of unknown type", {wire::encode_pg_message('?', "words")}}};
  for (const std::uint32_t length : {0U, 3U, 4U, 0x7fff'ffffU, 0x8000'0000U, 0xffff'ffffU})
    out.push_back({"declares " + std::to_string(length), {with_length(message, length)}});
  return out;
}

std::vector<fault> faults_of_server(const std::string& message) {
  auto out = faults_of_both(message);
  for (const char* severity : {"ERROR", "FATAL"})
    for (const char* state : {"40001", "57P01"})
      for (const bool ends : {true, false})
        out.push_back({std::string(severity) + state, {error_of(severity, state)}, ends});
  out.push_back({"WARNING, then the end", {warning_of("57P01")}, true});
  out.push_back({"an error in front of it", {error_of("ERROR", "40001"), message}});
  for (const auto& other : {ready('I'),
                            ready('T'),
                            ready('E'),
                            copy_in(),
                            wire::encode_pg_message('H', "\0\0\0"s),
                            wire::encode_pg_message('W', "\0\0\0"s),
                            row({"orders", "33", "t", "0", "0"}),
                            row({"orders", "34", "t", "0", "0"}),
                            row({"orders"}),
                            parse_complete(),
                            bind_complete(),
                            close_complete(),
                            complete("COMMIT"),
                            complete("ROLLBACK"),
                            complete("DISCARD ALL"),
                            complete("x"),
                            authentication_ok(),
                            backend_key(),
                            wire::encode_pg_message('I', ""),
                            wire::encode_pg_message('n', ""),
                            wire::encode_pg_message('s', ""),
                            wire::encode_pg_message('E', "x"),
                            wire::encode_pg_message('Z', ""),
                            wire::encode_pg_message('D', "\xff\xff"),
                            wire::encode_pg_message('S', "x"),
                            parameter("application_name", "fence:orders=36"),
                            parameter("application_name", "fence:x"),
                            parameter("client_encoding", "SJIS"),
                            parameter("in_hot_standby", "on")})
    out.push_back({std::string("out of place: ") + other[0], {other}});
  return out;
}

std::vector<fault> faults_of_client(const std::string& message) {
  auto out = faults_of_both(message);
  for (const auto& other : {query("INSERT"),
                            query("/*fence:orders=35*/ INSERT"),
                            query("/*fence:orders=x*/ INSERT"),
                            query("PREPARE TRANSACTION 'x'"),
                            query("COMMIT"),
                            query("BEGIN"),
                            parse("", "INSERT"),
                            parse("s", "/*fence:orders=34*/ INSERT"),
                            bind_to(""),
                            execute(),
                            sync(),
                            flush(),
                            copy_data("1\n"),
                            copy_done(),
                            wire::encode_pg_message('f', "\0"s),
                            close_statement("s"),
                            wire::encode_pg_message('F', "\0\0\0\1\0\0\0\0\0\0"s),
                            wire::encode_pg_message('X', ""),
                            wire::encode_pg_message('Q', ""),
                            wire::encode_pg_message('Q', "no end"),
                            wire::encode_pg_message('P', ""),
                            wire::encode_pg_message('B', ""),
                            password("x")})
    out.push_back({std::string("something else: ") + other[0], {other}});
  return out;
}

void run_with(const exchange& what, std::size_t at, const fault& f, std::size_t piece) {
  SCOPED_TRACE(what.name + ", step " + std::to_string(at) + ": " + f.name);
  run r(what, piece);
  const char side = what.steps[at].side;
  for (std::size_t i = 0; i < what.steps.size(); ++i) {
    if (i != at) r.take(what.steps[i]);
    if (i != at) continue;
    for (const auto& bytes : f.instead) r.take({side, bytes});
    if (f.ends) break;
  }
  // A client that has gone takes its session with it, and nothing more is asked of the machine.
  if (!f.ends || side == 's') {
    r.server_ends();
    EXPECT_TRUE(r.rig().engine.closing() || r.rig().engine.opening());
  }
  EXPECT_THAT(r.violations(), IsEmpty());
}

// What sanitizers look for depends little on which fault it is, and with them each costs ten times as much.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t one_of_so_many = 7;
#else
constexpr std::size_t one_of_so_many = 1;
#endif

TEST(PgExchange, NothingThatGoesWrongBreaksAClaim) {
  std::size_t tried = 0;
  for (const auto& one : all())
    for (std::size_t at = 0; at < one.steps.size(); ++at) {
      const auto& s = one.steps[at];
      for (const auto& f : s.side == 's' ? faults_of_server(s.bytes) : faults_of_client(s.bytes))
        for (const std::size_t piece : {whole, std::size_t{1}})
          if (++tried % one_of_so_many == 0) run_with(one, at, f, piece);
    }
}

// The two claims above that matter most are made by a witness; here are lies that it does not let pass.
TEST(PgExchange, TheWitnessSeesWhatIsWrong) {
  const auto seen = [](const std::vector<step>& steps) {
    pg_witness witness;
    witness.sent(start_packet({}));
    for (const auto& s : steps) {
      if (s.side == 's') witness.fed(s.bytes);
      if (s.side == 'b') witness.sent(s.bytes);
      if (s.side == 'c') witness.told(s.bytes);
    }
    return witness.violations.size();
  };
  const auto arm_34 = gate::arm_query(*fence::parse_tag("orders=34"), {}, 0, 4097);
  const auto proof = armed({{"orders", "34"}});
  const fence::rejection stale{fence::reason::stale, "orders", fence::token(34), fence::token(35), {}};
  const auto not_applied = wire::encode_pg_error(gate::pg_error_of(stale, "FATAL"));
  EXPECT_EQ(seen({{'b', arm_34}, {'s', proof}, {'b', query("INSERT")}}), 0U);
  EXPECT_EQ(seen({{'b', query("INSERT")}}), 1U);
  EXPECT_EQ(seen({{'b', arm_34}, {'b', query("INSERT")}, {'s', proof}}), 2U);
  EXPECT_EQ(seen({{'b', arm_34}, {'s', ready('I')}, {'b', query("INSERT")}}), 1U);
  EXPECT_EQ(seen({{'b', arm_34}, {'s', proof}, {'b', query("/*fence:orders=35*/ INSERT")}}), 1U);
  EXPECT_EQ(seen({{'b', arm_34}, {'s', proof}, {'c', not_applied}}), 0U);
  EXPECT_EQ(seen({{'b', arm_34}, {'s', proof}, {'b', query("INSERT")}, {'c', not_applied}}), 1U);
  EXPECT_EQ(seen({{'c', not_applied}, {'c', ready('I')}, {'c', ready('I')}}), 1U);
  EXPECT_EQ(seen({{'c', ready('I')}, {'c', ready('I')}}), 1U);
}

// A statement of the gate's own.
std::string own_statement(std::string_view sql) {
  const std::string name = "_fencegate";
  const auto closed = wire::encode_pg_message('C', "P" + name + '\0') + close_statement(name);
  return closed + parse(name, sql) + bind_to(name, name) + execute(name) + closed;
}
std::string joined(const std::vector<std::string>& messages) {
  std::string out;
  for (const auto& one : messages) out += one;
  return out;
}

TEST(PgExchange, TheWitnessSeesWhatNoGuardCovers) {
  const auto is_fine = [](const std::vector<step>& steps) {
    pg_witness witness;
    witness.pooled = true;
    witness.sent(start_packet({}));
    witness.raised("34");
    for (const auto& s : steps) s.side == 's' ? witness.fed(s.bytes) : witness.sent(s.bytes);
    return witness.violations.empty();
  };
  const auto guard = own_statement("SELECT fencegate.guard_one_under('orders','34')");
  const auto begin = own_statement("BEGIN"), commit = own_statement("COMMIT");
  const auto insert = joined(statement("INSERT")), call = joined(statement("CALL p()"));
  const auto answers = own("SELECT 1", {""}) + parse_complete() + bind_complete() + complete("INSERT 0 1");
  EXPECT_TRUE(is_fine({{'b', guard + insert + insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', query("INSERT")}}));
  EXPECT_FALSE(is_fine({{'b', call_function()}}));
  EXPECT_FALSE(is_fine({{'b', parse("", "INSERT") + guard + bind_to("") + execute() + sync()}})) << "Parse runs code";
  EXPECT_TRUE(is_fine({{'b', begin + guard + call + commit + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + call + sync()}}));
  EXPECT_TRUE(is_fine({{'b', guard + insert + joined(statement("COMMIT")) + guard + insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + insert + joined(statement("COMMIT")) + insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + insert + joined(statement("EXECUTE s")) + insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + query("INSERT")}})) << "a Query behind what is not synced";
  EXPECT_FALSE(is_fine({{'b', query("BEGIN; INSERT")}}));
  EXPECT_TRUE(is_fine({{'b', guard + insert + sync()}, {'s', answers + ready('T')}, {'b', insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + insert + sync()}, {'s', answers + ready('I')}, {'b', insert + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + insert + sync()}, {'b', guard + insert + sync()}})) << "too early";
  EXPECT_FALSE(is_fine(
      {{'b', guard + insert + sync()}, {'s', answers + complete("COMMIT") + ready('T')}, {'b', insert + sync()}}));
  EXPECT_TRUE(is_fine({{'b', guard + parse("s", "INSERT") + bind_to("s") + execute() + sync()}}));
  EXPECT_FALSE(is_fine({{'b', guard + parse("s", "INSERT") + sync()},
                        {'s', own("SELECT 1", {""}) + parse_complete() + ready('I')},
                        {'b', guard + bind_to("s") + execute() + sync()}}))
      << "by then another client's";
}

}  // namespace
}  // namespace fencegate
