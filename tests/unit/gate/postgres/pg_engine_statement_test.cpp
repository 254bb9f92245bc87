// What a client may say once it is served: arming anew, refused statements, large ones, COPY.
#include "base/limits.hpp"
#include "unit/gate/postgres/pg_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PgEngineStatement, ATagInACommentArmsAtABoundary) {
  pg_rig rig;
  rig.serve();
  rig.client(query("/*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35"));
  rig.server(armed(orders_35));
  EXPECT_THAT(rig.sent(), ElementsAre("Q /*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.answers(), IsEmpty());
}

TEST(PgEngineStatement, ATagInACommentWaitsForABoundary) {
  pg_rig rig;
  rig.serve();
  rig.client(query("SELECT 1") + query("/*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q SELECT 1"));
  EXPECT_TRUE(rig.engine.blocked());
  rig.server(complete("SELECT 1") + ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35"));
}

TEST(PgEngineStatement, ATokenDoesNotChangeInsideATransaction) {
  pg_rig rig;
  rig.serve();
  rig.run("BEGIN", "BEGIN", 'T');
  rig.client(query("/*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003"));
  rig.server(error_of("ERROR", "ZF003") + ready('E'));
  EXPECT_THAT(rig.answers(), ElementsAre("E ERROR ZF003", "Z E"));
}

TEST(PgEngineStatement, ATokenDoesNotChangeInAPipelineWithoutSync) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("", "SELECT 1") + bind_to("") + execute() + parse("", "/*fence:orders=35*/ INSERT") + bind_to("") +
             execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P SELECT 1", "B", "E", "P FAIL ZF003", "B", "E", "B", "E", "S"));
  rig.server(parse_complete() + bind_complete() + complete("SELECT 1") + parse_complete() + bind_complete() +
             error_of("ERROR", "ZF003") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("1", "2", "C SELECT 1", "E ERROR ZF003", "Z I"));
  EXPECT_TRUE(rig.engine.at_rest());
}

TEST(PgEngineStatement, AStaleTagFailsItsStatementAlone) {
  pg_rig rig;
  rig.serve();
  rig.client(query("/*fence:bills=1*/ INSERT"));
  rig.forget();
  rig.server(error_of("ERROR", "ZF001", "stale", R"({"resource":"bills","token":1,"mark":2})") + ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF001"));
  rig.server(error_of("ERROR", "ZF001") + ready('I'));
  rig.forget();
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
}

// Once this went round for ever: a Bind that cannot be armed has to be refused as a Parse is.
TEST(PgEngineStatement, APreparedStatementKeepsTheTagOfItsText) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("s", "/*fence:orders=34*/ INSERT") + sync());
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=35*/ SELECT"));
  rig.server(armed(orders_35) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "E", "S"));
  rig.server(parse_complete() + bind_complete() + error_of("ERROR", "ZF001") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("E ERROR ZF001", "Z I"));
}

TEST(PgEngineStatement, ABindWhoseArmTheServerRefusesFails) {
  pg_rig rig(untagged_allowed());
  rig.serve_untagged();
  rig.client(parse("s", "/*fence:orders=34*/ INSERT") + sync());
  rig.server(armed({{"orders", "34"}}));
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=36*/ SELECT"));
  rig.server(armed({{"orders", "36"}}) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.host.memory.clear();
  rig.forget();
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
  rig.server(stale_35());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "E", "S"));
}

// The server compares no more than 63 bytes of the names.
TEST(PgEngineStatement, APreparedStatementIsKnownByWhatTheServerKnowsItBy) {
  pg_rig rig;
  rig.serve();
  rig.client(parse(std::string(63, 'n') + "1", "/*fence:orders=34*/ INSERT") + sync());
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=35*/ SELECT"));
  rig.server(armed(orders_35) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
  rig.client(bind_to(std::string(63, 'n') + "2") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "S"));
}

TEST(PgEngineStatement, TaggedPreparedStatementsAreBounded) {
  pg_rig rig;
  rig.serve();
  const auto prepare = [&rig](const std::string& name) {
    rig.client(parse(name, "/*fence:orders=34*/ INSERT") + sync());
    rig.server(parse_complete() + ready('I'));
  };
  for (std::size_t i = 0; i < limits::pg_tagged_statements_max; ++i) prepare("s" + std::to_string(i));
  rig.forget();
  rig.client(parse("more", "/*fence:orders=34*/ INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF007", "B", "E", "S"));
  rig.server(parse_complete() + bind_complete() + error_of("ERROR", "ZF007") + ready('I'));
  rig.client(close_statement("s0") + parse("more", "/*fence:orders=34*/ INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("C", "P /*fence:orders=34*/ INSERT", "S"));
}

// A session whose statement `s` was prepared under 34, and which now holds 35.
void serve_with_older_statement(pg_rig& rig) {
  rig.serve();
  rig.client(parse("s", "/*fence:orders=34*/ INSERT") + sync());
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=35*/ SELECT"));
  rig.server(armed(orders_35) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
}

// The server refuses a name that is in use, and keeps what it meant: the gate must not forget that.
TEST(PgEngineStatement, AParseOfANameInUseLeavesItsTag) {
  for (const char* text : {"SELECT 1", "/*fence:orders=35*/ SELECT"}) {
    pg_rig rig;
    serve_with_older_statement(rig);
    rig.client(parse("s", text) + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF003", "B", "E", "S"));
    rig.server(parse_complete() + bind_complete() + error_of("ERROR", "ZF003") + ready('I'));
    rig.client(bind_to("s") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "S"));
  }
}

TEST(PgEngineStatement, ACloseThatTheServerMaySkipLeavesTheTag) {
  pg_rig rig;
  serve_with_older_statement(rig);
  rig.client(parse("bad", "SELEC") + close_statement("s") + sync());
  rig.server(error_of("ERROR", "42601") + ready('I'));
  rig.forget();
  rig.client(bind_to("s") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "S"));
}

TEST(PgEngineStatement, ACloseThatTheServerRefusesLeavesTheTag) {
  pg_rig rig;
  serve_with_older_statement(rig);
  rig.client(close_statement(std::string("s\0x", 3)) + sync());
  rig.server(error_of("ERROR", "08P01") + ready('I'));
  rig.forget();
  rig.client(bind_to("s") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "S"));
}

// The same bytes are other names in other encodings, and the server cuts what it has converted: such a name could not be
// closed for certain.
TEST(PgEngineStatement, NamesBeyondAsciiTakeNoTag) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("\xE9", "/*fence:orders=34*/ INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF003", "B", "E", "S"));
}

TEST(PgEngineStatement, WhatDropsAllStatementsFreesTheirNames) {
  for (const char* tag : {"DEALLOCATE ALL", "DISCARD ALL"}) {
    pg_rig rig;
    serve_with_older_statement(rig);
    rig.run(tag, tag, 'I');
    rig.client(parse("s", "SELECT 1") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P SELECT 1", "S")) << tag;
  }
}

TEST(PgEngineStatement, WhatWasPreparedBehindADeallocateKeepsItsTag) {
  pg_rig rig;
  serve_with_older_statement(rig);
  rig.client(query("DEALLOCATE ALL") + parse("t", "/*fence:orders=35*/ INSERT") + sync());
  rig.server(complete("DEALLOCATE ALL") + ready('I') + parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=36*/ SELECT"));
  rig.server(armed({{"orders", "36"}}) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
  rig.client(bind_to("t") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF001", "B", "E", "S"));
}

// By SQL's EXECUTE, which may stand in any function, a statement could be run under a token that its tag does not name.
TEST(PgEngineStatement, WhatAnOlderTokenPreparedIsGoneBeforeANewerOneIsServed) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("s", "/*fence:orders=34*/ INSERT") + parse("", "/*fence:orders=34*/ INSERT") + parse("t", "SELECT") +
             sync());
  rig.server(parse_complete() + parse_complete() + parse_complete() + ready('I'));
  rig.client(parse("u", "/*fence:bills=7*/ INSERT") + sync());
  rig.server(armed({{"bills", "7"}}));
  rig.server(parse_complete() + ready('I'));
  rig.forget();
  rig.client(query("/*fence:orders=35*/ EXECUTE s"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35"));
  rig.server(armed(orders_35));
  EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), close_statement("s") + sync());
  rig.server(close_complete());
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q /*fence:orders=35*/ EXECUTE s"));
  EXPECT_THAT(rig.answers(), IsEmpty());
}

TEST(PgEngineStatement, ASessionThatEndsWhileItIsClosedIsJudged) {
  pg_rig rig;
  serve_with_older_statement(rig);
  rig.client(query("/*fence:orders=36*/ SELECT"));
  rig.server(armed({{"orders", "36"}}));
  rig.host.registrations = {{{{"orders", fence::token(36)}, fence::token(37), false}}};
  rig.server_ends();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied no", "Z I"));
}

TEST(PgEngineStatement, FunctionsOfTheFenceLendNoTokenToATaggedStatement) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("s", "/*fence:orders=34*/ INSERT") + sync());
  rig.server(parse_complete() + ready('I'));
  rig.forget();
  rig.client(query("SELECT fencegate.arm('orders', 35)"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003"));
  rig.server(error_of("ERROR", "ZF003") + ready('I'));
  rig.client(close_statement("s") + sync());
  rig.server(close_complete() + ready('I'));
  rig.forget();
  rig.client(query("SELECT fencegate.arm('orders', 35)"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q SELECT fencegate.arm('orders', 35)"));
}

// ── where no tag is

// What a program quotes for its users is no tag, however it is quoted.
TEST(PgEngineStatement, WhatStandsBehindTheFirstTokenIsNoTag) {
  for (const char* text :
       {"INSERT INTO t VALUES ('O\\'' /*fence:orders=9223372036854775807*/')", "SELECT 1 /*fence:orders=35*/",
        "SELECT 1; /*fence:orders=35*/ SELECT 2", "; /*fence:orders=35*/ SELECT 1", "/**/ /*fence:orders=35*/ SELECT 1",
        "-- x\n/*fence:orders=35*/ SELECT 1", "/* /*fence:orders=35*/ */ SELECT 1", "( /*fence:orders=x*/ SELECT 1)",
        "/* fence: */ SELECT"}) {
    pg_rig rig;
    rig.serve();
    rig.client(query(text));
    if (std::string_view(text).starts_with("/* f"))
      EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003"));
    else
      EXPECT_EQ(rig.engine.to_backend, query(text));
  }
}

TEST(PgEngineStatement, WhereTagsAreOffNoTextIsSearchedForThem) {
  for (const char* text : {"/*fence:orders=35*/ INSERT", "/*fence:orders=x*/ BEGIN", "/*fence:orders",
                           "it\\'s; end of story; x", "SELECT fencegate.arm('orders', 35)"}) {
    pg_rig rig(settings::postgres_gate{});
    rig.serve();
    const auto all = query(text) + parse("s", text) + bind_to("s") + execute() + sync();
    rig.client(all);
    EXPECT_EQ(rig.engine.to_backend, all);
  }
}

// A notification comes in two pieces, and the client speaks in between.
TEST(PgEngineStatement, NothingIsArmedInTheMiddleOfAMessageThatPasses) {
  pg_rig rig;
  rig.serve();
  const auto note = wire::encode_pg_message('A', "\0\0\0\1channel\0words\0"s);
  rig.server(note.substr(0, 9));
  rig.client(query("/*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.blocked());
  rig.server(note.substr(9));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35"));
  rig.server(armed(orders_35));
  EXPECT_THAT(rig.sent(), ElementsAre("Q /*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.answers(), ElementsAre("A"));
}

TEST(PgEngineStatement, AChangedNameBindsWhateverComesNext) {
  for (const auto& next : {query("INSERT"), parse("", "INSERT"), bind_to("s"), wire::encode_pg_message('F', "x")}) {
    pg_rig rig(untagged_allowed());
    rig.serve_untagged();
    rig.client(query("SET application_name"));
    rig.server(complete("SET") + parameter("application_name", "fence:orders=35") + ready('I'));
    rig.forget();
    rig.client(next);
    EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35")) << next[0];
    rig.server(armed(orders_35));
    EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), next);
  }
}

TEST(PgEngineStatement, AChangedNameThatIsMalformedRefusesWhateverComesNext) {
  for (const auto& next : {query("INSERT"), parse("", "INSERT"), bind_to("s"), wire::encode_pg_message('F', "x")}) {
    pg_rig rig;
    rig.serve();
    rig.server(parameter("application_name", "fence:orders=x"));
    rig.forget();
    rig.client(next);
    EXPECT_THAT(rig.sent().front(), testing::EndsWith("FAIL ZF003")) << next[0];
  }
}

TEST(PgEngineStatement, WhatMendsARefusedNamePasses) {
  for (const char* name : {"fence:orders=x", "fence:orders=33"})
    for (const char* text : {"SET application_name = 'job'", "reset application_name;", "RESET ALL", "DISCARD ALL",
                             "ROLLBACK", "SET client_encoding='UTF8';SET application_name='fence:orders=35';"}) {
      pg_rig rig;
      rig.serve();
      rig.server(parameter("application_name", name));
      for (int times = 0; times < 2; ++times) {
        rig.client(query("INSERT"));
        EXPECT_THAT(rig.sent(), ElementsAre(testing::StartsWith("Q FAIL ZF00"))) << name;
        rig.server(error_of("ERROR", "ZF003") + ready('I'));
      }
      const auto pipeline = parse("", text) + bind_to("") + execute() + sync();
      rig.client(pipeline);
      EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), pipeline) << name << text;
      rig.server(ready('I'));
      rig.client(bind_to(""));
      EXPECT_THAT(rig.sent().front(), testing::StartsWith("P FAIL ZF00"))
          << "in another pipeline it may be another one";
      rig.client(sync());
      rig.server(parse_complete() + bind_complete() + error_of("ERROR", "ZF003") + ready('I'));
      rig.forget();
      rig.client(query(text));
      EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), query(text));
      rig.server(complete("SET") + parameter("application_name", "job") + ready('I'));
      rig.client(query("INSERT"));
      EXPECT_THAT(rig.sent(), ElementsAre("Q INSERT"));
    }
}

TEST(PgEngineStatement, WhatOnlyBeginsLikeItMendsNothing) {
  for (const char* text :
       {"RESET ALL; INSERT", "RESET ALL; ; INSERT", "RESET ALL; /* x; SET y */ INSERT", "SET x = '; INSERT",
        "RESET ALL; -- x; SET y\n INSERT", "ROLLBACK PREPARED 'x'", "", "; RESET ALL; COMMIT"}) {
    pg_rig rig;
    rig.serve();
    rig.server(parameter("application_name", "fence:orders=x"));
    rig.client(query(text));
    EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003")) << text;
  }
}

// A stale client would write under the token of another one.
TEST(PgEngineStatement, ANameThatAPoolerTellsLendsNoToken) {
  auto pooled = untagged_allowed();
  pooled.kept_by = settings::guard::transaction;
  for (const std::string tag : {"orders=34", ""}) {
    pg_rig rig(pooled);
    rig.log_in(tag);
    ASSERT_TRUE(rig.engine.relaying());
    rig.host.raised.clear();
    rig.server(parameter("application_name", "fence:orders=35"));
    EXPECT_THAT(rig.answers().back(), "S");
    rig.forget();
    rig.client(query("INSERT"));
    const auto refused = tag.empty() ? words{"Q FAIL ZF003"} : own_words("FAIL ZF003") + words{"S"};
    EXPECT_THAT(rig.engine.to_backend, HasSubstr(R"({"resource":"orders","token":35,"mark":null,"applied":"no"})"));
    EXPECT_THAT(rig.sent(), ElementsAreArray(refused)) << tag;
    EXPECT_THAT(rig.host.reported_about, ElementsAre("orders 35 null")) << tag;
    EXPECT_THAT(rig.host.raised, IsEmpty()) << tag;
  }
}

TEST(PgEngineStatement, ARefusalNamesTheSessionsOnlyClaim) {
  for (const bool guards : {false, true}) {
    pg_rig rig(guards ? behind_pooler() : tags_in_sql());
    rig.log_in("orders=34");
    if (!guards) rig.server(armed({{"orders", "34"}}));
    rig.forget();
    rig.client(query("PREPARE TRANSACTION 'x'"));
    EXPECT_THAT(rig.engine.to_backend, HasSubstr(R"({"resource":"orders","token":34,"mark":null,"applied":"no"})"));
    EXPECT_THAT(rig.host.reported_about, ElementsAre("orders 34 null")) << guards;
  }
}

TEST(PgEngineStatement, ANameThatAPoolerTellsAgainChangesNothing) {
  pg_rig rig(behind_pooler());
  rig.open("", {{"application_name", "fence:orders=34"}});
  rig.server(authentication_ok() + parameter("application_name", "pooled") + backend_key() + ready('I'));
  rig.forget();
  for (const char* name : {"fence:orders=34", "pooled", "fence:orders=34"}) {
    rig.server(parameter("application_name", name));
    rig.forget();
    rig.client(query("SELECT 1"));
    EXPECT_THAT(rig.sent(),
                ElementsAreArray(own_words("GUARD orders 34") + words{"P SELECT 1", "B", "D", "E", "C", "S"}))
        << name;
    rig.server(own("SELECT 1", {""}) + parse_complete() + bind_complete() + no_data() + complete("SELECT 1") +
               close_complete() + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "Z I")) << name;
  }
}

TEST(PgEngineStatement, PrepareTransactionIsRefused) {
  pg_rig rig;
  rig.serve();
  rig.client(query("prepare /**/ transaction 'x'"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF007"));
}

// Each costs the gate nothing once the first has failed: the server skips up to Sync.
TEST(PgEngineStatement, RefusedStatementsWithoutSyncAreSentOnce) {
  pg_rig rig;
  rig.serve();
  for (int i = 0; i < 1000; ++i) rig.client(parse("", "PREPARE TRANSACTION 'x'"));
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF007", "B", "E"));
  EXPECT_EQ(rig.host.reports.size(), 1U);
  rig.client(sync());
  rig.server(parse_complete() + bind_complete() + error_of("ERROR", "ZF007") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("E ERROR ZF007", "Z I"));
  rig.client(parse("", "PREPARE TRANSACTION 'x'"));
  EXPECT_THAT(rig.sent(), ElementsAre("S", "P FAIL ZF007", "B", "E"));
}

TEST(PgEngineStatement, WhatCannotBeReadEndsTheConnection) {
  for (const std::string& wrong : {"Q\0\0\0\3"s, "Q\xff\xff\xff\xff"s, wire::encode_pg_message('B', "portal"),
                                   wire::encode_pg_message('B', "portal\0statement"s)}) {
    pg_rig rig;
    rig.serve();
    rig.client(parse("s", "/*fence:orders=34*/ SELECT 1") + sync());
    rig.server(parse_complete() + ready('I'));
    rig.forget();
    rig.client(wrong);
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08P01"));
    EXPECT_TRUE(rig.engine.closing());
  }
}

// ── large statements

// The last text hides `; COMMIT` in what looks like a literal: the server, which is asked for one statement, refuses it.
TEST(PgEngineStatement, TextInAnyEncodingIsReadByTheServerOnly) {
  const std::string hidden = "SET x = E'\x83\x5c'; COMMIT; --'";
  for (const std::string encoding : {"SJIS", "BIG5", "GBK", "UTF8"}) {
    pg_rig rig(behind_pooler());
    rig.log_in("orders=34");
    rig.forget();
    rig.run("BEGIN", "BEGIN", 'T');
    rig.client(query("SET client_encoding = " + encoding) + query(hidden));
    EXPECT_THAT(rig.sent(), ElementsAre("Q SET client_encoding = " + encoding));
    rig.server(complete("SET") + parameter("client_encoding", encoding) + ready('T'));
    EXPECT_THAT(rig.sent(), ElementsAre("P " + hidden, "B", "D", "E", "C", "S")) << encoding;
    rig.server(error_of("ERROR", "42601") + ready('E'));
    EXPECT_THAT(rig.answers(), ElementsAre("C SET", "S", "Z T", "E ERROR 42601", "Z E"));
  }
}

TEST(PgEngineStatement, WhatItClosesIsConfirmedToTheClient) {
  for (const auto kept_by : {settings::guard::session, settings::guard::transaction}) {
    settings::postgres_gate gate;
    gate.kept_by = kept_by;
    pg_rig rig(gate);
    if (kept_by == settings::guard::session)
      rig.serve();
    else
      rig.log_in("orders=34");
    rig.forget();
    rig.client(close_statement("s") + sync());
    rig.server(close_complete() + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("3", "Z I"));
  }
}

// What fails by itself is no rejection.
TEST(PgEngineStatement, AnErrorOfAStatementBehindAPoolerIsTheServersOwn) {
  pg_rig rig(behind_pooler());
  rig.log_in("orders=34");
  rig.forget();
  rig.client(parse("", "nonsense") + sync());
  rig.server(error_of("ERROR", "42601") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("E ERROR 42601", "Z I"));
  EXPECT_THAT(rig.host.reports, IsEmpty());
}

// It may not have run: something between here and the server answers in its place.
TEST(PgEngineStatement, AGuardThatIsNotAnsweredEndsTheSession) {
  const auto closed = close_complete();
  for (const auto& replies : {std::string(), closed, closed + closed + parse_complete()}) {
    pg_rig rig(behind_pooler());
    rig.log_in("orders=34");
    (void)rig.answers();
    rig.client(query("INSERT"));
    rig.server(replies + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08P01")) << replies;
  }
}

// It begins the client's pipeline as the message in whose place it is.
TEST(PgEngineStatement, WhatIsRefusedFirstInAPipelineIsAnsweredBehindAPooler) {
  for (const std::string sql : {"PREPARE s AS SELECT 1", "PREPARE TRANSACTION 'x'"}) {
    pg_rig rig(behind_pooler());
    rig.log_in("orders=34");
    rig.forget();
    const auto pipeline = parse("", sql) + bind_to("") + execute() + sync();
    const auto refused = own_words("FAIL ZF007") + words{"S"};
    rig.client(pipeline + pipeline);
    EXPECT_THAT(rig.sent(), ElementsAreArray(refused)) << sql;
    rig.server(error_of("ERROR", "ZF007") + ready('I'));
    EXPECT_THAT(rig.sent(), ElementsAreArray(refused)) << "the second one waits for the answer to the first: " << sql;
    rig.server(error_of("ERROR", "ZF007") + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("E ERROR ZF007", "Z I", "E ERROR ZF007", "Z I")) << sql;
    EXPECT_TRUE(rig.engine.at_rest()) << sql;
  }
}

TEST(PgEngineStatement, ALargeStatementStreams) {
  for (const auto& message : {query(large_sql("SELECT", "1")), parse("n", large_sql("SELECT", "1"))}) {
    pg_rig rig;
    rig.serve();
    for (std::size_t at = 0; at < message.size(); at += 10'000) rig.client(message.substr(at, 10'000));
    EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), message);
  }
}

// Whatever the server says meanwhile: what the gate has to say comes behind the last byte of the message.
TEST(PgEngineStatement, NothingIsSentAmidALargeQuery) {
  const auto sql = large_sql("SELECT", "1");
  const auto message = query(sql);
  const auto behind = wire::encode_pg_message('B', std::string(8, '\0')) + wire::encode_pg_message('D', "P\0"s) +
                      execute() + close_statement("") + sync();
  for (const std::size_t left : {std::size_t{1}, std::size_t{10'000}, limits::pg_statement_buffered_bytes_max / 2}) {
    pg_rig rig(behind_pooler());
    rig.log_in("orders=34");
    rig.forget();
    rig.client(message.substr(0, message.size() - left));
    const auto sent = std::exchange(rig.engine.to_backend, "");
    const auto body = message.substr(wire::pg_head_bytes, message.size() - wire::pg_head_bytes - left);
    EXPECT_TRUE(sent.ends_with(parse("", sql).substr(0, wire::pg_head_bytes + 1) + body)) << "as a Parse";
    rig.server(error_of("ERROR", "ZF001"));
    EXPECT_EQ(rig.engine.to_backend, "") << left;
    rig.client(message.substr(message.size() - left));
    EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), message.substr(message.size() - left) + "\0\0"s + behind);
    rig.server(ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("E ERROR ZF001", "Z I"));
    EXPECT_TRUE(rig.engine.at_rest());
  }
}

TEST(PgEngineStatement, ALargeStatementIsArmedByATagAtItsStart) {
  pg_rig rig;
  rig.serve();
  const auto message = query(large_sql("/*fence:orders=35*/", "SELECT"));
  rig.client(message);
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 35"));
  rig.server(armed(orders_35));
  EXPECT_EQ(std::exchange(rig.engine.to_backend, ""), message);
}

// Behind so many blanks nobody would look for one.
TEST(PgEngineStatement, ALargeStatementHasItsTagWhereItBegins) {
  for (const char* begin : {"", "/*fence:orders=3", "/* "}) {
    pg_rig rig;
    rig.serve();
    rig.client(query(large_sql(begin, "/*fence:orders=35*/ SELECT 1")));
    EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003")) << begin;
  }
  pg_rig rig;
  rig.serve();
  const auto message = query(large_sql("SELECT 1", "/*fence:orders=35*/"));
  rig.client(message);
  EXPECT_EQ(rig.engine.to_backend, message);
}

// ── COPY

TEST(PgEngineStatement, AStatementBehindACopyThatNobodyEndsDoesNotWaitForEver) {
  pg_rig rig;
  rig.serve();
  rig.client(query("COPY t FROM STDIN") + query("/*fence:orders=35*/ INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q COPY t FROM STDIN"));
  rig.server(copy_in());
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003"));
  EXPECT_FALSE(rig.engine.blocked());
}

// The server takes the first message for the end of the data, and would run what stands behind it.
TEST(PgEngineStatement, WhatIsRefusedAmidDataOfACopyEndsTheSession) {
  pg_rig rig;
  rig.serve();
  rig.client(query("COPY t FROM STDIN"));
  rig.server(copy_in());
  rig.forget();
  rig.client(parse("", "PREPARE TRANSACTION 'x'") + bind_to("") + execute() + sync());
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF007 applied unknown", "Z I"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineStatement, ACopyInEitherProtocolEndsAtABoundary) {
  for (const bool extended : {false, true}) {
    pg_rig rig;
    rig.serve();
    rig.client(extended ? parse("", "COPY") + bind_to("") + execute() + sync() : query("COPY"));
    rig.server((extended ? parse_complete() + bind_complete() : "") + copy_in());
    rig.client(copy_data("1\n") + copy_done() + (extended ? sync() : ""));
    rig.server(complete("COPY 1") + ready('I'));
    EXPECT_TRUE(rig.engine.at_rest()) << extended;
  }
}

TEST(PgEngineStatement, AHostileServerEndsItsSessionOnly) {
  for (const auto& words : {ready('I'), ready('X'), wire::encode_pg_message('?', ""), "Z\0\0\0\1"s,
                            wire::encode_pg_message('E', "no terminator"), wire::encode_pg_message('Z', "")}) {
    pg_rig rig;
    rig.serve();
    rig.server(words);
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08P01"));
  }
}

// Its last word stands behind all that the server said before.
TEST(PgEngineStatement, WhatTheServerSaidBeforeItWentWrongIsToldFirst) {
  for (const bool guarded : {false, true}) {
    pg_rig rig(guarded ? behind_pooler() : tags_in_sql());
    if (guarded)
      rig.log_in("orders=34");
    else
      rig.serve();
    rig.forget();
    rig.client(query("SHOW a"));
    rig.server(complete("SHOW") + ready('I') + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("C SHOW", "Z I", "E FATAL 08P01")) << guarded;
  }
}

}  // namespace
}  // namespace fencegate
