// How a session begins: opening packets, arming, arming anew.
#include "unit/gate/postgres/pg_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using test::operator+;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::pair<std::string, std::string>> orders_34{{"orders", "34"}};

TEST(PgEngineStart, HoldsTheFirstReadyForQueryBackUntilArmed) {
  pg_rig rig;
  rig.log_in("orders=34");
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
  EXPECT_THAT(rig.answers(), ElementsAre("R", "K"));
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(armed(orders_34));
  EXPECT_THAT(rig.answers(), ElementsAre("Z I"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
  EXPECT_EQ(rig.host.memory.at("orders"), fence::token(34));
}

TEST(PgEngineStart, WithoutRoomForItsTagTheConnectionEnds) {
  pg_rig rig;
  rig.host.no_room = "it is full";
  rig.open("orders=34");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.engine.to_client, HasSubstr("too many connections (it is full)"));
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 53300"));
  EXPECT_TRUE(rig.engine.closing());
}

// Success must enable: no reply to the arm can be missing or replaced so that a statement goes through that the server
// did not arm.
TEST(PgEngineStart, NoFaultInTheRepliesLetsAStatementThrough) {
  const auto replies = arm_replies(orders_34);
  const std::vector<std::string> instead{error_of("ERROR", "40001"),
                                         error_of("FATAL", "57P01"),
                                         ready('T'),
                                         ready('E'),
                                         row({"orders", "33", "f", "0", "0"}),
                                         row({"orders"}),
                                         copy_in(),
                                         parse_complete(),
                                         wire::encode_pg_message('E', "x"),
                                         wire::encode_pg_message('D', ""),
                                         wire::encode_pg_message('?', "")};
  const std::size_t proof = 4;  // the row, without which nothing is proven
  for (std::size_t step = 0; step < replies.size(); ++step)
    for (std::size_t fault = 0; fault <= instead.size(); ++fault) {
      if (fault == instead.size() && step != proof && step + 1 != replies.size()) continue;  // nothing is missed
      pg_rig rig;
      rig.log_in("orders=34");
      rig.client(query("INSERT"));
      rig.forget();
      for (std::size_t i = 0; i < replies.size(); ++i) {
        const bool here = i == step;
        if (rig.engine.closing()) break;
        if (here && fault < instead.size()) rig.server(instead[fault]);
        if (!here) rig.server(replies[i]);
      }
      EXPECT_THAT(rig.sent(), IsEmpty()) << "step " << step << ", fault " << fault;
      rig.server_ends_for_good();
      EXPECT_THAT(rig.sent(), IsEmpty()) << "step " << step << ", fault " << fault;
      EXPECT_TRUE(rig.engine.closing()) << "step " << step << ", fault " << fault;
    }
}

TEST(PgEngineStart, ARowTwiceArmsNothing) {
  pg_rig rig;
  rig.log_in("orders=34");
  rig.client(query("INSERT"));
  rig.forget();
  rig.server(row({"orders", "34", "t", "0", "0"}) + row({"orders", "34", "t", "0", "0"}) + ready('I'));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF006 applied no"));
}

TEST(PgEngineStart, TheEndOfTheServerWhileArmingIsTold) {
  for (std::size_t step = 0; step < arm_replies(orders_34).size(); ++step) {
    pg_rig rig;
    rig.log_in("orders=34");
    rig.client(query("INSERT"));
    rig.forget();
    for (std::size_t i = 0; i < step; ++i) rig.server(arm_replies(orders_34)[i]);
    rig.server_ends_for_good();
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF006 applied no"));
  }
}

TEST(PgEngineStart, AServerThatHangsWhileArmingIsGivenUp) {
  pg_rig rig;
  rig.log_in("orders=34");
  rig.forget();
  rig.fire_timer();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF006 applied no"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineStart, EverySplitOfBothDirectionsIsTheSame) {
  const std::string client_says = wire::encode_pg_start(3 << 16, {{"user", "alice"}, {"fencing.tokens", "orders=34"}}) +
                                  query("INSERT") + parse("s", "/*fence:orders=34*/ SELECT") + bind_to("s") +
                                  execute() + sync();
  const std::string server_says = authentication_ok() + backend_key() + parameter("a", "b") + ready('I') +
                                  armed(orders_34) + complete("INSERT 0 1") + ready('I') + parse_complete() +
                                  bind_complete() + complete("SELECT 1") + ready('I');
  const auto run = [&](std::size_t client_cut, std::size_t server_cut) {
    pg_rig rig;
    // A client waits for its authentication, a server for what it answers to.
    const std::size_t start =
        wire::encode_pg_start(3 << 16, {{"user", "alice"}, {"fencing.tokens", "orders=34"}}).size();
    rig.client(client_says.substr(0, std::min(client_cut, start)));
    rig.client(client_says.substr(std::min(client_cut, start), start - std::min(client_cut, start)));
    const std::size_t greeting = (authentication_ok() + backend_key()).size();
    rig.server(server_says.substr(0, std::min(server_cut, greeting)));
    rig.server(server_says.substr(std::min(server_cut, greeting), greeting - std::min(server_cut, greeting)));
    rig.client(client_says.substr(start, std::max(client_cut, start) - start));
    const std::size_t middle = std::max(server_cut, greeting);
    const std::size_t up_to_armed =
        (authentication_ok() + backend_key() + parameter("a", "b") + ready('I') + armed(orders_34)).size();
    rig.server(server_says.substr(greeting, std::min(middle, up_to_armed) - greeting));
    rig.server(server_says.substr(std::min(middle, up_to_armed), up_to_armed - std::min(middle, up_to_armed)));
    rig.client(client_says.substr(std::max(client_cut, start)));
    rig.server(server_says.substr(up_to_armed, std::max(middle, up_to_armed) - up_to_armed));
    rig.server(server_says.substr(std::max(middle, up_to_armed)));
    return std::pair{rig.engine.to_backend.substr(start), rig.engine.to_client};
  };
  const auto whole = run(client_says.size(), server_says.size());
  EXPECT_THAT(each_message(whole.first, words_of_client),
              ElementsAre("Q ARM orders 34", "Q INSERT", "P /*fence:orders=34*/ SELECT", "B", "E", "S"));
  for (std::size_t at = 0; at < client_says.size(); ++at) EXPECT_EQ(run(at, server_says.size()), whole) << at;
  for (std::size_t at = 0; at < server_says.size(); ++at) EXPECT_EQ(run(client_says.size(), at), whole) << at;
}

TEST(PgEngineStart, AnswersEncryptionRequestsButNotForEver) {
  pg_rig rig;
  const std::string ssl("\0\0\0\x08\x04\xd2\x16\x2f", 8);
  rig.client(ssl + ssl);
  EXPECT_EQ(std::exchange(rig.engine.to_client, ""), "NN");
  rig.client(ssl);
  EXPECT_TRUE(rig.engine.closing());
}

// libpq asks for GSSAPI, then for TLS, then begins, on one connection; others do not wait for the answers.
TEST(PgEngineStart, AnswersGssapiThenTlsThenBegins) {
  const std::string gss("\0\0\0\x08\x04\xd2\x16\x30", 8), ssl("\0\0\0\x08\x04\xd2\x16\x2f", 8);
  for (const bool waits : {true, false}) {
    pg_rig rig;
    const std::string start = start_packet({{"options", "-c fencing.tokens=orders=34"}});
    for (const auto& asked : waits ? words{gss, ssl, start} : words{gss + ssl + start}) rig.client(asked);
    EXPECT_EQ(rig.engine.to_client, "NN");
    EXPECT_EQ(rig.engine.to_backend, start);
    rig.forget();
    rig.server(authentication_ok() + backend_key() + ready('I'));
    EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
  }
}

// sslnegotiation=direct: a ClientHello is the first that comes.
TEST(PgEngineStart, DirectTlsIsRefusedInWordsAndCounted) {
  pg_rig rig;
  rig.client("\x16");  // one byte says it
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_TRUE(rig.engine.to_backend.empty());
  EXPECT_THAT(rig.engine.to_client, testing::HasSubstr("TLS where PostgreSQL's protocol was expected"));
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08P01"));
  EXPECT_EQ(rig.stats.protocol_errors(metrics::side::client).value(), 1u);
}

TEST(PgEngineStart, WhatIsRefusedNeverReachesTheServer) {
  const auto refused = [](std::string_view tag, std::vector<std::pair<std::string, std::string>> more = {}) {
    pg_rig rig;
    rig.open(tag, std::move(more));
    EXPECT_TRUE(rig.engine.to_backend.empty());
    EXPECT_TRUE(rig.engine.closing());
    return rig.answers() + rig.host.reported_about;
  };
  const std::string nothing = "null null null";
  EXPECT_THAT(refused(""), ElementsAre("E FATAL ZF002 applied no", nothing));
  EXPECT_THAT(refused("orders=034"), ElementsAre("E FATAL ZF003 applied no", nothing));
  EXPECT_THAT(refused("orders=34", {{"application_name", "fence:orders=35"}}),
              ElementsAre("E FATAL ZF003 applied no", nothing));
  EXPECT_THAT(refused("orders=34", {{"replication", "database"}}),
              ElementsAre("E FATAL ZF007 applied no", "orders 34 null"));
}

TEST(PgEngineStart, MemoryRefusesAStaleTokenWithoutAskingTheServer) {
  pg_rig rig;
  rig.host.saw("", "orders", fence::token(35));
  rig.open("orders=34");
  EXPECT_TRUE(rig.engine.to_backend.empty());
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied no"));
}

// Where a mark is known to be lower, it is raised on a connection of the gate's own first. The arm behind that is what
// proves, and raises where the connection is not free.
TEST(PgEngineStart, AMarkThatIsKnownToBeLowerIsRaisedAheadOfTheArm) {
  for (const bool fails : {false, true}) {
    pg_rig rig;
    rig.host.saw("", "orders", fence::token(33));
    rig.host.hold_answers = true;
    if (fails) rig.host.on_raise = [](const auto&) { return wire::pg_error{"ERROR", {}, "not free", {}, {}}; };
    rig.log_in("orders=34");
    rig.client(query("INSERT"));
    EXPECT_EQ(rig.host.raised_ahead, 1);
    EXPECT_THAT(rig.sent(), IsEmpty());
    rig.host.answer_next();
    EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
    rig.server(row({"orders", "34", fails ? "t" : "f", "0", "0"}) + ready('I'));
    EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
    EXPECT_EQ(rig.stats.raises_total.value(), 1U);
    EXPECT_EQ(rig.stats.sessions_cut_total.value(), fails ? 0U : 2U);
  }
}

TEST(PgEngineStart, ARaiseAheadIsNoProof) {
  pg_rig rig;
  rig.host.saw("", "orders", fence::token(33));
  rig.log_in("orders=34");
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
  rig.server(error_of("ERROR", "ZF001") + ready('I'));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.host.reports, ElementsAre("stale startup"));
}

TEST(PgEngineStart, ARaiseAheadThatTakesItsTimeDoesNotHoldUpTheArm) {
  for (const bool ends : {false, true}) {
    pg_rig rig;
    rig.host.saw("", "orders", fence::token(33));
    rig.host.hold_answers = true;
    rig.log_in("orders=34");
    EXPECT_THAT(rig.sent(), IsEmpty());
    rig.fire_timer();
    EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
    if (ends) rig.host.answer_next();
    EXPECT_THAT(rig.sent(), IsEmpty());
    rig.server(row({"orders", "34", ends ? "f" : "t", "0", "0"}) + ready('I'));
    EXPECT_EQ(rig.stats.raises_total.value(), 1U);
    EXPECT_EQ(rig.stats.sessions_cut_total.value(), ends ? 2U : 0U);
    rig.host.on_raise = [](const auto&) { return wire::pg_error{"ERROR", "ZF006", "too late", {}, {}}; };
    if (!ends) rig.host.answer_next();
    rig.client(query("INSERT"));
    EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
  }
}

TEST(PgEngineStart, ARaiseAheadThatIsRefusedRefusesTheSession) {
  pg_rig rig;
  rig.host.saw("", "orders", fence::token(33));
  rig.host.on_raise = [](const auto&) {
    return wire::pg_error{"ERROR", "ZF006", "older sessions did not end", {}, {}};
  };
  rig.log_in("orders=34");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), ElementsAre("R", "K", "E FATAL ZF006 applied no"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineStart, TheEndOfTheServerDuringARaiseAheadIsTold) {
  pg_rig rig;
  rig.host.saw("", "orders", fence::token(33));
  rig.host.hold_answers = true;
  rig.log_in("orders=34");
  rig.forget();
  rig.host.hold_answers = false;
  rig.server_ends_for_good();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF006 applied no"));
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// Not where nothing is known to rise; not for a superuser, who will be refused; and not for a session that is registered:
// the raise would end it.
TEST(PgEngineStart, NothingIsRaisedAheadThatMayBeInVain) {
  pg_rig unknown;
  unknown.log_in("orders=34");
  EXPECT_EQ(unknown.host.raised_ahead, 0);

  pg_rig equal;
  equal.host.saw("", "orders", fence::token(34));
  equal.log_in("orders=34");
  EXPECT_EQ(equal.host.raised_ahead, 0);

  pg_rig superuser;
  superuser.host.saw("", "orders", fence::token(33));
  superuser.open("orders=34");
  superuser.server(authentication_ok() + parameter("is_superuser", "on") + backend_key() + ready('I'));
  EXPECT_EQ(superuser.host.raised_ahead, 0);

  pg_rig registered;
  registered.serve();
  registered.client(query("/*fence:orders=35*/INSERT"));
  EXPECT_THAT(registered.sent(), ElementsAre("Q ARM orders 35"));
  EXPECT_EQ(registered.host.raised_ahead, 0);
}

// What had been seen of the mark when the arm began is no news; what another session makes of it meanwhile is none either.
TEST(PgEngineStart, AMarkThatRisesToWhereItWasSeenHadGoneBack) {
  for (const bool raised : {false, true}) {
    pg_rig rig;
    rig.host.saw("", "orders", fence::token(34));
    rig.log_in("orders=34,bills=7");
    rig.host.saw("", "bills", fence::token(7));
    rig.server(row({"orders", "34", raised ? "t" : "f", "0", "0"}) + row({"bills", "7", "t", "0", "0"}) + ready('I'));
    EXPECT_EQ(rig.host.lost, raised ? std::vector<std::string>{"orders"} : std::vector<std::string>{});
  }
}

TEST(PgEngineStart, AMarkIsRememberedUnderTheLoweringThatTheServerNames) {
  pg_rig armed;
  armed.host.saw("", "orders", fence::token(40));
  armed.host.lowerings["orders"] = 6;
  armed.log_in("orders=40");
  armed.server(row({"orders", "40", "t", "0", "7"}) + ready('I'));
  EXPECT_EQ(armed.host.lowerings["orders"], 7U);
  for (const bool named : {false, true}) {
    pg_rig stale;
    stale.log_in("orders=34");
    const std::string detail = R"({"resource":"orders","token":34,"mark":35,"applied":"no")";
    stale.server(error_of("ERROR", "ZF001", "stale", detail + (named ? R"(,"lowering":7})" : "}")) + ready('I'));
    EXPECT_EQ(stale.host.memory.contains("orders"), named);
  }
}

TEST(PgEngineStart, NothingIsSaidBeforeAuthenticationHasEnded) {
  pg_rig rig;
  rig.open("orders=34");
  rig.forget();
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// Without TLS for clients libpq would take the offer for an attack; with another certificate the server would refuse what is bound.
TEST(PgEngineStart, ChannelBindingIsTakenOutOfTheOfferWhereItCouldNotHold) {
  const auto sasl = [](const std::string& names) { return wire::encode_pg_message('R', "\0\0\0\x0a"s + names + '\0'); };
  const auto offered = [&](const std::string& names, bool one_certificate = false) {
    pg_rig rig;
    rig.host.one_certificate = one_certificate;
    rig.open("orders=34");
    rig.server(sasl(names));
    return rig.engine.to_client;
  };
  EXPECT_EQ(offered("SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"s), sasl("SCRAM-SHA-256\0"s));
  EXPECT_EQ(offered("SCRAM-SHA-256\0"s), sasl("SCRAM-SHA-256\0"s));
  EXPECT_EQ(offered("SCRAM-SHA-256-PLUS\0"s), sasl(""));
  EXPECT_EQ(offered("SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"s, true), sasl("SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"s));
}

// From a role's or a database's settings.
TEST(PgEngineStart, ATagInANameThatTheServerReportsIsArmed) {
  pg_rig rig(untagged_allowed());
  rig.open("");
  rig.forget();
  rig.server(authentication_ok() + parameter("application_name", "job fence:orders=34") + ready('I'));
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
  rig.server(armed(orders_34));
  EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
}

// A name means to the server what this client has prepared only while the session is its own.
TEST(PgEngineStart, WithoutAPoolerTheSessionIsTheOneThatWasAnnounced) {
  auto gate = behind_pooler();
  gate.pooled = false;
  for (const std::string pid : {"4097", "4098"}) {
    pg_rig rig(gate);
    rig.log_in("orders=34");
    EXPECT_THAT(rig.sent(), ElementsAre("Q SELECT pg_catalog.pg_backend_pid()"));
    EXPECT_THAT(rig.answers(), ElementsAre("R", "K"));
    rig.server(row_description() + row({pid}) + complete("SELECT 1") + ready('I'));
    if (pid == "4098") {
      EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF007 applied no"));
      EXPECT_TRUE(rig.engine.closing());
      continue;
    }
    EXPECT_THAT(rig.answers(), ElementsAre("Z I"));
    rig.client(query("PREPARE s AS SELECT 1"));
    EXPECT_THAT(rig.sent(), testing::ElementsAreArray(words{"C", "P GUARD orders 34", "B", "E", "C"} +
                                                      words{"P PREPARE s AS SELECT 1", "B", "D", "E", "C", "S"}))
        << "the session keeps what it prepares";
  }
}

// What a pooler reports may be the name of some other client.
TEST(PgEngineStart, ANameThatAPoolerReportsIsNotTheClients) {
  auto pooled = untagged_allowed();
  pooled.kept_by = settings::guard::transaction;
  pg_rig rig(pooled);
  rig.open("");
  rig.forget();
  rig.server(authentication_ok() + parameter("application_name", "job fence:orders=34") + ready('I'));
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
}

TEST(PgEngineStart, ANameThatTheServerReportsMayNotDisagree) {
  const std::pair<const char*, const char*> names[] = {{"fence:orders=33", "orders 33 null"},
                                                       {"fence:orders=x", "null null null"}};
  for (const auto& [name, about] : names) {
    pg_rig rig;
    rig.open("orders=34");
    rig.forget();
    rig.server(authentication_ok() + parameter("application_name", name) + ready('I'));
    EXPECT_THAT(rig.sent(), IsEmpty()) << name;
    EXPECT_THAT(rig.answers(), Contains("E FATAL ZF003 applied no")) << name;
    EXPECT_THAT(rig.host.reported_about, ElementsAre(about)) << name;
  }
}

TEST(PgEngineStart, ANameThatTheServerCutIsNotReadAgain) {
  pg_rig rig;
  rig.open("", {{"application_name", std::string(48, 'x') + " fence:orders=3456"}});
  rig.forget();
  rig.server(authentication_ok() + parameter("application_name", std::string(48, 'x') + " fence:orders=3") +
             ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 3456"));
}

TEST(PgEngineStart, AReadOnlySessionIsOpenedAsOne) {
  pg_rig rig(pg_settings(fence::missing_token::read_only));
  rig.log_in("");
  EXPECT_THAT(rig.started, testing::HasSubstr("default_transaction_read_only\0on"s));
}

// Protocol 3.2: the keys of sessions have up to 256 bytes, and a server may know less than the client asked for.
TEST(PgEngineStart, WhatTheServerSaysOfProtocol32Passes) {
  pg_rig rig(untagged_allowed());
  const std::string wanted = wire::encode_pg_start(3 << 16 | 2, {{"user", "alice"}, {"_pq_.future", "1"}});
  rig.client(wanted);
  EXPECT_EQ(rig.engine.to_backend, wanted);
  const std::string negotiated = wire::encode_pg_message('v', "\0\3\0\0\0\0\0\1_pq_.future\0"s);
  const std::string key = wire::encode_pg_message('K', "\0\0\x10\x01"s + std::string(256, '\xee'));
  rig.server(negotiated + authentication_ok() + key + ready('I'));
  EXPECT_EQ(rig.engine.to_client, negotiated + authentication_ok() + key + ready('I'));
  EXPECT_TRUE(rig.engine.relaying());
  EXPECT_EQ(rig.host.key, "\0\0\x10\x01"s + std::string(256, '\xee'));
  EXPECT_EQ(rig.host.cancelled, "");
}

TEST(PgEngineStart, ACancelRequestIsPassedOnAsItIs) {
  for (const std::size_t key_bytes : {4, 32, 256}) {
    pg_rig rig;
    std::string cancel("\0\0\0\0\x04\xd2\x16\x2e\0\0\x10\x01", 12);
    cancel[2] = static_cast<char>((12 + key_bytes) >> 8);
    cancel[3] = static_cast<char>(12 + key_bytes);
    cancel += std::string(key_bytes, '\xee');
    rig.client(cancel);
    EXPECT_EQ(rig.engine.to_backend, cancel);
    EXPECT_EQ(rig.host.cancelled, cancel.substr(8)) << "as BackendKeyData has it";
    rig.server_ends();
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_TRUE(rig.engine.to_client.empty());
  }
}

TEST(PgEngineStart, MonitorArmsNothingAndSaysWhatItWouldReject) {
  pg_rig rig(monitoring());
  rig.host.marks = *fence::parse_tag("orders=35");
  rig.log_in("orders=34");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), ElementsAre("R", "K", "Z I"));
  EXPECT_THAT(rig.host.reports, ElementsAre("stale startup (monitor)"));
}

TEST(PgEngineStart, MonitorSaysOfAJumpWhatItWouldReject) {
  auto gate = monitoring();
  gate.policy.max_step = 10;
  pg_rig rig(gate);
  rig.host.marks = *fence::parse_tag("orders=34,payments=34");
  rig.log_in("orders=44,payments=45");
  EXPECT_THAT(rig.answers(), ElementsAre("R", "K", "Z I"));
  EXPECT_THAT(rig.host.reports, ElementsAre("jump startup (monitor)"));
}

TEST(PgEngineStart, WhatTheServerSaysWhileMonitorLooksIsNotForgotten) {
  pg_rig rig(monitoring());
  rig.host.hold_answers = true;
  rig.log_in("orders=34");
  rig.server(warning_of("01000"));
  rig.forget();
  rig.host.answer_next();
  EXPECT_THAT(rig.answers(), ElementsAre("Z I", "N WARNING 01000"));
}

TEST(PgEngineStart, WhatTheServerSaysWhileMarksAreRaisedIsNotForgotten) {
  const auto pooled = behind_pooler();
  pg_rig rig(pooled);
  rig.host.hold_answers = true;
  rig.log_in("orders=34");
  rig.server(warning_of("01000"));
  rig.forget();
  rig.host.answer_next();
  EXPECT_THAT(rig.answers(), ElementsAre("Z I", "N WARNING 01000"));
}

// Once each of them was a level of recursion.
TEST(PgEngineStart, AnswersThatComeAtOnceCostNoStack) {
  pg_rig rig(monitoring());
  rig.log_in("");
  rig.forget();
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += query("/*fence:orders=" + std::to_string(i) + "*/");
  rig.client(many);
  EXPECT_EQ(rig.engine.to_backend, many);
}

TEST(PgEngineStart, AnEndThatIsAnnouncedIsToldWhenTheClientSpeaks) {
  const auto notification = wire::encode_pg_message('A', std::string("\0\0\0\1ch\0hi\0", 10));
  for (const bool in_flight : {false, true}) {
    pg_rig rig;
    rig.serve();
    if (in_flight) rig.client(query("SELECT 1"));
    rig.engine.announce_end();
    if (in_flight) {
      rig.server(complete("SELECT 1") + ready('I'));
      EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "Z I"));
      rig.engine.to_client.clear();
    }
    EXPECT_FALSE(rig.engine.parting());
    rig.server(notification);  // it is still heard
    EXPECT_THAT(rig.answers(), ElementsAre("A"));
    rig.forget();
    rig.client(query("INSERT"));
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P01 applied no", "Z I"));
    EXPECT_THAT(rig.engine.to_backend, "");
    EXPECT_TRUE(rig.engine.closing());
  }
}

TEST(PgEngineStart, AnEndThatIsAnnouncedWaitsForATransaction) {
  pg_rig rig;
  rig.serve();
  rig.client(query("BEGIN"));
  rig.server(complete("BEGIN") + ready('T'));
  rig.engine.announce_end();
  EXPECT_FALSE(rig.engine.parting());
  rig.client(query("COMMIT"));
  rig.server(complete("COMMIT") + ready('I'));
  rig.forget();
  rig.client(query("BEGIN"));
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P01 applied no", "Z I"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineStart, WhoIsNotServedYetHearsOfNoEnd) {
  pg_rig rig;
  rig.engine.announce_end();
  rig.serve();
  rig.forget();
  rig.client(query("SELECT 1"));
  EXPECT_EQ(rig.engine.to_backend, query("SELECT 1"));
}

TEST(PgEngineStart, ADrainEndsTheSessionWhereNothingIsLost) {
  pg_rig rig;
  rig.serve();
  rig.client(query("SELECT 1"));
  rig.engine.drain();
  EXPECT_FALSE(rig.engine.closing());
  rig.server(complete("SELECT 1") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "Z I", "E FATAL 57P01 applied no"));
  EXPECT_TRUE(rig.engine.closing());
}

}  // namespace
}  // namespace fencegate
