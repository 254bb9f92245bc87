// Tags of statements where it is not plain what they hold for: transactions that may not begin, prepared statements that
// the server may have kept, tokens that the session raises by itself.
#include "unit/gate/postgres/pg_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::IsEmpty;

// What the function raised is not known, nor when: each statement with a tag is proven anew.
TEST(PgEngineTags, WhereAStatementNamesTheFenceEachLaterTagIsProven) {
  pg_rig rig;
  rig.serve();
  const std::string tagged = "/*fence:orders=34*/ INSERT";
  rig.run(tagged, "INSERT 0 1", 'I');
  rig.run("SELECT fencegate.arm('orders', 35)", "SELECT 1", 'I');
  for (int times = 0; times < 2; ++times) {
    rig.client(query(tagged));
    EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
    rig.server(armed({{"orders", "34"}}));
    EXPECT_THAT(rig.sent(), ElementsAre("Q " + tagged));
    rig.server(complete("INSERT 0 1") + ready('I'));
  }
  rig.client(query(tagged));
  rig.forget();
  rig.server(stale_35());
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF001"));
}

// Else what a client sends next, believing that it is inside the transaction, would each run by itself.
TEST(PgEngineTags, ATransactionThatMayNotBeginEndsTheConnection) {
  for (const std::string tag : {"/*fence:orders=33*/", "/*fence:orders=x*/"})
    for (const std::string begin : {" BEGIN", " start transaction", "BEGIN; INSERT"}) {
      const std::string state = tag == "/*fence:orders=x*/" ? "ZF003" : "ZF001";
      for (const auto& message : {query(tag + begin), parse("", tag + begin), parse("n", tag + begin)}) {
        pg_rig rig(untagged_allowed());
        rig.serve_untagged();
        rig.host.saw("", "orders", fence::token(34));
        rig.client(message + query("INSERT"));
        EXPECT_THAT(rig.sent(), IsEmpty());
        EXPECT_THAT(rig.answers(), ElementsAre("E FATAL " + state + " applied no", "Z I"));
        EXPECT_TRUE(rig.engine.closing());
      }
    }
}

TEST(PgEngineTags, ATransactionThatMayNotBeginWaitsForEarlierAnswers) {
  pg_rig rig(untagged_allowed());
  rig.serve_untagged();
  rig.client(query("SELECT 1") + query("/*fence:orders=x*/ BEGIN"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q SELECT 1"));
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.server(complete("SELECT 1") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "Z I", "E FATAL ZF003 applied no", "Z I"));
}

TEST(PgEngineTags, ABeginInsideATransactionIsAStatement) {
  pg_rig rig(untagged_allowed());
  rig.serve_untagged();
  rig.run("BEGIN", "BEGIN", 'T');
  rig.client(query("/*fence:orders=x*/ BEGIN"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q FAIL ZF003"));
  EXPECT_FALSE(rig.engine.closing());
}

TEST(PgEngineTags, APreparedBeginIsOne) {
  pg_rig rig(untagged_allowed());
  rig.serve_untagged();
  rig.client(parse("b", "/*fence:orders=34*/ BEGIN") + sync());
  rig.server(armed({{"orders", "34"}}));
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=35*/ SELECT 1"));
  rig.server(armed(orders_35) + close_complete() + ready('I'));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
  rig.host.saw("", "orders", fence::token(35));
  rig.client(bind_to("b") + execute());
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.client(sync());
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied no", "Z I"));
}

// The server skips the second Parse, and keeps what the first connection's holder has put there.
TEST(PgEngineTags, WhatTheServerMayHaveKeptWithoutANameKeepsItsTag) {
  pg_rig rig;
  rig.serve("33");
  rig.client(parse("", "/*fence:orders=33*/ INSERT") + sync());
  rig.server(parse_complete() + ready('I'));
  rig.client(query("/*fence:orders=34*/ SELECT 1"));
  rig.server(armed({{"orders", "34"}}));
  rig.server(complete("SELECT 1") + ready('I'));
  rig.client(parse("bad", "nonsense") + parse("", "SELECT 1") + sync());
  rig.server(error_of("ERROR", "42601") + ready('I'));
  rig.forget();
  rig.client(bind_to("") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P FAIL ZF003", "B", "E", "E", "S"));
  rig.server(error_of("ERROR", "ZF003") + ready('I'));
  rig.forget();
  const auto anew = parse("", "SELECT 1") + bind_to("") + execute() + sync();
  rig.client(anew);
  EXPECT_EQ(rig.engine.to_backend, anew);
}

// libpq calls functions by it, by their numbers; fencegate.arm may be one of them.
TEST(PgEngineTags, BehindAFunctionCallEachTagIsProven) {
  pg_rig rig;
  rig.serve();
  rig.client(wire::encode_pg_message('F', "12345678901234"));
  rig.server(wire::encode_pg_message('V', "") + ready('I'));
  rig.forget();
  rig.client(query("/*fence:orders=34*/ INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("Q ARM orders 34"));
}

}  // namespace
}  // namespace fencegate
