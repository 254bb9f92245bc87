#include "gate/pg_guard.hpp"

#include "wire/pg_message.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fencegate::gate {
namespace {

using kind = pg_guard::advice::kind;

// A client that speaks, and a server that answers at once unless it is told otherwise.
class GuardTest : public ::testing::Test {
 protected:
  kind query(std::string_view sql) {
    const auto advice = guard_.on_query(wire::scan_sql(sql), flight_, true);
    if (advice.what == kind::guard) flight_.on_injected_guard();
    if (advice.what == kind::bare || advice.what == kind::guard) flight_.on_sent('Q');
    return advice.what;
  }
  // The Query in flight is answered.
  void answer(std::string_view tag, char status) {
    guard_.on_complete(tag);
    ready(status);
  }
  void ready(char status) {
    ASSERT_TRUE(flight_.on_ready(status));
    guard_.on_ready(status);
  }
  kind run(std::string_view sql, std::string_view tag, char status) {
    const auto what = query(sql);
    if (what == kind::bare || what == kind::guard) answer(tag, status);
    return what;
  }

  kind parse(std::string_view sql, std::string_view name = "") {
    return counted('P', guard_.on_parse(name, wire::scan_sql(sql), flight_, true).what);
  }
  kind bind(std::string_view statement = "", std::string_view portal = "") {
    return counted('B', guard_.on_bind(portal, statement, flight_).what);
  }
  kind execute(std::string_view portal = "") { return counted('E', guard_.on_execute(portal, flight_).what); }
  kind sync() { return counted('S', guard_.on_other('S', flight_).what); }
  // Parse, Bind, Execute of the unnamed statement: what stands in front of Bind.
  kind step(std::string_view sql) {
    if (const auto what = parse(sql); what != kind::bare) return what;
    const auto what = bind();
    if (what == kind::bare || what == kind::guard) {
      EXPECT_EQ(execute(), kind::bare);
    }
    return what;
  }

  pg_guard guard_;
  pg_flight flight_;

 private:
  kind counted(char type, kind what) {
    if (what == kind::guard) flight_.on_injected_guard();
    if (what == kind::bare || what == kind::guard) flight_.on_sent(type);
    return what;
  }
};

TEST_F(GuardTest, EveryTransactionHasOneGuardBeforeItsFirstStatement) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard);
    EXPECT_EQ(run("SELECT 1", "SELECT 1", 'T'), kind::bare);
    EXPECT_EQ(run("COMMIT", "COMMIT", 'I'), kind::bare);
    EXPECT_EQ(run("SELECT 1", "SELECT 1", 'I'), kind::guard) << "a function may write";
  }
}

TEST_F(GuardTest, WhatSetsATransactionUpGoesFirst) {
  EXPECT_EQ(run("start transaction isolation level serializable", "START TRANSACTION", 'T'), kind::bare);
  EXPECT_EQ(run("SET TRANSACTION READ WRITE", "SET", 'T'), kind::bare);
  EXPECT_EQ(run("SAVEPOINT a", "SAVEPOINT", 'T'), kind::guard) << "the guard is older than any savepoint";
}

// Behind a guard SET TRANSACTION would be refused.
TEST_F(GuardTest, WhatTakesNoSnapshotInABlockGoesBeforeTheGuard) {
  for (const std::string_view sql : {"SHOW x", "SET LOCAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                                     "SET transaction_isolation = serializable", "RESET x", "LISTEN x", "UNLISTEN x"}) {
    EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
    EXPECT_EQ(run(sql, "x", 'T'), kind::bare) << sql;
    EXPECT_EQ(run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET", 'T'), kind::bare);
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard) << sql;
    EXPECT_EQ(run(sql, "x", 'T'), kind::bare) << sql;
    EXPECT_EQ(run("COMMIT", "COMMIT", 'I'), kind::bare);
    EXPECT_EQ(run(sql, "x", 'I'), kind::guard) << "a transaction of its own: " << sql;
    EXPECT_EQ(step("BEGIN"), kind::bare);
    EXPECT_EQ(step(sql), kind::bare) << sql;
    EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << sql;
    EXPECT_EQ(step("COMMIT"), kind::bare);
    EXPECT_EQ(step(sql), kind::guard) << sql;
    EXPECT_EQ(sync(), kind::bare);
    ready('I');
  }
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(run("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS", 'T'), kind::guard) << "triggers may write";
}

// Who pauses behind LOCK is ended by a raise only if it holds a guard's lock, too.
TEST_F(GuardTest, LockHasItsGuardInFrontWhereEachStatementHasItsOwnSnapshot) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
    EXPECT_EQ(query("LOCK TABLE t"), kind::ask);
    guard_.on_isolation("read committed");
    EXPECT_EQ(run("LOCK TABLE t", "LOCK TABLE", 'T'), kind::guard);
    EXPECT_EQ(run("LOCK TABLE u", "LOCK TABLE", 'T'), kind::bare);
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::bare);
    EXPECT_EQ(run("COMMIT", "COMMIT", 'I'), kind::bare);
  }
  EXPECT_EQ(run("LOCK TABLE t", "x", 'I'), kind::guard) << "a transaction of its own";
}

// What waits in LOCK would see what was there before.
TEST_F(GuardTest, LockGoesBeforeTheGuardWhereTheGuardTakesTheSnapshot) {
  for (const std::string_view level : {"repeatable read", "serializable", "something else", ""}) {
    EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(query("LOCK TABLE t"), kind::ask) << level;
      guard_.on_isolation(level);
      EXPECT_EQ(run("LOCK TABLE t", "LOCK TABLE", 'T'), kind::bare) << level;
    }
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard) << level;
    EXPECT_EQ(run("COMMIT", "COMMIT", 'I'), kind::bare);
  }
}

TEST_F(GuardTest, TheIsolationOfOneTransactionSaysNothingOfAnother) {
  EXPECT_EQ(step("BEGIN"), kind::bare);
  EXPECT_EQ(step("LOCK TABLE t"), kind::ask);
  guard_.on_isolation("serializable");
  EXPECT_EQ(step("LOCK TABLE t"), kind::bare);
  EXPECT_EQ(step("COMMIT"), kind::bare);
  EXPECT_EQ(step("BEGIN"), kind::bare);
  EXPECT_EQ(step("LOCK TABLE t"), kind::ask);
  guard_.on_isolation("serializable");
  EXPECT_EQ(step("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), kind::bare);
  EXPECT_EQ(step("LOCK TABLE t"), kind::ask);
}

TEST_F(GuardTest, NothingIsAskedThatNobodyWouldAnswer) {
  EXPECT_EQ(step("BEGIN"), kind::bare);
  EXPECT_EQ(step("SHOW nothing"), kind::bare);
  guard_.on_error();
  EXPECT_EQ(step("LOCK TABLE t"), kind::bare) << "the server skips it";
  EXPECT_EQ(sync(), kind::bare);
  ready('E');
  EXPECT_EQ(run("LOCK TABLE t", "x", 'E'), kind::bare) << "it fails";
  EXPECT_EQ(run("ROLLBACK", "ROLLBACK", 'I'), kind::bare);
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(query("LOCK TABLE t"), kind::ask);
}

TEST_F(GuardTest, AChainedTransactionIsGuardedAnew) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard);
  EXPECT_EQ(run("COMMIT AND CHAIN", "COMMIT", 'T'), kind::bare);
  EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard);
}

TEST_F(GuardTest, AGuardIsNotReliedOnBehindAnEndThatTheServerKeepsToItself) {
  for (const std::string_view end : {"COMMIT", "ROLLBACK", "INSERT INTO t VALUES (2); COMMIT"}) {
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard) << end;
    EXPECT_EQ(query(end), kind::bare);
    ready('T');
  }
  EXPECT_EQ(query("INSERT INTO t VALUES (1)"), kind::guard);
}

TEST_F(GuardTest, AFailedTransactionReachesItsEnd) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(query("INSERT INTO missing VALUES (1)"), kind::guard);
  ready('E');
  EXPECT_EQ(run("ROLLBACK TO a", "ROLLBACK", 'T'), kind::bare);
  EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard) << "the guard may have been skipped";
}

TEST_F(GuardTest, RefusesWhatTheGuardWouldNotCover) {
  for (const std::string_view sql :
       {"BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2)", "COMMIT; SELECT f()", "SELECT 1; BEGIN",
        "ROLLBACK; SELECT f()", "BEGIN READ ONLY; SELECT 1; COMMIT", "CALL p()", "DO $$BEGIN COMMIT; END$$",
        "SELECT 1; CALL p()", "COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'", "/* c */ end; select 1"})
    EXPECT_EQ(query(sql), kind::refuse) << sql;
}

TEST_F(GuardTest, AllowsWhatOneGuardCovers) {
  for (const std::string_view sql : {"BEGIN; INSERT INTO t VALUES (1); COMMIT", "INSERT INTO t VALUES (';COMMIT;')",
                                     "SELECT 1; SELECT 2", "SELECT $$ COMMIT; $$; SELECT 2"})
    EXPECT_EQ(run(sql, "COMMIT", 'I'), kind::guard) << sql;
}

TEST_F(GuardTest, CallsRunInsideATransactionBlock) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(run("CALL p()", "CALL", 'T'), kind::guard);
}

TEST_F(GuardTest, WhatTheServerCallsAnEndIsOne) {
  for (const std::string_view tag : {"COMMIT", "ROLLBACK"}) {
    EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
    EXPECT_EQ(run("INSERT INTO t VALUES (1)", "INSERT 0 1", 'T'), kind::guard);
    EXPECT_EQ(run("SELECT 1", tag, 'T'), kind::bare);
    EXPECT_EQ(run("INSERT INTO t VALUES (2)", "INSERT 0 1", 'T'), kind::guard) << tag;
    EXPECT_EQ(run("COMMIT", "COMMIT", 'I'), kind::bare);
  }
}

// What the server said last of the transaction is no longer true there.
TEST_F(GuardTest, BehindTheEndOfATransactionTheSamePipelineIsOutsideOfIt) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(step("COMMIT"), kind::bare);
  EXPECT_EQ(parse("CALL p()"), kind::bare);
  EXPECT_EQ(bind(), kind::refuse);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard);
  EXPECT_EQ(sync(), kind::bare);
  ready('I');
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(query("INSERT INTO nowhere VALUES (1)"), kind::guard);
  guard_.on_error();
  ready('E');
  EXPECT_EQ(step("SELECT 1"), kind::bare) << "it fails";
  EXPECT_EQ(step("ROLLBACK"), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (2)"), kind::guard);
}

TEST_F(GuardTest, AQueryWaitsUntilTheStateIsKnown) {
  EXPECT_EQ(query("COMMIT"), kind::bare);
  EXPECT_EQ(query("INSERT INTO t VALUES (1)"), kind::wait);
  answer("COMMIT", 'I');
  EXPECT_EQ(query("INSERT INTO t VALUES (1)"), kind::guard);
}

TEST_F(GuardTest, AStretchMayBeginAndEndTransactions) {
  EXPECT_EQ(step("BEGIN"), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard);
  EXPECT_EQ(step("INSERT INTO t VALUES (2)"), kind::bare);
  EXPECT_EQ(step("COMMIT"), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (3)"), kind::guard);
  EXPECT_EQ(sync(), kind::bare);
  EXPECT_EQ(parse("INSERT INTO t VALUES (4)"), kind::wait);
  ready('I');
  EXPECT_EQ(step("INSERT INTO t VALUES (4)"), kind::guard);
}

TEST_F(GuardTest, AProcedureOutsideABlockIsRefusedWhenItIsBound) {
  EXPECT_EQ(parse("CALL p()", "s"), kind::bare);
  EXPECT_EQ(bind("s"), kind::refuse);
}

TEST_F(GuardTest, AStatementThatIsNotKnownMayDoAnything) {
  EXPECT_EQ(bind("prepared by somebody"), kind::refuse) << "it may be CALL";
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(bind("prepared by somebody"), kind::guard);
  EXPECT_EQ(execute(), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << "it may have been COMMIT";
  EXPECT_EQ(bind("prepared by somebody"), kind::refuse);
}

TEST_F(GuardTest, TheUnnamedStatementIsKnownOnlyInItsStretch) {
  EXPECT_EQ(parse("CALL p()"), kind::bare);
  EXPECT_EQ(sync(), kind::bare);
  ready('I');
  EXPECT_EQ(bind(), kind::refuse);
}

TEST_F(GuardTest, ANameThatIsUsedAgainKeepsWhatItWas) {
  EXPECT_EQ(parse("COMMIT", "s"), kind::bare);
  EXPECT_EQ(parse("SELECT 1", "s"), kind::bare);
  EXPECT_EQ(bind("s"), kind::guard);
  EXPECT_EQ(execute(), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << "the server may have kept COMMIT under this name";
}

// The server compares no more than 63 bytes of a name; one beyond ASCII may be another in the next encoding.
TEST_F(GuardTest, NamesAreToldApartAsTheServerDoes) {
  const std::string cut(63, 'n');
  EXPECT_EQ(parse("COMMIT", cut + "1"), kind::bare);
  EXPECT_EQ(parse("SELECT 1", cut + "2"), kind::bare);
  EXPECT_EQ(bind(cut + "2", cut + "a"), kind::guard);
  EXPECT_EQ(execute(cut + "b"), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << "COMMIT ran under the other name";
  EXPECT_EQ(parse("SELECT 1", "\xE9"), kind::bare);
  EXPECT_EQ(bind("\xE9"), kind::refuse);
}

TEST_F(GuardTest, APortalThatIsInUseKeepsWhatItWas) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(parse("COMMIT"), kind::bare);
  EXPECT_EQ(bind("", "p"), kind::bare);
  EXPECT_EQ(parse("SELECT 1"), kind::bare);
  EXPECT_EQ(bind("", "p"), kind::guard);
  EXPECT_EQ(execute("p"), kind::bare);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << "the server may have kept COMMIT in this portal";
}

TEST_F(GuardTest, WhatTheServerMayHaveSkippedLeavesThePortalWithoutAName) {
  EXPECT_EQ(run("BEGIN", "BEGIN", 'T'), kind::bare);
  EXPECT_EQ(parse("COMMIT"), kind::bare);
  EXPECT_EQ(bind(), kind::bare);
  EXPECT_EQ(sync(), kind::bare);
  ready('T');
  EXPECT_EQ(parse("SELECT 1"), kind::bare);
  guard_.on_error();
  EXPECT_EQ(bind(), kind::guard);
  EXPECT_EQ(sync(), kind::bare);
  ready('E');
  EXPECT_EQ(parse("ROLLBACK TO s", "back"), kind::bare);
  EXPECT_EQ(bind("back", "other"), kind::bare);
  EXPECT_EQ(execute("other"), kind::bare);
  EXPECT_EQ(sync(), kind::bare);
  ready('T');
  EXPECT_EQ(execute(), kind::guard);
  EXPECT_EQ(step("INSERT INTO t VALUES (1)"), kind::guard) << "that may have been COMMIT";
}

TEST_F(GuardTest, ACommitInTheMiddleByEitherWayOfReadingIsRefused) {
  EXPECT_EQ(query("SELECT '\\' AS x; /*'; COMMIT; INSERT INTO t VALUES (1); --*/ INSERT INTO t VALUES (2); COMMIT"),
            kind::refuse);
  EXPECT_EQ(run("INSERT INTO t VALUES ('C:\\'); COMMIT", "COMMIT", 'I'), kind::guard) << "the other way has no end";
}

TEST_F(GuardTest, TheFunctionCallMessageIsRefused) { EXPECT_EQ(guard_.on_other('F', flight_).what, kind::refuse); }

TEST(GuardMessages, HaveNoSync) {
  std::string types;
  const std::string all = guard_messages("SELECT 1");
  for (std::string_view rest = all; !rest.empty();) {
    const auto head = wire::decode_pg_head(rest);
    ASSERT_TRUE(head && *head);
    types += (*head)->type;
    rest.remove_prefix(wire::pg_head_bytes + (*head)->body_bytes);
  }
  EXPECT_EQ(types, "CCPBECC");
}

}  // namespace
}  // namespace fencegate::gate
