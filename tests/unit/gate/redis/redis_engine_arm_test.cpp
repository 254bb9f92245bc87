// Arming and batches: what is sent, in which order, and what a batch waits for.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(EngineArm, BindingRaisesAtOnce) {
  engine_rig rig;
  rig.client("CLIENT SETNAME worker-fence:orders=34");
  EXPECT_THAT(rig.host.seen, IsEmpty());  // not before the server took the name
  rig.backend("+OK");
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34"));
  EXPECT_EQ(rig.answers(), "+OK|");
}

TEST(EngineArm, TheClientHasItsAnswerOnlyBehindTheRaise) {
  engine_rig rig;
  rig.host.hold_answers = true;
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "");
  rig.host.answer_next();
  EXPECT_EQ(rig.answers(), "+OK|");
}

TEST(EngineArm, AWriteIsSentBehindTheProofOnly) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(EngineArm, AnArmedLinkSendsAWriteAtOnce) {
  engine_rig rig;
  rig.arm();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineArm, NothingOfABatchIsSentBeforeTheLastByteOfItsProof) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.sent();
  const std::string proof = reply("+OK") + reply(marks("34")) + reply("+OK");
  for (std::size_t i = 0; i < proof.size(); ++i) {
    ASSERT_THAT(rig.sent(), IsEmpty()) << "before byte " << i;
    rig.backend_bytes(proof.substr(i, 1));
  }
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineArm, TheNextBatchWaitsForTheProofBehindTheLast) {
  engine_rig rig;
  rig.arm();
  rig.client("SET a 1");
  rig.sent();
  rig.client("SET b 2");
  const std::string replies = reply("+QUEUED") + reply("*1|+OK") + reply("+OK") + reply(marks("34")) + reply("+OK");
  for (std::size_t i = 0; i < replies.size(); ++i) {
    ASSERT_THAT(rig.sent(), IsEmpty()) << "before byte " << i;
    rig.backend_bytes(replies.substr(i, 1));
  }
  EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineArm, WhatArrivesMeanwhileIsTheNextBatch) {
  engine_rig rig;
  rig.arm();
  rig.client("SET a 1");
  rig.sent();
  rig.client("SET b 2");
  rig.client("GET b", "SET c 3");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "GET b", "SET c 3", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|$1|2|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|$1|2|+OK|");
}

TEST(EngineArm, ReadsInFrontOfAnArmedWriteTravelInside) {
  engine_rig rig;
  rig.arm();
  rig.client("GET a", "SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "SET a 1", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineArm, ReadsOfAnUnarmedLinkGoBare) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("GET a", "GET b");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "GET b"));
}

TEST(EngineArm, ALinkThatOnlyReadsLeavesItsMulti) {
  engine_rig rig;
  rig.arm();
  for (int i = 0; i < 8; ++i) {
    rig.client("GET a");
    ASSERT_THAT(rig.sent(), ElementsAre("GET a", "EXEC", watch, mget, "MULTI")) << i;
    rig.backend("+QUEUED", "*1|$1|x", "+OK", marks("34"), "+OK");
  }
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "GET a"));
  rig.backend("+OK", "$1|x");
  rig.client("SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));  // DISCARD has ended the watch
}

TEST(EngineArm, EveryResourceOfTheTagIsWatchedAndRead) {
  engine_rig rig;
  rig.bind("orders=34,payments=12");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(),
              ElementsAre("WATCH fencegate:mark:{orders} fencegate:mark:{payments}",
                          "MGET fencegate:mark:{orders} fencegate:mark:{payments} fencegate:epoch", "MULTI"));
  rig.backend("+OK", marks("34", "12"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", StartsWith("WATCH"), StartsWith("MGET"), "MULTI"));
}

// WATCH needs a key, and a link that has lost its last mark while a batch was filled has none to name.
TEST(EngineArm, WithoutAMarkToProveTheEpochIsWatched) {
  engine_rig rig;
  rig.arm();
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.client("GET a", "SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "EXEC", "WATCH fencegate:epoch", "MGET fencegate:epoch", "MULTI"));
  rig.backend("+QUEUED", "*1|$1|x", "+OK", marks(), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("$1|x|-FENCED "));
}

TEST(EngineArm, OneStaleResourceOfTwoRejectsTheWrite) {
  engine_rig rig;
  rig.bind("orders=34,payments=12");
  rig.client("SET k v");
  rig.sent();
  rig.backend("+OK", marks("34", "13"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED token 12 of payments is below mark 13; not applied"));
}

TEST(EngineArm, MarksAreReadInDatabaseZero) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SELECT 3");
  rig.backend("+OK");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 0", watch, mget, "SELECT 3", "MULTI"));
  rig.backend("+OK", "+OK", marks("34"), "+OK", "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", "SELECT 0", watch, mget, "SELECT 3", "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", "+OK", marks("34"), "+OK", "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|");
}

TEST(EngineArm, ASelectBackThatFailsCloses) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SELECT 3");
  rig.backend("+OK");
  rig.client("SET k v");
  rig.sent();
  rig.backend("+OK", "+OK", marks("34"), "-NOPERM no", "+OK");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// A write waits for the arm that was sent.
struct arming_in_database_3 : engine_rig {
  arming_in_database_3() {
    bind("orders=34");
    client("SELECT 3");
    backend("+OK");
    answers();
    client("SET k v");
    EXPECT_THAT(sent(), ElementsAre("SELECT 3", "SELECT 0", watch, mget, "SELECT 3", "MULTI"));
  }
};

// As while a script of somebody else's runs: what the server says reaches the client, and the link goes on.
TEST(EngineArm, SelectsThatAreBothRefusedLeaveTheLinkWhereItWas) {
  arming_in_database_3 rig;
  rig.backend("-BUSY no", "+OK", "-BUSY no", "-BUSY no", "+OK");
  EXPECT_FALSE(rig.engine.closing());
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "-BUSY no|");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 0", watch, mget, "SELECT 3", "MULTI"));
  rig.backend("+OK", "+OK", marks("34"), "+OK", "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", "SELECT 0", watch, mget, "SELECT 3", "MULTI"));
}

// MGET answered for the client's database: no proof, and no reason to think that marks were lost.
TEST(EngineArm, MarksOfAnotherDatabaseProveNothing) {
  for (const auto* mark : {"34", "35", ""}) {
    arming_in_database_3 rig;
    rig.backend("-NOPERM no", "+OK", *mark ? marks(mark) : "*2|$-1|$-1", "-NOPERM no", "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD")) << mark;
    rig.backend("+OK");
    EXPECT_THAT(rig.answers(),
                StartsWith("-NOPERM no (fencegate checks marks with the rights of this user); not applied|"))
        << mark;
    EXPECT_FALSE(rig.engine.closing());
  }
}

// A "+QUEUED" is no refusal: the link is inside a MULTI that it should not be in.
TEST(EngineArm, SelectsThatWereQueuedClose) {
  arming_in_database_3 rig;
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "-ERR nested");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(EngineArm, ASelectThatFailedChangesNothing) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SELECT 99");
  rig.backend("-ERR DB index is out of range");
  EXPECT_EQ(rig.answers(), "-ERR DB index is out of range|");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

// ── an arm that Redis refuses ───────────────────────────────────────────────────────────────────────────────────────

// "SET k v" when `refused` is the answer to the replies of its arm from the first to the last given one.
struct arm_refused : engine_rig {
  arm_refused(const std::string& refused, std::size_t first, std::size_t last) {
    const std::string granted[] = {"+OK", marks("34"), "+OK"};
    bind("orders=34");
    client("SET k v");
    EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
    for (std::size_t i = 0; i < std::size(granted); ++i) backend(first <= i && i <= last ? refused : granted[i]);
    for (const auto& one : sent()) EXPECT_EQ(one, "DISCARD");
    if (last < 2) backend("+OK");  // it was in MULTI, and has left it
  }
};

constexpr std::pair<std::size_t, std::size_t> replies_of_an_arm[] = {{0, 2}, {0, 0}, {1, 1}, {2, 2}};

// As a client without the gate would have it: libraries retry, wait or go elsewhere by the first word.
TEST(EngineArm, ErrorsOfTheServersOwnReachTheClientUnchanged) {
  const std::string texts[] = {"NOAUTH Authentication required.",
                               "LOADING Redis is loading the dataset in memory",
                               "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                               "READONLY You can't write against a read only replica.",
                               "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                               "CLUSTERDOWN The cluster is down",
                               "MOVED 3999 127.0.0.1:6381",
                               "ASK 3999 127.0.0.1:6381",
                               "OOM command not allowed when used memory > 'maxmemory'.",
                               "MISCONF Redis is configured to save RDB snapshots",
                               "NOREPLICAS Not enough good replicas to write.",
                               "TRYAGAIN Multiple keys request during rehashing of slot"};
  for (const auto& text : texts)
    for (const auto& [first, last] : replies_of_an_arm) {
      SCOPED_TRACE(text + ", replies " + std::to_string(first) + " to " + std::to_string(last));
      arm_refused rig("-" + text, first, last);
      EXPECT_EQ(rig.answers(), "-" + text + "|");
      EXPECT_THAT(rig.host.reports, IsEmpty());
      EXPECT_EQ(rig.stats.checks(metrics::check_outcome::unavailable).value(), 1U);
      EXPECT_FALSE(rig.engine.closing());
      rig.client("SET k v");  // it may try again
      EXPECT_THAT(rig.sent(), testing::IsSupersetOf({watch, mget, "MULTI"}));
    }
}

TEST(EngineArm, OtherErrorsAreTheGatesToTell) {
  for (const std::string text : {"ERR unknown command", "BUSYKEY no", "ASKED no", "OOMS", "moved 1 x"})
    for (const auto& [first, last] : replies_of_an_arm) {
      SCOPED_TRACE(text + ", replies " + std::to_string(first) + " to " + std::to_string(last));
      arm_refused rig("-" + text, first, last);
      EXPECT_EQ(rig.answers(),
                "-FENCEDOWN the mark of orders could not be checked: " + text + " (token 34); not applied|");
      EXPECT_FALSE(rig.engine.closing());
    }
}

TEST(EngineArm, AMissingRightIsTheClientsOwn) {
  for (const auto& [first, last] : replies_of_an_arm) {
    SCOPED_TRACE("replies " + std::to_string(first) + " to " + std::to_string(last));
    arm_refused rig("-NOPERM no", first, last);
    EXPECT_EQ(rig.answers(), "-NOPERM no (fencegate checks marks with the rights of this user); not applied|");
    EXPECT_FALSE(rig.engine.closing());
  }
}

// WATCH was done, and a mark that moved since then would make every EXEC answer nil.
TEST(EngineArm, BehindARefusedMultiTheWatchIsTakenBack) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", marks("34"), "-NOPERM no");
  EXPECT_THAT(rig.answers(), StartsWith("-NOPERM no "));
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("UNWATCH", watch, mget, "MULTI"));
}

TEST(EngineArm, MarksThatNobodyAskedForClose) {
  for (const auto& wrong : {marks(), marks("34", "34"), bulks("34")}) {
    engine_rig rig;
    rig.bind("orders=34");
    rig.client("SET k v");
    rig.sent();
    rig.backend("+OK", wrong, "+OK");
    EXPECT_TRUE(rig.engine.closing()) << wrong;
    EXPECT_THAT(rig.sent(), IsEmpty());
  }
}

// Its answer is about its own claim.
TEST(EngineArm, ARaiseThatFailsLeavesTheOtherClaims) {
  settings::redis_gate gate;
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  engine_rig rig(std::move(gate));
  rig.mark_is("orders", 33);
  rig.mark_is("payments", 13);
  rig.client("CLIENT SETNAME fence:orders=34,payments=12");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED token 12 of payments is below mark 13"));
  rig.client("SET acct:1 v");
  EXPECT_THAT(rig.sent(), testing::Contains(watch));
  EXPECT_EQ(rig.answers(), "");
}

// ── what the marks say ──────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineArm, AHigherMarkIsStaleAndForGood) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.sent();
  rig.backend("+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());  // memory is reason enough to reject
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
}

TEST(EngineArm, MemoryOfAnotherSessionRejectsToo) {
  engine_rig rig;
  rig.arm();
  rig.mark_memory.cell("orders")->saw(fence::token(40));
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 40; not applied|");
}

TEST(EngineArm, MarksAreComparedBeyondWhatDoublesHold) {
  engine_rig rig;
  rig.bind("orders=9007199254740992");
  rig.client("SET k v");
  rig.sent();
  rig.backend("+OK", marks("9007199254740993"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED "));
}

// Each is put right by the control link; the write goes out behind a new proof only.
TEST(EngineArm, AMarkThatWentBackIsHealedAndProvenAnew) {
  for (const std::string found : {"nil", "33", "034", "+34", "34 ", "", "abc", "34.0"}) {
    SCOPED_TRACE(found);
    engine_rig rig;
    rig.bind("orders=34");
    rig.host.seen.clear();
    rig.client("SET k v");
    rig.sent();
    rig.backend("+OK", marks(found), "+OK");
    EXPECT_THAT(rig.host.seen, ElementsAre("read orders", "recheck"));
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", watch, mget, "MULTI"));
    rig.backend("+OK", "+OK", marks("34"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  }
}

TEST(EngineArm, NothingIsSentWhileAMarkIsBeingHealed) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.sent();
  rig.host.hold_answers = true;
  rig.backend("+OK", marks("33"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

TEST(EngineArm, AMarkThatCannotBeHealedRejects) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.sent();
  rig.host.control_down = "the mark in Redis is not a canonical integer";
  rig.backend("+OK", marks("abc"), "+OK");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
}

TEST(EngineArm, AnotherEpochDisarmsUntilTheControlLinkKnowsIt) {
  for (const std::string epoch : {"e2", "nil", ""}) {
    SCOPED_TRACE(epoch);
    engine_rig rig;
    rig.bind("orders=34");
    rig.client("SET k v");
    rig.sent();
    rig.host.on_recheck = [&] { rig.host.snapshot_now.epoch = "e2"; };
    rig.backend("+OK", bulks("34", epoch), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", watch, mget, "MULTI"));
    rig.backend("+OK", "+OK", bulks("34", "e2"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  }
}

TEST(EngineArm, WithoutAKnownEpochNothingIsProven) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.host.snapshot_now.epoch.clear();
  rig.client("SET k v");
  rig.sent();
  rig.backend("+OK", bulks("34", ""), "+OK");
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("SET k v")));
}

TEST(EngineArm, MarksThatNeverComeRightAreGivenUp) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  int arms = 0;
  for (; arms < 100 && rig.engine.to_client.empty(); ++arms) {
    rig.sent();
    rig.backend("+OK", marks("33"), "+OK", "+OK");  // the last one for DISCARD
  }
  EXPECT_EQ(arms, limits::batch_attempts_max + 1);
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN the mark of orders could not be checked: the marks move"));
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("SET k v")));
}

TEST(EngineArm, AnUnfitBackendAdmitsNothing) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.host.snapshot_now.ready = false;
  rig.host.snapshot_now.problem = "the backend is a replica";
  rig.client("SET k v", "GET k");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k"));
  EXPECT_THAT(rig.answers(),
              StartsWith("-FENCEDOWN the mark of orders could not be checked: the backend is a replica (token 34)"));
}

}  // namespace
}  // namespace fencegate::test
