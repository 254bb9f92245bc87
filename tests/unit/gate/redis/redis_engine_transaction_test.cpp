// The client's own MULTI, EXEC, DISCARD and WATCH.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Inside a client's MULTI that adopted the gate's.
struct adopted : engine_rig {
  adopted() {
    arm();
    client("MULTI");
    EXPECT_EQ(answers(), "+OK|");
    EXPECT_THAT(sent(), IsEmpty());
  }
};

TEST(EngineTransaction, AdoptsTheProvenMulti) {
  adopted rig;
  rig.client("SET a 1", "GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "GET a"));
  rig.backend("+QUEUED", "+QUEUED");
  rig.client("EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("EXEC", watch, mget, "MULTI"));
  rig.backend("*2|+OK|$1|1", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+QUEUED|+QUEUED|*2|+OK|$1|1|");
}

TEST(EngineTransaction, UnarmedItIsArmedBeforeItsMultiIsAnswered) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("MULTI", "SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  EXPECT_EQ(rig.answers(), "");
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1"));
}

// An untagged or stale client's MULTI goes to Redis; if that refuses it, what follows would run bare.
TEST(EngineTransaction, NothingFollowsAMultiThatWasNotAccepted) {
  engine_rig rig;
  rig.client("MULTI", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI"));
  rig.backend("-NOPERM this user has no permissions to run the 'multi' command");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(),
              AllOf(StartsWith("-NOPERM "), HasSubstr("|-FENCEMISSING "), HasSubstr("|-ERR EXEC without MULTI|")));
}

// What it says is for the whole transaction: a proof in between would use it up. So that may only read.
TEST(EngineTransaction, BehindClientCachingNothingIsProven) {
  for (const bool writes : {false, true}) {
    engine_rig rig;
    rig.arm();
    rig.client("CLIENT CACHING YES", "MULTI");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "CLIENT CACHING YES", "MULTI"));
    rig.backend("+OK", "+OK", "+OK");
    rig.client("GET a");
    rig.backend("+QUEUED");
    rig.sent();
    if (writes) rig.client("SET a 1");
    if (writes) EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
    if (writes) rig.backend("+OK");
    rig.answers();
    rig.client("EXEC");
    if (!writes) EXPECT_THAT(rig.sent(), ElementsAre("EXEC"));
    if (!writes) rig.backend("*1|$1|1");
    EXPECT_EQ(rig.answers(),
              writes ? "-FENCEDOWN the mark of orders could not be checked: CLIENT CACHING stands in front of "
                       "MULTI; put it behind (token 34); not applied|"
                     : "*1|$1|1|");
  }
}

TEST(EngineTransaction, NothingOfItIsAnsweredWhereRepliesAreOff) {
  engine_rig rig;
  rig.client("CLIENT REPLY OFF", "MULTI", "GET a", "EXEC", "CLIENT REPLY ON");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "GET a", "EXEC"));
  rig.backend("+QUEUED", "*1|$1|x");
  EXPECT_EQ(rig.answers(), "+OK|");
}

TEST(EngineTransaction, WhyItsMarksCouldNotBeProvenIsSaid) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("MULTI", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("-NOPERM no key", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "MULTI"));
  rig.backend("+OK", "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|-NOPERM no key (fencegate checks marks with "));
}

TEST(EngineTransaction, WhatIsKnownToBeRejectedIsNotForwarded) {
  engine_rig rig;
  rig.client("MULTI", "GET a", "SET a 1", "GET a", "INCR", "SELECT 1", "WATCH k", "MULTI", "EXEC");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "GET a", "DISCARD"));
  rig.backend("+QUEUED", "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|+QUEUED|+QUEUED|-ERR wrong number of arguments for 'incr' "
                                        "command|+QUEUED|-ERR WATCH inside MULTI is not allowed|"
                                        "-ERR MULTI calls can not be nested|-FENCEMISSING "));
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a"));
}

TEST(EngineTransaction, WhatNeverLeftIsDiscardedHere) {
  engine_rig rig;
  rig.client("MULTI", "SET a 1", "DISCARD x", "DISCARD", "DISCARD");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(),
            "+OK|+QUEUED|-ERR wrong number of arguments for 'discard' command|+OK|-ERR DISCARD without MULTI|");
}

// ── what the server may take for the end of a transaction ───────────────────────────────────────────────────────────

// A server that refuses an EXEC ends the transaction by it: what follows would run bare.
TEST(EngineTransaction, AnExecWithArgumentsEndsItAndIsNotForwarded) {
  for (const bool proven : {false, true}) {
    engine_rig rig;
    if (proven) rig.arm();
    rig.client("MULTI", "EXEC x", "SET a 1", "EXEC");
    if (!proven) EXPECT_THAT(rig.sent(), ElementsAre("MULTI"));
    if (!proven) rig.backend("+OK");
    EXPECT_THAT(rig.sent(), testing::Not(Contains("EXEC x")));
    rig.backend("+OK");
    EXPECT_THAT(rig.answers(),
                StartsWith("+OK|-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' "
                           "command|"));
    EXPECT_THAT(rig.sent(), testing::Not(Contains("SET a 1")));
  }
}

TEST(EngineTransaction, NothingFollowsADiscardThatIsNotConfirmed) {
  adopted rig;
  rig.client("DISCARD", "SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("-NOPERM no");
  EXPECT_EQ(rig.answers(), "-NOPERM no|");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1"));  // inside the transaction, as with Redis
  rig.backend("+QUEUED");
  rig.client("EXEC");
  rig.backend("-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+QUEUED|-EXECABORT no|");
  rig.client("SET b 2");
  EXPECT_THAT(rig.sent(), ElementsAre("EXEC", watch, mget, "MULTI", "SET b 2", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineTransaction, AResetThatIsRefusedLeavesItAsItIs) {
  adopted rig;
  rig.client("RESET", "SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre("RESET"));
  rig.backend("-NOPERM no");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1"));
}

TEST(EngineTransaction, AnUnwatchThatIsRefusedEndsNoWatch) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("WATCH k", "UNWATCH", "SET a 1");
  rig.backend("+OK");
  rig.sent();
  rig.backend("-NOPERM no");
  EXPECT_THAT(rig.sent(), ElementsAre(StartsWith("EVAL")));  // an EXEC of the gate's would end it
}

// Only the server knows whether it refuses one, and it drops the watches when it does.
TEST(EngineTransaction, AStrayExecThatIsRefusedEndsTheClientsWatch) {
  for (const std::string stray : {"EXEC", "EXEC x"}) {
    for (const bool refused : {false, true}) {
      engine_rig rig;
      rig.bind("orders=34");
      rig.client("WATCH k", stray, "SET a 1");
      rig.backend("+OK");
      EXPECT_THAT(rig.sent(), ElementsAre("WATCH k", stray));
      rig.backend(refused ? "-EXECABORT no" : "-ERR EXEC without MULTI");
      EXPECT_EQ(rig.answers(), refused ? "+OK|-EXECABORT no|" : "+OK|-ERR EXEC without MULTI|");
      if (refused)
        EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
      else
        EXPECT_THAT(rig.sent(), ElementsAre(StartsWith("EVAL")));
    }
  }
}

TEST(EngineTransaction, ARefusedExecOfASubscriberEndsItsWatch) {
  engine_rig rig;
  rig.client("WATCH k", "SUBSCRIBE c");
  rig.backend("+OK");
  rig.backend("*3|$9|subscribe|$1|c|:1");
  rig.sent();
  rig.client("EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("EXEC"));
  rig.client("EXEC");
  rig.backend("-EXECABORT no");
  EXPECT_THAT(rig.sent(), IsEmpty());  // the second one changes nothing any more
  EXPECT_THAT(rig.answers(), AllOf(HasSubstr("|-EXECABORT no|"), HasSubstr("|-ERR Can't execute 'exec'")));
}

TEST(EngineTransaction, AStrayExecThatRanCloses) {
  for (const std::string stray : {"EXEC", "DISCARD"}) {
    engine_rig rig;
    rig.client("WATCH k", stray);
    rig.backend("+OK");
    rig.backend(stray == "EXEC" ? "*0" : "+OK");
    EXPECT_TRUE(rig.engine.closing());
  }
}

// It may be EXEC, DISCARD or RESET under another name, which the server does not queue.
TEST(EngineTransaction, WhatMayBeARenamedCommandIsNotQueued) {
  engine_rig rig;
  rig.host.snapshot_now.commands = backend::command_table::empty();
  rig.host.snapshot_now.ready = false;
  rig.host.snapshot_now.problem = "no answer yet";
  rig.client("MULTI", "RENAMED", "EXEC");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(),
              StartsWith("+OK|-FENCEDOWN the mark could not be checked: no answer yet; not applied|-EXECABORT "));
}

TEST(EngineTransaction, ReadsAloneNeedNoToken) {
  engine_rig rig;
  rig.client("MULTI", "GET a", "EXEC");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "GET a", "EXEC"));
  rig.backend("+QUEUED", "*1|$1|x");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|*1|$1|x|");
}

TEST(EngineTransaction, StaleByTheTimeOfExecSendsDiscard) {
  adopted rig;
  rig.client("SET a 1");
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.client("EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "DISCARD"));
  rig.backend("+QUEUED", "+OK");
  EXPECT_EQ(rig.answers(), "+QUEUED|" + fenced);
}

TEST(EngineTransaction, OneThatCannotBeFencedLeavesTheProvenMulti) {
  engine_rig rig;
  rig.arm();
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.client("MULTI");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "MULTI"));
}

TEST(EngineTransaction, AReadThatBecameStaleIsNotExecuted) {
  engine_rig rig(with_policy([](auto& p) { p.read = fence::reads::fence; }));
  rig.arm();
  rig.client("MULTI", "GET a");
  rig.backend("+QUEUED");
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.sent();
  rig.client("EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|" + fenced);
}

// Which resource its keys belong to is not known.
TEST(EngineTransaction, WithoutTheServersTableNoWriteIsExecuted) {
  settings::redis_gate gate;
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  gate.unmatched = fence::unmatched::pass;
  engine_rig rig(std::move(gate));
  rig.host.snapshot_now.commands = backend::command_table::empty();
  rig.host.snapshot_now.ready = false;
  rig.host.snapshot_now.problem = "no answer yet";
  rig.client("MULTI", "SET acct:1 x", "EXEC");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), testing::Not(Contains("SET acct:1 x")));
}

TEST(EngineTransaction, ADiscardThatFailsCloses) {
  adopted rig;
  rig.client("SET a 1");
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.client("EXEC");
  rig.backend("+QUEUED", "-NOPERM no");
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineTransaction, TheClientsDiscardIsRedissOwn) {
  adopted rig;
  rig.client("SET a 1", "DISCARD");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "DISCARD"));
  rig.backend("+QUEUED", "+OK");
  EXPECT_EQ(rig.answers(), "+QUEUED|+OK|");
  rig.client("SET b 2");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

TEST(EngineTransaction, ARefusedCommandSpoilsItNatively) {
  adopted rig;
  rig.client("SET a 1", "FLUSHALL", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "DISCARD"));
  rig.backend("+QUEUED", "+OK");
  EXPECT_THAT(rig.answers(),
              AllOf(StartsWith("+QUEUED|-FENCEDENY "),
                    testing::EndsWith("|-EXECABORT Transaction discarded because of previous errors.|")));
}

TEST(EngineTransaction, WhatIsNoCommandIsRedissToRefuse) {
  adopted rig;
  rig.client("NOSUCH 1");
  EXPECT_THAT(rig.sent(), ElementsAre("NOSUCH 1"));
}

TEST(EngineTransaction, AReservedKeySpoilsItNatively) {
  adopted rig;
  rig.client("SET fencegate:mark:{orders} 1");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
}

TEST(EngineTransaction, CommandsThatAreNeverQueuedDoNotReachIt) {
  for (const std::string line : {"CLIENT REPLY OFF", "CLIENT SETNAME fence:orders=99", "HELLO 3", "AUTH x",
                                 "SUBSCRIBE c", "MONITOR", "FENCE SET orders 99", "SHUTDOWN", "CLIENT KILL ID 3"}) {
    adopted rig;
    rig.client(line);
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD")) << line;
  }
}

TEST(EngineTransaction, AStrayExecOrDiscardNeverReachesTheGatesOwnMulti) {
  for (const std::string line : {"EXEC", "DISCARD"}) {
    engine_rig rig;
    rig.arm();
    rig.client(line);
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_EQ(rig.answers(), "-ERR " + line + " without MULTI|");
  }
}

// ── nil ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

struct executed : engine_rig {
  explicit executed(bool watching) {
    bind("orders=34");
    if (watching) {
      client("WATCH a");
      backend("+OK");
    }
    client("MULTI", "SET a 1", "EXEC");
    backend("+OK", marks("34"), "+OK");
    backend("+QUEUED");
    answers();
    sent();
  }
};

TEST(EngineTransaction, NilWithAHigherMarkIsStale) {
  executed rig(true);
  rig.backend("*-1", "+OK", marks("35"), "+OK");
  EXPECT_EQ(rig.answers(), fenced);
}

TEST(EngineTransaction, NilWithAnEqualMarkIsTheClientsOwn) {
  executed rig(true);
  rig.backend("*-1");
  EXPECT_EQ(rig.answers(), "");  // not known yet
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "*-1|");
}

TEST(EngineTransaction, NilThatNoWatchOfTheClientExplainsIsNotPassedAsOne) {
  executed rig(false);
  rig.backend("*-1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
}

TEST(EngineTransaction, NilWithALostMarkIsUnavailableAndHealed) {
  executed rig(true);
  rig.host.seen.clear();
  rig.backend("*-1", "+OK", marks("nil"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
  EXPECT_THAT(rig.host.seen, Contains("read orders"));
}

TEST(EngineTransaction, ExecThatAnswersAnotherCountCloses) {
  for (const std::string line : {"*0", "*2|+OK|+OK", "+OK", "-NOPERM no", "-ERR EXEC without MULTI"}) {
    executed rig(false);
    rig.backend(line);
    EXPECT_TRUE(rig.engine.closing()) << line;
  }
}

TEST(EngineTransaction, SelectInsideMovesWhereTheMarksAreReadFrom) {
  adopted rig;
  rig.client("SELECT 3", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(),
              ElementsAre("SELECT 3", "SET a 1", "EXEC"));  // no arm: which database comes next is not known
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK");
  rig.client("SET b 2");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 0", watch, mget, "SELECT 3", "MULTI"));
}

// ── WATCH ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineTransaction, WhileAClientWatchesItsWritesTakeTheWrapper) {
  engine_rig rig;
  rig.arm();
  rig.client("WATCH k");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "WATCH k"));
  rig.backend("+OK", "+OK");
  rig.client("SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre(StartsWith("EVAL")));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|");
}

TEST(EngineTransaction, AWatchIsNeverEndedByTheGate) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("WATCH k");
  rig.backend("+OK");
  rig.sent();
  rig.client("MULTI", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));  // neither UNWATCH nor DISCARD
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineTransaction, BehindUnwatchWritesAreBatchedAgain) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("WATCH k", "UNWATCH");
  EXPECT_THAT(rig.sent(), ElementsAre("WATCH k"));
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("UNWATCH"));
  rig.backend("+OK");
  rig.client("SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

TEST(EngineTransaction, MarksCannotBeWatched) {
  engine_rig rig;
  rig.client("WATCH fencegate:mark:{orders}");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
}

// Redis would have taken it, and would hold up the transaction that relies on it.
TEST(EngineTransaction, BehindAWatchThatTheGateRefusesNoneRuns) {
  for (const bool bound : {false, true}) {
    engine_rig rig;
    if (bound) rig.bind("orders=34");
    rig.client("WATCH k fencegate:epoch", "MULTI");
    rig.sent();
    if (bound)
      rig.backend("+OK", marks("34"), "+OK");
    else
      rig.backend("+OK");
    rig.client("GET k");
    rig.backend("+QUEUED");
    rig.sent();
    rig.answers();
    rig.client("EXEC");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
    rig.backend("+OK");
    EXPECT_EQ(rig.answers(), "*-1|");
    rig.client("MULTI", "EXEC");
    EXPECT_THAT(rig.sent(), Contains("MULTI"));
  }
}

}  // namespace
}  // namespace fencegate::test
