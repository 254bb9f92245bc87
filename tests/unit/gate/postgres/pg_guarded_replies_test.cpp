// LOCK, function calls, and replies that answer nothing.
#include "unit/gate/postgres/guarded_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

// ── LOCK

std::string isolation(const std::string& level) { return own("SHOW", {level}); }

TEST(PgGuardedLock, TheGuardGoesInFrontOnlyWhereEachStatementHasASnapshot) {
  for (const std::string level : {"read committed", "repeatable read", "serializable"}) {
    guarded_rig rig;
    rig.begin();
    rig.client(query("LOCK t"));
    EXPECT_THAT(rig.sent(), ElementsAre("[isolation]", "H"));
    rig.server(isolation(level));
    const bool early = level == "read committed";
    EXPECT_THAT(rig.sent(), ElementsAreArray((early ? words{"[guard]"} : words{}) + translated("LOCK t") + query_ends));
    rig.server((early ? guarded() : "") + piece("LOCK TABLE") + query_end('T'));
    EXPECT_THAT(rig.told(), ElementsAre("C LOCK TABLE", "Z T"));
    rig.client(statement("INSERT") + sync());
    EXPECT_THAT(rig.sent(), ElementsAreArray((early ? words{} : words{"[guard]"}) + words{"P INSERT", "B", "E", "S"}));
  }
}

TEST(PgGuardedLock, AsksInAPipelineToo) {
  guarded_rig rig;
  rig.client(statement("BEGIN") + statement("LOCK t") + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("P BEGIN", "B", "E", "[isolation]", "H"));
  rig.server(done("BEGIN"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(isolation("serializable"));
  EXPECT_THAT(rig.sent(), ElementsAre("P LOCK t", "B", "E", "S"));
  rig.server(done("LOCK TABLE") + ready('T'));
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C BEGIN", "1", "2", "C LOCK TABLE", "Z T"));
}

TEST(PgGuardedLock, NothingIsAwaitedOfAQuestionThatFails) {
  guarded_rig rig;
  rig.client(statement("BEGIN") + statement("LOCK t") + sync());
  rig.forget();
  rig.server(parse_complete() + bind_complete() + fails());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('I'));
  EXPECT_TRUE(rig.machine.idle());
  rig.begin();
  rig.client(query("LOCK t"));
  rig.forget();
  rig.server(close_complete() + fails());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('E'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z E"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedLock, AndDeclareAmongOthersGetABlock) {
  guarded_rig rig;
  rig.client(query("LOCK t;INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[isolation]", "H"));
  rig.server(own("BEGIN") + isolation("read committed"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("LOCK t") + translated("INSERT") +
                                           words{"C", "[commit]", "S"}));
  guarded_rig cursor;
  cursor.client(query("DECLARE c CURSOR FOR SELECT 1;FETCH c"));
  EXPECT_THAT(cursor.sent(),
              ElementsAreArray(words{"[begin]", "[guard]"} + translated("DECLARE c CURSOR FOR SELECT 1") +
                               translated("FETCH c") + words{"C", "[commit]", "S"}));
  guarded_rig alone;
  alone.client(query("LOCK t"));
  EXPECT_THAT(alone.sent(), ElementsAreArray(words{"[guard]"} + translated("LOCK t") + query_ends))
      << "it fails, as it would";
}

TEST(PgGuardedLock, WhatWasAnsweredHoldsForTheTransaction) {
  guarded_rig rig;
  rig.begin();
  rig.client(query("LOCK t"));
  rig.server(isolation("serializable") + piece("LOCK TABLE") + query_end('T'));
  rig.forget();
  rig.client(query("LOCK u"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("LOCK u") + query_ends));
}

// LOCK has taken no snapshot yet: so the isolation may change behind it.
TEST(PgGuardedLock, ASetTransactionMayChangeTheIsolation) {
  for (const bool simple : {false, true}) {
    const std::string sql = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
    guarded_rig rig;
    rig.begin();
    rig.client(query("LOCK t"));
    rig.server(isolation("serializable") + piece("LOCK TABLE") + query_end('T'));
    rig.client(simple ? query(sql) : statement(sql) + sync());
    rig.server((simple ? complete("SET") : done("SET")) + ready('T'));
    rig.forget();
    rig.client(query("LOCK u"));
    EXPECT_THAT(rig.sent(), ElementsAre("[isolation]", "H")) << (simple ? "by Query" : "by Execute");
  }
}

TEST(PgGuardedLock, TheNextTransactionHasItsOwnIsolation) {
  guarded_rig rig;
  rig.begin();
  rig.client(query("LOCK t"));
  rig.server(isolation("serializable") + piece("LOCK TABLE") + query_end('T'));
  rig.forget();
  rig.client(query("COMMIT;LOCK t;INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("COMMIT") + words{"[begin]", "[isolation]", "H"}));
}

// The guard waits for the first message that may run something: a snapshot would come before the isolation.
TEST(PgGuardedLock, TheIsolationIsSetInFrontOfTheGuard) {
  guarded_rig rig;
  rig.client(query("BEGIN;SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;SHOW a;INSERT"));
  EXPECT_THAT(rig.sent(),
              ElementsAreArray(translated("BEGIN") + translated("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE") +
                               translated("SHOW a") + words{"[guard]"} + translated("INSERT") + query_ends));
}

// ── a function call

TEST(PgGuardedCall, GetsABlock) {
  guarded_rig rig;
  rig.client(call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[guard]", "S"));
  rig.server(own("BEGIN") + guarded() + ready('T'));
  EXPECT_THAT(rig.sent(), ElementsAre("F", "[commit]", "S"));
  rig.server(function_result() + ready('T') + own("COMMIT") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("V", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedCall, ThatFailsHasOneError) {
  guarded_rig rig;
  rig.client(call_function());
  rig.server(own("BEGIN") + guarded() + ready('T'));
  rig.server(fails() + ready('E') + own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedCall, WhoseGuardFailsHasOneError) {
  guarded_rig rig;
  rig.client(call_function());
  rig.forget();
  rig.server(own("BEGIN") + close_complete() + fails("ZF001") + ready('E'));
  EXPECT_THAT(rig.sent(), ElementsAre("[rollback]", "S"));
  rig.server(own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF001", "Z I"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.machine.idle());
}

// A timeout that falls due while the server waits for the rest of BEGIN, or a request to cancel.
TEST(PgGuardedCall, WhoseBlockFailsIsNotSent) {
  guarded_rig rig;
  rig.client(call_function() + query("SELECT 1"));
  rig.forget();
  rig.server(close_complete() + close_complete() + parse_complete() + fails("57014") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 57014", "Z I"));
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("F")));
  EXPECT_FALSE(rig.waits());
}

TEST(PgGuardedCall, InABlockWhoseGuardFailsIsNotSent) {
  guarded_rig rig;
  rig.begin();
  rig.client(call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "S"));
  rig.server(close_complete() + fails("ZF001") + ready('E'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF001", "Z E"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_FALSE(rig.waits());
}

TEST(PgGuardedCall, InABlockIsBareBehindAGuard) {
  guarded_rig rig;
  rig.begin();
  rig.client(call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "S"));
  rig.server(guarded() + ready('T'));
  EXPECT_THAT(rig.sent(), ElementsAre("F"));
  rig.server(function_result() + ready('T'));
  EXPECT_THAT(rig.told(), ElementsAre("V", "Z T"));
  rig.client(call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("F"));
  rig.server(fails() + ready('E'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z E"));
  rig.client(call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("F"));
  rig.server(fails("25P02") + ready('E'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 25P02", "Z E"));
}

TEST(PgGuardedCall, BehindUnsyncedMessagesWaits) {
  guarded_rig rig;
  rig.client(statement("INSERT") + call_function());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P INSERT", "B", "E", "H"));
  rig.server(guarded() + done("INSERT 0 1"));
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "S"));
  rig.server(own("BEGIN") + ready('T'));
  EXPECT_THAT(rig.sent(), ElementsAre("F", "[commit]", "S"));
}

TEST(PgGuardedCall, WhatComesBehindWaits) {
  guarded_rig rig;
  rig.client(call_function() + sync());
  rig.server(own("BEGIN") + guarded() + ready('T'));
  rig.forget();
  rig.server(function_result() + ready('T') + own("COMMIT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
}

// In a failed block the client's own ROLLBACK TO must still find its savepoint.
TEST(PgGuardedCall, BehindUnsyncedMessagesInAFailedBlockLeavesItOpen) {
  guarded_rig rig;
  rig.begin_failed();
  rig.client(close_statement("s") + call_function());
  rig.server(close_complete());
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("[commit]")));
}

// ── what is in flight

TEST(PgGuardedFlight, ToldToThoseWhoAsk) {
  guarded_rig rig;
  EXPECT_FALSE(rig.machine.owes_ready());
  EXPECT_FALSE(rig.machine.uncommitted());
  rig.client(statement("BEGIN") + statement("INSERT"));
  EXPECT_TRUE(rig.machine.unsynced());
  EXPECT_FALSE(rig.machine.owes_ready());
  EXPECT_FALSE(rig.machine.uncommitted()) << "what was said last is that no transaction is open";
  rig.client(sync());
  EXPECT_FALSE(rig.machine.unsynced());
  EXPECT_TRUE(rig.machine.owes_ready());
  rig.server(done("BEGIN") + guarded() + done("INSERT 0 1") + ready('T'));
  EXPECT_TRUE(rig.machine.uncommitted());
  EXPECT_EQ(rig.machine.status(), 'T');
  rig.client(query("COMMIT"));
  EXPECT_TRUE(rig.machine.uncommitted());
  rig.server(complete("COMMIT"));
  EXPECT_FALSE(rig.machine.uncommitted());
}

TEST(PgGuardedFlight, TellsTheTurnOfAGuard) {
  guarded_rig rig;
  rig.client(statement("CALL p()"));
  EXPECT_TRUE(rig.machine.own_turn());
  EXPECT_FALSE(rig.machine.guard_turn());
  rig.server(own("BEGIN"));
  EXPECT_TRUE(rig.machine.guard_turn());
  rig.server(guarded());
  EXPECT_FALSE(rig.machine.own_turn());
}

// ── replies that answer nothing

TEST(PgGuardedBroken, AReplyWhereNothingIsOwed) {
  for (const auto& reply : {ready('I'), complete("x"), parse_complete(), bind_complete(), close_complete(), fails(),
                            row({"1"}), no_data(), row_description(), copy_in(), function_result(), empty_query()}) {
    guarded_rig rig;
    rig.server(reply);
    EXPECT_TRUE(rig.broken) << reply[0];
  }
  guarded_rig rig;
  rig.server(warning_of("01000") + wire::encode_pg_message('A', "\0\0\0\1a\0b\0"s));
  EXPECT_FALSE(rig.broken);
  EXPECT_THAT(rig.told(), ElementsAre("N WARNING 01000", "A"));
}

TEST(PgGuardedBroken, AReplyThatIsNotTheNextOne) {
  struct turn {
    std::string in_front, fits;
  };
  const std::string replies[] = {ready('I'),        complete("x"),     parse_complete(),
                                 bind_complete(),   close_complete(),  row({"1"}),
                                 no_data(),         row_description(), copy_in(),
                                 function_result(), empty_query(),     wire::encode_pg_message('?', "")};
  const std::string closed = close_complete() + close_complete();
  for (const auto& one :
       {turn{"", "3"}, turn{close_complete(), "3"}, turn{closed, "1"}, turn{closed + parse_complete(), "2"},
        turn{closed + parse_complete() + bind_complete(), "D"}, turn{guarded(), "1"},
        turn{guarded() + parse_complete(), "2"}, turn{guarded() + parse_complete() + bind_complete(), "Tn"},
        turn{guarded() + parse_complete() + bind_complete() + no_data(), "CDITH"},
        turn{guarded() + parse_complete() + bind_complete() + no_data() + complete("x"), "3"},
        turn{guarded() + parse_complete() + bind_complete() + no_data() + complete("x") + close_complete(), "Z"}})
    for (const auto& reply : replies) {
      guarded_rig rig;
      rig.client(parse("", "INSERT") + bind_to("") + describe_portal() + execute() + close_statement("") + sync());
      rig.server(one.in_front);
      ASSERT_FALSE(rig.broken);
      rig.server(reply);
      EXPECT_EQ(rig.broken, one.fits.find(reply[0]) == std::string::npos)
          << one.in_front.size() << " bytes, then " << reply[0];
    }
}

TEST(PgGuardedBroken, AReadyThatSaysNothing) {
  for (const auto& reply : {ready('x'), wire::encode_pg_message('Z', "")}) {
    guarded_rig rig;
    rig.client(sync());
    rig.server(reply);
    EXPECT_TRUE(rig.broken);
  }
}

// A cancel may hit any statement of the machine's.
TEST(PgGuardedReplies, ARollbackThatIsCancelledIsSentAgain) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + sync());
  rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + fails() + ready('E'));
  rig.forget();
  for (int times = 0; times < 3; ++times) {
    rig.server(fails("57014") + ready('E'));
    EXPECT_THAT(rig.sent(), ElementsAre("[rollback]", "S"));
    EXPECT_THAT(rig.told(), IsEmpty());
  }
  rig.server(own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

// Behind it nothing is open.
TEST(PgGuardedReplies, ARollbackThatIsCancelledWhenItIsDoneIsNot) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + sync());
  rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + fails() + ready('E'));
  rig.forget();
  const auto all = own("ROLLBACK");
  rig.server(all.substr(0, all.size() - close_complete().size()) + fails("57014") + ready('I'));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.told(), ElementsAre("Z I"));
}

}  // namespace
}  // namespace fencegate
