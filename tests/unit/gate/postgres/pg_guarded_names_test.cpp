// Names, and what is refused.
#include "unit/gate/postgres/guarded_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

// ── names

TEST(PgGuardedNames, ANameOfThisSegmentIsWhatItsParseSays) {
  guarded_rig rig;
  rig.begin_guarded();
  rig.client(parse("b", "COMMIT") + bind_to("b") + execute() + insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"P COMMIT", "B", "E"} + with_guard));
}

TEST(PgGuardedNames, WhatDoesNotStandRightBehindItsParseOrBindMayBeSomethingElse) {
  guarded_rig rig;
  rig.client(parse("b", "SET a TO b") + parse("", "SHOW a") + bind_to("b") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P SET a TO b", "P SHOW a", "[guard]", "B", "E", "S"));
  guarded_rig portals;
  portals.client(parse("", "COMMIT") + bind_to("", "p") + parse("", "SHOW a") + execute("p") + statement("INSERT") +
                 sync());
  EXPECT_THAT(portals.sent(),
              ElementsAre("P COMMIT", "B", "P SHOW a", "[guard]", "E", "[guard]", "P INSERT", "B", "E", "S"));
}

TEST(PgGuardedNames, ANameIsKnownLaterOnlyBehindItsParseComplete) {
  guarded_rig rig(direct);
  rig.run(parse("s", "SELECT 1") + sync(), guard_parsed() + fails() + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
  EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("not known")));
}

TEST(PgGuardedNames, ANameThatIsTakenKeepsWhatItWas) {
  guarded_rig rig(direct);
  rig.run(parse("s", "CALL p()") + sync(),
          own("BEGIN") + guard_parsed() + parse_complete() + own("COMMIT") + ready('I'));
  rig.run(parse("s", "SELECT 1") + sync(), guard_kept() + fails("42P05") + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[kept guard]", "B", "E", "[commit]", "S"));
}

TEST(PgGuardedNames, AClosedNameIsUnknown) {
  guarded_rig rig(direct);
  rig.run(parse("s", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
  rig.run(close_statement("s") + sync(), close_complete() + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
}

TEST(PgGuardedNames, AnUnknownNameIsRefusedButInAKnownBlockOfASessionOfItsOwn) {
  for (const auto at : {pooled, direct}) {
    guarded_rig rig(at);
    rig.client(bind_to("s") + execute() + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
    guarded_rig in_block(at);
    in_block.begin();
    in_block.client(bind_to("s") + execute() + insert);
    if (at == direct)
      EXPECT_THAT(in_block.sent(),
                  ElementsAre("[unnamed guard]", "B", "E", "[unnamed guard]", "P INSERT", "B", "E", "H"))
          << "it may be COMMIT, or COPY";
    else
      EXPECT_THAT(in_block.sent(), ElementsAre("[refusal]", "S"));
  }
}

TEST(PgGuardedNames, DirectlyARememberedStatementIsPlainOrMayBeAnything) {
  guarded_rig rig(direct);
  rig.run(parse("s", "SELECT 1") + parse("c", "COMMIT") + parse("b", "BEGIN") + sync(),
          guard_parsed() + parse_complete() + parse_complete() + parse_complete() + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[kept guard]", "B", "E", "S"));
  rig.server(guard_kept() + bind_complete() + complete("SELECT 1") + ready('I'));
  rig.client(bind_to("b") + execute() + bind_to("c") + execute() + insert);
  EXPECT_THAT(rig.sent(),
              ElementsAreArray(words{"[kept guard]", "B", "E", "[kept guard]", "B", "E", "[kept guard]"} + unguarded));
}

// The session may be another by then, and the name that of another client.
TEST(PgGuardedNames, BehindAPoolerANameOfAnotherTransactionIsRefused) {
  for (const std::string name : {"", "s"})
    for (const std::string sql : {"SELECT 1", "BEGIN", "COMMIT", "COPY t FROM STDIN"}) {
      guarded_rig rig;
      rig.client(parse(name, sql) + sync());
      rig.server((sql == "BEGIN" || sql == "COMMIT" ? "" : guarded()) + parse_complete() + ready('I'));
      rig.forget();
      rig.client(bind_to(name) + execute() + sync());
      EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S")) << sql;
      EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("behind a pooler"))) << sql;
      rig.server(fails("ZF007") + ready('I'));
      rig.begin_guarded();
      rig.client(bind_to(name) + execute() + sync());
      EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S")) << "in a block, too: " << sql;
    }
}

TEST(PgGuardedNames, BehindAPoolerANameOfTheSameTransactionIsWhatItWas) {
  guarded_rig rig;
  rig.begin();
  rig.run(parse("s", "SELECT 1") + sync(), guarded() + parse_complete() + ready('T'));
  rig.client(bind_to("s") + execute() + insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"B", "E"} + unguarded));
}

TEST(PgGuardedNames, APortalOfAnEarlierSegmentMayBeAnything) {
  guarded_rig rig;
  rig.begin();
  rig.run(parse("", "SELECT 1") + bind_to("", "p") + sync(),
          guarded() + parse_complete() + bind_complete() + ready('T'));
  rig.client(execute("p") + insert);
  EXPECT_THAT(rig.sent(), ElementsAre("E", "[guard]", "P INSERT", "B", "E", "H"));
}

// The server compares no more than 63 bytes of a name; one beyond ASCII may be another in the next encoding.
TEST(PgGuardedNames, NamesAreToldApartAsTheServerDoes) {
  const std::string cut(63, 'n');
  guarded_rig rig(direct);
  rig.run(parse(cut + "1", "CALL p()") + sync(),
          own("BEGIN") + guard_parsed() + parse_complete() + own("COMMIT") + ready('I'));
  rig.client(bind_to(cut + "2") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[kept guard]", "B", "E", "[commit]", "S"));
  guarded_rig beyond(direct);
  beyond.client(parse("\xE9", "SELECT 1") + bind_to("\xE9") + execute() + sync());
  EXPECT_THAT(beyond.sent(), ElementsAre("[unnamed guard]", "P SELECT 1", "[refusal]", "S"));
}

TEST(PgGuardedNames, ADescribeRunsNothingOfItsStatement) {
  guarded_rig rig(direct);
  rig.client(describe_statement("s") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[unnamed guard]", "D", "S"));
  guarded_rig begins;
  begins.client(parse("", "BEGIN") + describe_statement("") + bind_to("") + describe_portal() + execute() + sync());
  EXPECT_THAT(begins.sent(), ElementsAre("P BEGIN", "D", "B", "D", "E", "S"));
}

// ── the statement without a name, in a direct session

class kept_guard : public guarded_rig {
 public:
  kept_guard() : guarded_rig(direct) {
    run(parse("s", "INSERT") + sync(), guard_parsed() + parse_complete() + ready('I'));
  }
  // What goes to the server for the client's next one.
  words next() {
    forget();
    client(bind_to("s") + execute() + sync());
    return sent();
  }
};

const words by_kept_guard{"[kept guard]", "B", "E", "S"}, by_unnamed_guard{"[unnamed guard]", "B", "E", "S"},
    by_named_guard{"[guard]", "B", "E", "S"};

TEST(PgGuardedKept, AGuardStaysParsedWhereNothingElseTakesItsPlace) {
  kept_guard rig;
  EXPECT_EQ(rig.next(), by_kept_guard);
  rig.server(guard_kept() + bind_complete() + complete("INSERT 0 1") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("2", "C INSERT 0 1", "Z I"));
  rig.run(parse("t", "DISCARD ALL") + bind_to("t") + execute() + sync(), done("DISCARD ALL") + ready('I'));
  EXPECT_EQ(rig.next(), by_kept_guard) << "of the session's own statements that drops those with a name";
}

TEST(PgGuardedKept, BehindAPoolerEachIsParsedAnew) {
  guarded_rig rig;
  rig.client(insert);
  EXPECT_EQ(rig.sent(), with_guard);
  rig.server(guarded() + done("INSERT 0 1") + ready('I'));
  rig.client(insert);
  EXPECT_EQ(rig.sent(), with_guard);
}

TEST(PgGuardedKept, AQueryTakesItsPlace) {
  for (const auto& [messages, replies] :
       {std::pair{query("SHOW a"), complete("SHOW") + ready('I')},
        std::pair{query("SELECT 1"), guard_kept() + piece("SELECT 1") + query_end('I')},
        std::pair{query("SELECT x"), guard_kept() + fails("42703") + query_end('I').substr(close_complete().size())}}) {
    kept_guard rig;
    rig.run(messages, replies);
    EXPECT_EQ(rig.next(), by_unnamed_guard);
    rig.server(guard_parsed() + bind_complete() + complete("INSERT 0 1") + ready('I'));
    EXPECT_EQ(rig.next(), by_kept_guard);
  }
}

TEST(PgGuardedKept, AStatementOfTheClientsTakesItsPlaceAndKeepsIt) {
  kept_guard rig;
  rig.run(parse("", "SHOW a") + sync(), parse_complete() + ready('I'));
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(rig.next(), by_named_guard);
    rig.server(guarded() + bind_complete() + complete("INSERT 0 1") + ready('I'));
  }
  rig.run(close_statement("") + sync(), close_complete() + ready('I'));
  EXPECT_EQ(rig.next(), by_unnamed_guard);
}

// The server has dropped what was there before it read the text.
TEST(PgGuardedKept, AStatementOfTheClientsThatFailsLeavesNothing) {
  kept_guard rig;
  rig.run(parse("", "SHOW a b") + sync(), fails("42601") + ready('I'));
  EXPECT_EQ(rig.next(), by_unnamed_guard);
}

TEST(PgGuardedKept, AStatementThatTheServerSkippedIsNotThere) {
  kept_guard rig;
  rig.run(parse("b", "BEGIN") + sync(), parse_complete() + ready('I'));
  rig.run(bind_to("s") + execute() + parse("", "SELECT 1") + sync(),
          guard_kept() + bind_complete() + fails() + ready('I'));
  EXPECT_EQ(rig.next(), by_kept_guard);
  rig.server(guard_kept() + bind_complete() + complete("INSERT 0 1") + ready('I'));
  rig.run(bind_to("b") + execute() + sync(), guard_kept() + bind_complete() + complete("BEGIN") + ready('T'));
  rig.client(bind_to("") + execute() + sync());
  EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("not known"))) << "it would run the guard";
}

TEST(PgGuardedKept, AStatementWhoseCloseTheServerSkippedIsStillThere) {
  guarded_rig rig(direct);
  rig.run(parse("", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
  rig.run(bind_to("") + execute() + close_statement("") + sync(), guarded() + bind_complete() + fails() + ready('I'));
  rig.client(bind_to("") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "B", "E", "S"));
  EXPECT_THAT(rig.refused, IsEmpty());
}

TEST(PgGuardedKept, InTheSegmentOfAStatementOfTheClientsToo) {
  kept_guard rig;
  rig.client(statement("COMMIT") + bind_to("s") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P COMMIT", "B", "E", "[guard]", "B", "E", "S"));
}

// Its ParseComplete comes when something else has taken its place already.
TEST(PgGuardedKept, AParseThatIsAnsweredLateIsNotTheLast) {
  guarded_rig rig(direct);
  rig.run(parse("s", "INSERT") + close_statement("") + sync(),
          guard_parsed() + parse_complete() + close_complete() + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_EQ(rig.sent(), by_unnamed_guard);
}

TEST(PgGuardedKept, OneThatFailedIsParsedAnew) {
  kept_guard rig;
  EXPECT_EQ(rig.next(), by_kept_guard);
  rig.server(close_complete() + fails("26000") + ready('I'));
  EXPECT_EQ(rig.next(), by_unnamed_guard);
  rig.server(close_complete() + fails("42883") + ready('I'));
  EXPECT_EQ(rig.next(), by_unnamed_guard) << "nor is it there before its ParseComplete came";
}

TEST(PgGuardedKept, IsNoStatementOfTheClients) {
  for (const auto& message : {bind_to(""), describe_statement("")}) {
    kept_guard rig;
    rig.begin();
    rig.run(bind_to("s") + execute() + sync(), guard_parsed() + bind_complete() + complete("INSERT 0 1") + ready('T'));
    rig.client(message + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
  }
}

TEST(PgGuardedNames, OneWhoseCloseTheServerSkippedIsStillKnown) {
  for (const bool skipped : {true, false}) {
    guarded_rig rig(direct);
    rig.run(parse("s", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
    rig.run(
        bind_to("s") + execute() + close_statement("s") + sync(),
        guard_kept() + bind_complete() + (skipped ? fails() : complete("SELECT 1") + close_complete()) + ready('I'));
    rig.client(bind_to("s") + execute() + sync());
    EXPECT_EQ(rig.refused.size(), skipped ? 0 : 1);
  }
}

TEST(PgGuardedNames, BehindItsCloseOneIsNotKnown) {
  guarded_rig rig(direct);
  rig.run(parse("s", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
  rig.client(close_statement("s") + bind_to("s") + sync());
  EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("not known")));
  guarded_rig same(direct);
  same.client(parse("s", "SELECT 1") + close_statement("s") + parse("s", "SELECT 2") + bind_to("s") + sync());
  EXPECT_THAT(same.refused, IsEmpty());
}

// ── what is refused

TEST(PgGuardedNames, RefusesWhatNoGuardCovers) {
  struct refusal {
    std::string messages, why;
    bool directly = true;
  };
  for (const auto& one :
       {refusal{statement("PREPARE TRANSACTION 'x'"), "outlives"},
        refusal{query("prepare/**/transaction 'x'"), "outlives"},
        refusal{query("SELECT 1; PREPARE TRANSACTION 'x'"), "outlives"},
        refusal{parse("cc", "COMMIT AND CHAIN"), "under a name"}, refusal{parse("cc", "SAVEPOINT a"), "under a name"},
        refusal{parse("cc", "ROLLBACK TO a"), "under a name"}, refusal{parse("cc", "RELEASE a"), "under a name"},
        refusal{parse("cc", "COMMIT PREPARED 'x'"), "under a name"},
        refusal{parse("_fencegate", "SELECT 1"), "the gate's"}, refusal{bind_to("_fencegate2"), "the gate's"},
        refusal{parse("", "SELECT 1") + bind_to("", "_fencegate"), "the gate's"},
        refusal{statement("PREPARE s AS SELECT 1"), "PREPARE stays", false},
        refusal{query("PREPARE s AS SELECT 1"), "PREPARE stays", false},
        refusal{query("SET standard_conforming_strings TO off; SELECT '\\'"), "how the rest"},
        refusal{query("SET client_encoding TO 'SJIS'; SELECT '\x83'"), "how the rest"},
        refusal{query("SET NAMES 'SJIS'; SELECT '\x83'"), "how the rest"}})
    for (const auto at : {pooled, direct}) {
      guarded_rig rig(at);
      rig.client(one.messages);
      if (at == direct && !one.directly) {
        EXPECT_THAT(rig.refused, IsEmpty()) << one.messages;
        continue;
      }
      EXPECT_THAT(rig.refused, ElementsAre(HasSubstr(one.why))) << one.messages;
      EXPECT_THAT(rig.sent(), testing::Contains("[refusal]")) << one.messages;
    }
}

TEST(PgGuardedNames, BehindWhatIsRefusedTheServerSkipsUpToTheSync) {
  guarded_rig rig;
  rig.client(parse("", "PREPARE TRANSACTION 'x'") + bind_to("") + execute() + insert);
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
  rig.server(fails("ZF007") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF007", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedNames, WhatSomebodyElseRefusesFailsInItsPlace) {
  guarded_rig rig;
  rig.refuses = "QPF";
  rig.client(parse("", "SELECT 1") + bind_to("") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[foreign]", "S"));
  rig.server(fails("ZF003") + ready('I'));
  for (const auto& message : {query("SELECT 1"), call_function()}) {
    rig.client(message);
    EXPECT_THAT(rig.sent(), ElementsAre("[foreign]", "S"));
    rig.server(fails("ZF003") + ready('I'));
  }
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF003", "Z I", "E ERROR ZF003", "Z I", "E ERROR ZF003", "Z I"));
}

TEST(PgGuardedNames, AMessageWhoseNamesDoNotEndIsMalformed) {
  for (const char type : {'P', 'B', 'D', 'E', 'C'}) {
    guarded_rig rig;
    rig.client(wire::encode_pg_message(type, "Sname"));
    EXPECT_TRUE(rig.malformed) << type;
    EXPECT_THAT(rig.sent(), IsEmpty()) << type;
  }
}

}  // namespace
}  // namespace fencegate
