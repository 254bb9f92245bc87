#include "unit/gate/postgres/guarded_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

const words in_own_block{"[begin]", "[guard]"};

// A Sync does not go behind what may begin to read data before it was answered.
std::string sync_behind(const std::string& sql) {
  return sql.starts_with("COPY") || sql.starts_with("EXECUTE") ? "H" : "S";
}

// ── where a guard goes

TEST(PgGuarded, AGuardIsAWholeStatementWithoutASync) {
  guarded_rig rig;
  rig.client(parse("", "INSERT"));
  const auto bytes = rig.sent_bytes();
  EXPECT_THAT(each_message(bytes, words_of_client), ElementsAre("C", "C", "P GUARD", "B", "E", "C", "C", "P INSERT"));
  const std::string name = "_fencegate\0"s;
  const auto closed = wire::encode_pg_message('C', "P" + name) + wire::encode_pg_message('C', "S" + name);
  EXPECT_TRUE(bytes.starts_with(closed)) << "what somebody has put under its name is gone";
}

TEST(PgGuarded, AGuardGoesInFrontOfWhateverMayRunCode) {
  for (const std::string sql :
       {"SELECT 1",     "INSERT",  "UPDATE",    "DELETE",  "MERGE",    "WITH",    "VALUES (1)", "TABLE t",
        "(SELECT 1)",   "EXPLAIN", "FETCH c",   "MOVE c",  "CREATE",   "ALTER",   "DROP",       "TRUNCATE",
        "GRANT",        "REVOKE",  "COMMENT",   "ANALYZE", "REFRESH",  "CLOSE c", "NOTIFY n",   "LISTEN n",
        "DEALLOCATE s", "LOCK t",  "DECLARE c", "COPY t",  "EXECUTE s"}) {
    guarded_rig rig(direct);
    rig.client(statement(sql) + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[unnamed guard]", "P " + sql, "B", "E", sync_behind(sql)));
    EXPECT_THAT(rig.refused, IsEmpty());
  }
  guarded_rig rig(direct);
  rig.client(statement("PREPARE s AS SELECT 1") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[unnamed guard]", "P PREPARE s AS SELECT 1", "B", "E", "S"));
}

TEST(PgGuarded, NoGuardInFrontOfWhatRunsNone) {
  for (const std::string sql :
       {"BEGIN", "START TRANSACTION", "SET a TO b", "RESET a", "SHOW a", "DISCARD ALL", "UNLISTEN n", "",
        "/* nothing */", "COMMIT", "END WORK", "ROLLBACK TRANSACTION", "ABORT"}) {
    guarded_rig rig;
    rig.client(statement(sql) + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P " + sql, "B", "E", "S"));
  }
}

TEST(PgGuarded, WhatBeginsWithAnythingElseMayDoAnything) {
  for (const std::string sql : {"CALL p()", "DO $$x$$", "VACUUM", "SELEC 1", "CHECKPOINT", "$1", "\xE9"}) {
    guarded_rig rig;
    rig.client(statement(sql) + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[guard]", "P " + sql, "B", "E", "[commit]", "S"));
  }
}

TEST(PgGuarded, TheFirstParseBindDescribeOrExecuteHasTheGuardInFront) {
  for (const auto& first : {bind_to("s"), describe_statement("s")}) {
    guarded_rig rig(direct);
    rig.run(parse("s", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
    rig.client(first + execute() + sync());
    EXPECT_THAT(rig.sent().front(), "[kept guard]");
  }
  for (const auto& first : {execute("p"), describe_portal("p")}) {
    guarded_rig rig;
    rig.begin();
    rig.client(first + sync());
    EXPECT_THAT(rig.sent().front(), "[guard]") << "a portal that an earlier segment has left";
  }
}

TEST(PgGuarded, OneGuardIsEnoughForASegment) {
  guarded_rig rig;
  rig.client(parse("s", "INSERT") + close_statement("x") + bind_to("s") + describe_portal() + execute() +
             statement("UPDATE") + statement("SET a TO b") + statement("BEGIN") + statement("DELETE") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P INSERT", "C", "B", "D", "E", "P UPDATE", "B", "E", "P SET a TO b",
                                      "B", "E", "P BEGIN", "B", "E", "P DELETE", "B", "E", "S"));
}

TEST(PgGuarded, WhatRunsNothingPasses) {
  guarded_rig rig;
  rig.client(close_statement("s") + flush() + copy_data("x") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("C", "H", "S")) << "data for no COPY goes nowhere";
  rig.server(close_complete() + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("3", "Z I"));
}

TEST(PgGuarded, BehindTheEndOfATransactionThereIsAnotherGuard) {
  for (const std::string end : {"COMMIT", "ROLLBACK", "END", "ABORT"}) {
    guarded_rig rig;
    rig.client(statement("BEGIN") + statement("INSERT") + statement(end) + statement("UPDATE") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P BEGIN", "B", "E", "[guard]", "P INSERT", "B", "E", "P " + end, "B", "E",
                                        "[guard]", "P UPDATE", "B", "E", "S"));
  }
}

TEST(PgGuarded, BehindWhatMayHaveEndedTheTransactionThereIsAnotherGuard) {
  for (const std::string end : {"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "ROLLBACK TO a", "SAVEPOINT a", "RELEASE a",
                                "COMMIT PREPARED 'x'", "EXECUTE s", "VACUUM"}) {
    guarded_rig rig;
    rig.begin_guarded();
    rig.client(statement(end) + statement("INSERT") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P " + end, "B", "E", "[guard]", "P INSERT", "B", "E", sync_behind(end)));
  }
}

TEST(PgGuarded, WhatMayEndATransactionHasAGuardOnlyOutsideOfAKnownBlock) {
  guarded_rig rig;
  rig.client(statement("SAVEPOINT a") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P SAVEPOINT a", "B", "E", "S"));
  guarded_rig in_block;
  in_block.begin();
  in_block.client(statement("SAVEPOINT a") + statement("RELEASE a") + sync());
  EXPECT_THAT(in_block.sent(), ElementsAre("P SAVEPOINT a", "B", "E", "[guard]", "P RELEASE a", "B", "E", "S"));
}

TEST(PgGuarded, WhatEndsNothingInABlockNeedsNoOtherGuard) {
  guarded_rig rig;
  rig.begin_guarded();
  rig.client(statement("CALL p()") + statement("INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P CALL p()", "B", "E", "P INSERT", "B", "E", "S"));
}

// ── from one segment to the next

TEST(PgGuarded, TheGuardOfAnOpenBlockCountsOn) {
  guarded_rig rig;
  rig.begin();
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
  rig.server(guarded() + done("INSERT 0 1") + ready('T'));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(unguarded));
}

TEST(PgGuarded, AGuardInFrontOfBeginHoldsInTheBlock) {
  guarded_rig rig;
  rig.run(statement("SELECT 1") + statement("BEGIN") + sync(),
          guarded() + done("SELECT 1") + done("BEGIN") + ready('T'));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(unguarded));
}

TEST(PgGuarded, AGuardEndsWithItsTransaction) {
  for (const char status : {'I', 'E'}) {
    guarded_rig rig;
    rig.begin();
    rig.run(insert, guarded() + done("INSERT 0 1") + ready(status));
    rig.client(insert);
    EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard)) << status;
  }
}

TEST(PgGuarded, ABlockWithoutAGuardHasNone) {
  guarded_rig rig;
  rig.run(statement("BEGIN") + sync(), done("BEGIN") + ready('T'));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
}

// The tag of COMMIT AND CHAIN is COMMIT; what a function has run has no tag of its own, so END is under no name.
TEST(PgGuarded, WhatTheServerCallsAnEndIsOne) {
  for (const std::string tag : {"COMMIT", "ROLLBACK", "PREPARE TRANSACTION"}) {
    guarded_rig rig;
    rig.begin();
    rig.run(statement("INSERT") + statement("EXECUTE s") + sync(),
            guarded() + done("INSERT 0 1") + done(tag) + ready('T'));
    rig.client(insert);
    EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard)) << tag;
  }
}

TEST(PgGuarded, AQueryThatEndsTheTransactionEndsTheGuard) {
  for (const std::string sql : {"COMMIT AND CHAIN", "ROLLBACK TO a", "EXECUTE s"}) {
    guarded_rig rig;
    rig.begin_guarded();
    rig.client(query(sql));
    EXPECT_THAT(rig.sent(), ElementsAre("Q " + sql));
    rig.server(complete(sql.substr(0, 6) == "COMMIT" ? "COMMIT" : "ROLLBACK") + ready('T'));
    rig.client(insert);
    EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard)) << sql;
  }
}

TEST(PgGuarded, AGuardBehindAnEndInTheSameSegmentCounts) {
  guarded_rig rig;
  rig.begin_guarded();
  rig.run(statement("COMMIT AND CHAIN") + statement("INSERT") + sync(),
          done("COMMIT") + guarded() + done("INSERT 0 1") + ready('T'));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(unguarded));
}

TEST(PgGuarded, AGuardWhoseReplyNeverCameIsNone) {
  guarded_rig rig;
  rig.begin();
  rig.run(query("SELECT 1"), close_complete() + close_complete() + parse_complete() + fails("ZF001") + ready('E'));
  rig.run(query("ROLLBACK TO a"), complete("ROLLBACK") + ready('T'));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
}

TEST(PgGuarded, NoSegmentLeavesBeforeTheLastWasAnswered) {
  guarded_rig rig;
  rig.client(insert + insert + sync());
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
  rig.server(guarded() + done("INSERT 0 1"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.waits());
  rig.server(ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
  rig.server(guarded() + done("INSERT 0 1") + ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('I'));
  EXPECT_FALSE(rig.waits());
  EXPECT_TRUE(rig.machine.idle());
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C INSERT 0 1", "Z I", "1", "2", "C INSERT 0 1", "Z I", "Z I"));
}

// ── a block of the machine's own

TEST(PgGuarded, WhatMayCommitInsideRunsInABlock) {
  for (const std::string sql : {"CALL p()", "DO $$x$$", "VACUUM"}) {
    guarded_rig rig;
    rig.client(parse("", sql) + bind_to("") + describe_portal() + execute() + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[guard]", "P " + sql, "B", "D", "E", "[commit]", "S"));
    rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + no_data() + complete("CALL") +
               own("COMMIT") + ready('I'));
    EXPECT_THAT(rig.told(), ElementsAre("1", "2", "n", "C CALL", "Z I"));
    EXPECT_TRUE(rig.machine.idle());
  }
}

TEST(PgGuarded, ABlockOfItsOwnThatFailedIsRolledBack) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + sync());
  rig.forget();
  rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + fails("22012") + ready('E'));
  EXPECT_THAT(rig.sent(), ElementsAre("[rollback]", "S"));
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "E ERROR 22012"));
  EXPECT_FALSE(rig.machine.idle());
  rig.server(own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuarded, ABlockOfItsOwnThatFailedBeforeTheSyncIsRolledBack) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + flush());
  rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + fails());
  rig.forget();
  rig.client(statement("INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('E'));
  EXPECT_THAT(rig.sent(), ElementsAre("[rollback]", "S"));
  rig.server(own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("Z I"));
}

TEST(PgGuarded, ACommitOfItsOwnThatFailsIsTheClientsError) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + sync());
  rig.forget();
  rig.server(own("BEGIN") + guarded() + done("CALL") + close_complete() + close_complete() + parse_complete() +
             bind_complete() + fails("23503") + ready('I'));
  EXPECT_THAT(rig.sent(), IsEmpty()) << "there is nothing to roll back";
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C CALL", "E ERROR 23503", "Z I"));
}

TEST(PgGuarded, InABlockOfTheClientsThereIsNoOther) {
  guarded_rig rig;
  rig.begin();
  rig.client(statement("CALL p()") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P CALL p()", "B", "E", "S"));
}

TEST(PgGuarded, OneBlockIsEnoughForASegment) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + statement("INSERT") + statement("CALL p()") + sync());
  EXPECT_THAT(rig.sent(), ElementsAreArray(in_own_block + words{"P CALL p()", "B", "E", "P INSERT", "B", "E",
                                                                "P CALL p()", "B", "E", "[commit]", "S"}));
}

TEST(PgGuarded, AClientsEndEndsTheBlockOfItsOwn) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + statement("COMMIT") + statement("INSERT") + sync());
  EXPECT_THAT(rig.sent(), ElementsAreArray(in_own_block + words{"P CALL p()", "B", "E", "P COMMIT", "B", "E", "[guard]",
                                                                "P INSERT", "B", "E", "S"}));
}

TEST(PgGuarded, AClientsBeginTakesOverTheBlockOfItsOwn) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + statement("BEGIN") + sync());
  EXPECT_THAT(rig.sent(), ElementsAreArray(in_own_block + words{"P CALL p()", "B", "E", "P BEGIN", "B", "E", "S"}));
}

TEST(PgGuarded, WhatMayCommitInsideIsRefusedWhereItIsNotKnownWhetherABlockIsOpen) {
  for (const std::string end : {"SAVEPOINT a", "COMMIT AND CHAIN", "EXECUTE s"}) {
    guarded_rig rig;
    rig.begin_guarded();
    rig.client(statement(end) + statement("CALL p()") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P " + end, "B", "E", "[refusal]", sync_behind(end)));
    EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("not known whether a transaction is open")));
  }
}

// ── a failed block

TEST(PgGuarded, InAFailedBlockOnlyWhatMayEndItGoesWithoutAGuard) {
  for (const std::string sql : {"ROLLBACK", "COMMIT", "ROLLBACK TO a", "ROLLBACK AND CHAIN", "EXECUTE s"}) {
    guarded_rig rig;
    rig.begin_failed();
    rig.client(statement(sql) + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P " + sql, "B", "E", sync_behind(sql)));
    guarded_rig simple;
    simple.begin_failed();
    simple.client(query(sql));
    EXPECT_THAT(simple.sent(), ElementsAre("Q " + sql));
  }
  guarded_rig rig;
  rig.begin_failed();
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
}

TEST(PgGuarded, BehindTheEndOfAFailedBlockThereIsAGuard) {
  for (const std::string sql : {"ROLLBACK", "ROLLBACK TO a", "EXECUTE s"}) {
    guarded_rig rig;
    rig.begin_failed();
    rig.client(statement(sql) + statement("INSERT") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("P " + sql, "B", "E", "[guard]", "P INSERT", "B", "E", sync_behind(sql)));
  }
}

// The block is the client's: what fails in it must leave it as it is.
TEST(PgGuarded, AFailedBlockIsNotEndedByWhatGetsABlockElsewhere) {
  for (const std::string sql : {"CALL p()", "DO $$x$$", "VACUUM"}) {
    guarded_rig rig;
    rig.begin_failed();
    rig.client(statement(sql) + sync());
    rig.forget();
    rig.server(close_complete() + close_complete() + parse_complete() + fails("25P02") + ready('E'));
    EXPECT_THAT(rig.sent(), IsEmpty()) << sql;
    EXPECT_THAT(rig.told(), ElementsAre("E ERROR 25P02", "Z E")) << sql;
  }
}

// ── errors

TEST(PgGuarded, BehindAnErrorTheClientsMessagesAreDroppedUpToItsSync) {
  guarded_rig rig;
  rig.client(parse("", "INSERT") + flush());
  rig.server(guarded() + fails());
  rig.forget();
  rig.client(bind_to("") + execute() + statement("COMMIT") + statement("CALL p()") + close_statement("s"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.client(sync());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("Z I"));
  rig.client(insert);
  EXPECT_THAT(rig.sent(), ElementsAreArray(with_guard));
}

TEST(PgGuarded, AFailedGuardIsTheClientsError) {
  guarded_rig rig;
  rig.client(insert);
  rig.server(close_complete() + close_complete() + parse_complete() + bind_complete() + fails("ZF001") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF001", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuarded, NoticesOfItsOwnStatementsAreNotTheClients) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + sync());
  rig.server(close_complete() + warning_of("25001") + close_complete() + parse_complete() + bind_complete() +
             complete("BEGIN") + close_complete() + close_complete() + guarded() + parse_complete() +
             warning_of("01000") + bind_complete() + complete("CALL") + warning_of("25P01") + own("COMMIT") +
             ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("1", "N WARNING 01000", "2", "C CALL", "Z I"));
}

}  // namespace
}  // namespace fencegate
