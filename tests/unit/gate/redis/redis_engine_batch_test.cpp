// What became of a batch: applied, dropped because a mark moved, aborted because Redis refused to queue a command.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::_;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Two writes and a read between them are in flight.
struct three_in_flight : engine_rig {
  three_in_flight() {
    arm();
    client("SET a 1", "GET a", "SET b 2");
    EXPECT_THAT(sent(), ElementsAre("SET a 1", "GET a", "SET b 2", "EXEC", watch, mget, "MULTI"));
  }
  void queued() { backend("+QUEUED", "+QUEUED", "+QUEUED"); }
};

TEST(EngineBatch, NilWithAHigherMarkIsStaleAndItsReadsRunBare) {
  three_in_flight rig;
  rig.queued();
  rig.backend("*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "GET a"));
  rig.backend("+OK", "$1|x");
  EXPECT_EQ(rig.answers(), fenced + "$1|x|" + fenced);
}

TEST(EngineBatch, NilWithAnEqualMarkIsSentAgain) {
  three_in_flight rig;
  rig.queued();
  rig.backend("*-1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "GET a", "SET b 2", "EXEC", watch, mget, "MULTI"));
  rig.queued();
  rig.backend("*3|+OK|$1|1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|$1|1|+OK|");
}

TEST(EngineBatch, NilWithALowerMarkIsHealedFirst) {
  three_in_flight rig;
  rig.host.seen.clear();
  rig.queued();
  rig.backend("*-1", "+OK", marks("nil"), "+OK");
  EXPECT_THAT(rig.host.seen, ElementsAre("read orders", "recheck"));
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", watch, mget, "MULTI"));
  rig.backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), Contains("SET a 1"));
  EXPECT_EQ(rig.answers(), "");
}

TEST(EngineBatch, NilForEverIsGivenUp) {
  engine_rig rig;
  rig.arm();
  rig.client("SET a 1");
  int times = 0;
  for (; times < 100 && testing::Matches(Contains("SET a 1"))(rig.sent()); ++times)
    rig.backend("+QUEUED", "*-1", "+OK", marks("34"), "+OK");
  EXPECT_EQ(times, limits::batch_attempts_max + 1);
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEDOWN "), HasSubstr("not applied")));
}

TEST(EngineBatch, WhatArrivedMeanwhileStaysBehind) {
  three_in_flight rig;
  rig.client("SET c 3");
  rig.queued();
  rig.backend("*-1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "GET a", "SET b 2", "SET c 3", "EXEC", watch, mget, "MULTI"));
}

// It is read from its start when the batch that stood in front of it has come back.
TEST(EngineBatch, HalfACommandBehindABatchThatIsSentAgain) {
  engine_rig rig;
  rig.arm();
  const std::string next = command("RPUSH list 1 2 3");
  for (std::size_t split = 1; split < next.size(); ++split) {
    rig.client_bytes(command("SET a 1") + next.substr(0, split));
    EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI")) << split;
    rig.backend("+QUEUED", "*-1", "+OK", marks("34"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI")) << split;
    rig.client_bytes(next.substr(split));
    rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("RPUSH list 1 2 3", "EXEC", watch, mget, "MULTI")) << split;
    rig.backend("+QUEUED", "*1|:3", "+OK", marks("34"), "+OK");
    EXPECT_EQ(rig.answers(), "+OK|:3|") << split;
  }
}

// ── SETs that go as one MSET ──────────────────────────────────────────────────────────────────────────────────────────

struct three_sets : engine_rig {
  three_sets() {
    arm();
    client("SET a 1", "set b 2", "SET a 3");
    EXPECT_THAT(sent(), ElementsAre("SET a 1", "MSET b 2 a 3", "EXEC", watch, mget, "MULTI"));
  }
};

TEST(EngineBatch, SetsGoAsOneMsetAndAreAnsweredOneByOne) {
  three_sets rig;
  const auto before = rig.stats.checks(metrics::check_outcome::admitted).value();
  rig.client("GET a");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|");
  EXPECT_EQ(rig.stats.checks(metrics::check_outcome::admitted).value(), before + 3);
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineBatch, AnMsetThatRedisRefusesIsSentAsSets) {
  for (const auto* const why : {"-NOPERM no", "-ERR unknown command", "-OOM no"}) {
    three_sets rig;
    rig.backend("+QUEUED", why, "-EXECABORT Transaction discarded", "+OK", marks("34"), "+OK");
    EXPECT_EQ(rig.answers(), "") << why;
    EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "set b 2", "SET a 3", "EXEC", watch, mget, "MULTI")) << why;
    rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
    EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|") << why;
  }
}

TEST(EngineBatch, WhatTheServerRefusesWhoeverAsksIsAnsweredAtOnce) {
  three_sets rig;
  rig.backend("-BUSY no", "-BUSY no", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "-BUSY no|-BUSY no|-BUSY no|");
}

// Of keys, what is true of one is not of the others.
TEST(EngineBatch, TheSameRefusalOfBothMayBeAboutTheirKeys) {
  three_sets rig;
  rig.backend("-NOPERM keys", "-NOPERM keys", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "-NOPERM keys|");
  EXPECT_THAT(rig.sent(), ElementsAre("set b 2", "SET a 3", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineBatch, AnMsetThatRedisRefusesIsNoAttempt) {
  three_sets rig;
  for (int times = 0; times < limits::batch_attempts_max; ++times) {
    rig.backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("34"), "+OK");
    EXPECT_THAT(rig.sent(), Contains("MSET b 2 a 3"));
  }
  rig.backend("+QUEUED", "-NOPERM no", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "set b 2", "SET a 3", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineBatch, MergingIsTriedAgainAfterAWhile) {
  three_sets rig;
  rig.backend("+QUEUED", "-OOM no", "-EXECABORT no", "+OK", marks("34"), "+OK");
  for (int batches = 0; batches < 64; ++batches) {
    EXPECT_THAT(rig.sent(), ElementsAre(_, _, _, "EXEC", watch, mget, "MULTI"));
    rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
    rig.client("SET a 1", "SET b 2", "SET c 3");
  }
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "MSET b 2 c 3", "EXEC", watch, mget, "MULTI"));
}

// As for a user who may MSET but not SET, or where SET has another name.
TEST(EngineBatch, ASetThatRedisRefusesHasItsErrorAndTheOthersGoAsSets) {
  three_sets rig;
  rig.backend("-NOPERM no", "+QUEUED", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "-NOPERM no|");
  EXPECT_THAT(rig.sent(), ElementsAre("set b 2", "SET a 3", "EXEC", watch, mget, "MULTI"));
  rig.backend("-NOPERM no", "-NOPERM no", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "-NOPERM no|-NOPERM no|");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(EngineBatch, AnMsetBehindARaiseIsStaleForAll) {
  three_sets rig;
  rig.backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), fenced + fenced + fenced);
}

// The user's rights have changed in between: the first one is done, and the others are known not to be.
TEST(EngineBatch, AnMsetThatIsRefusedByExecIsSentAsSets) {
  three_sets rig;
  const auto before = rig.stats.checks(metrics::check_outcome::admitted).value();
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|-NOPERM no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(rig.stats.checks(metrics::check_outcome::admitted).value(), before + 1);
  EXPECT_THAT(rig.sent(), ElementsAre("set b 2", "SET a 3", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|-NOPERM no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|-NOPERM no|");
  EXPECT_EQ(rig.stats.checks(metrics::check_outcome::admitted).value(), before + 3);
}

TEST(EngineBatch, AnMsetThatIsRefusedByExecBehindARaiseIsStale) {
  three_sets rig;
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|-NOPERM no", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|" + fenced + fenced);
}

TEST(EngineBatch, AnythingElseBehindAnMsetClosesTheLink) {
  for (const char* const answer :
       {"*2|+OK|:1", "*2|+OK|$2|OK", "*2|+OK|+YES", "*2|+OK|-ERR no", "*1|+OK", "*3|+OK|+OK|+OK", "*2|+OK|_"}) {
    three_sets rig;
    rig.backend("+QUEUED", "+QUEUED", answer);
    EXPECT_TRUE(rig.engine.closing()) << answer;
    EXPECT_THAT(rig.answers(), AnyOf("", "+OK|")) << answer;
  }
}

TEST(EngineBatch, WhatStandsInFrontOfAnMsetsReplyGoesItsWay) {
  three_sets rig;
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK", ">2|$10|invalidate|*1|$1|b");
  rig.backend_bytes("|1\r\n+ttl\r\n:1\r\n");
  rig.backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|>2|$10|invalidate|*1|$1|b||1|+ttl|:1|+OK|+OK|");
}

TEST(EngineBatch, OnlySetsOfAKeyAndAValueAreMerged) {
  for (const char* const other : {"SET a 1 EX 5", "SET a", "SETEX a 5 1", "INCR n", "GET a", "MSET a 1"}) {
    engine_rig rig;
    rig.arm();
    rig.client("SET b 2", "SET c 3", other);
    EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "SET c 3", other, "EXEC", watch, mget, "MULTI")) << other;
  }
}

TEST(EngineBatch, MutedSetsAreNotMerged) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT REPLY OFF", "SET b 2", "SET c 3", "SET d 4");
  EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "SET c 3", "SET d 4", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineBatch, NothingIsMergedWhereMsetIsNotToBeHad) {
  engine_rig rig;
  rig.host.snapshot_now.commands = commands_of_redis_7({}, {"mset"});
  rig.arm();
  rig.client("SET b 2", "SET c 3", "SET d 4");
  EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "SET c 3", "SET d 4", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineBatch, ACommandThatRedisRefusesDoesNotFailItsNeighbours) {
  three_in_flight rig;
  rig.backend("+QUEUED", "-WRONGARITY no", "+QUEUED");
  rig.backend("-EXECABORT Transaction discarded", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|-WRONGARITY no|");
  EXPECT_THAT(rig.sent(), ElementsAre("SET b 2", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
}

TEST(EngineBatch, AnAbortWithoutAReasonIsNotRepeated) {
  three_in_flight rig;
  rig.queued();
  rig.backend("-EXECABORT Transaction discarded", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), Not(Contains("SET a 1")));
  rig.backend("+OK", "$1|x");
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEDOWN "), HasSubstr("EXECABORT")));
}

// A full Redis refuses everything inside MULTI, DEL too; the wrapper lets a fenced client free memory.
TEST(EngineBatch, WhatFreesMemoryGoesThroughTheWrapper) {
  engine_rig rig;
  rig.arm();
  rig.client("DEL a");
  rig.sent();
  rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
  const auto sent = rig.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0], "DISCARD");
  EXPECT_THAT(sent[1], AllOf(StartsWith("EVAL"),
                             HasSubstr("0 untyped 0 2 fencegate:mark:{orders} fencegate:epoch 34 e1 DEL a")));
  rig.backend("+OK", ":1");
  EXPECT_EQ(rig.answers(), ":1|");
}

TEST(EngineBatch, WhatNeedsMemoryGetsRedissOwnAnswer) {
  engine_rig rig;
  rig.arm();
  rig.client("SET a 1");
  rig.sent();
  rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "-OOM command not allowed|");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// In the wrapper it would be an error that tells nothing.
TEST(EngineBatch, WhatMayNotRunInAScriptGetsRedissOwnAnswerToo) {
  for (const auto* command : {"EVAL x 1 a", "BLMOVE a b LEFT LEFT 0", "BLPOP a soon"}) {
    engine_rig rig;
    rig.arm();
    rig.client(command);
    ASSERT_THAT(rig.sent(), Contains(command));
    rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
    EXPECT_EQ(rig.answers(), "-OOM command not allowed|") << command;
    EXPECT_THAT(rig.sent(), IsEmpty()) << command;
  }
}

// What waits frees memory when something comes, and waits on when the wrapper has found nothing.
TEST(EngineBatch, WhatWaitsOnAFullServerWaitsInFrontOfTheWrapper) {
  struct one {
    const char *command, *wrapped;
  };
  for (const auto& [command, wrapped] :
       {one{"BLPOP a b 0", "first 0 2 fencegate:mark:{orders} fencegate:epoch 34 e1 LPOP a b"},
        one{"BZPOPMAX a 9", "first 0 2 fencegate:mark:{orders} fencegate:epoch 34 e1 ZPOPMAX a"},
        one{"XREADGROUP GROUP g c COUNT 1 block 900 NOACK STREAMS s >",
            "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS s >"}}) {
    engine_rig rig;
    rig.arm();
    for (const bool found : {false, true}) {
      if (found)
        rig.fire_timer();
      else
        rig.client(command);
      if (found) {
        EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI")) << command;
        rig.backend("+OK", marks("34"), "+OK");
      }
      ASSERT_THAT(rig.sent(), Contains(command));
      rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
      const auto sent = rig.sent();
      ASSERT_EQ(sent.size(), 2u) << command;
      EXPECT_THAT(sent[1], EndsWith(wrapped));
      rig.backend("+OK", found ? "*2|$1|a|$1|v" : "$-1");
      EXPECT_EQ(rig.answers(), found ? "*2|$1|a|$1|v|" : "") << command;
      EXPECT_EQ(rig.engine.polling(), !found);
    }
  }
}

TEST(EngineBatch, WhatHasWaitedLongEnoughOnAFullServerIsToldSo) {
  engine_rig rig;
  rig.arm();
  rig.client("BLPOP a 1");
  rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
  rig.host.clock += std::chrono::seconds(2);
  rig.backend("+OK", "$-1");
  EXPECT_EQ(rig.answers(), "");
  rig.fire_timer();
  rig.backend("+OK", marks("34"), "+OK");
  rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
  rig.backend("+OK", "$-1");
  EXPECT_EQ(rig.answers(), "*-1|");
  EXPECT_FALSE(rig.engine.polling());
}

TEST(EngineBatch, TheWrapperIsToldThatTheMarkMoved) {
  engine_rig rig;
  rig.arm();
  rig.client("DEL a");
  rig.backend("-OOM command not allowed", "-EXECABORT no", "+OK", marks("34"), "+OK");
  rig.sent();
  rig.mark_is("orders", 35);
  rig.backend("+OK", "-FENCEGATEMARK the mark moved");
  EXPECT_EQ(rig.answers(), fenced);
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// ── replies that do not fit: the link's state is unknown, nothing is said that is not certain ───────────────────────

struct misfit {
  const char* name;
  std::vector<std::string> replies;
};

TEST(EngineBatch, RepliesThatDoNotFitClose) {
  const std::vector<misfit> all{
      {"a write ran instead of being queued", {"+OK"}},
      {"QUEUED as a bulk", {"$6|QUEUED"}},
      {"too few elements", {"+QUEUED", "+QUEUED", "+QUEUED", "*2|+OK|+OK"}},
      {"too many elements", {"+QUEUED", "+QUEUED", "+QUEUED", "*4|+OK|+OK|+OK|+OK"}},
      {"no elements", {"+QUEUED", "+QUEUED", "+QUEUED", "*0"}},
      {"EXEC refused", {"+QUEUED", "+QUEUED", "+QUEUED", "-NOPERM no"}},
      {"EXEC without MULTI", {"+QUEUED", "+QUEUED", "+QUEUED", "-ERR EXEC without MULTI"}},
      {"EXEC a status", {"+QUEUED", "+QUEUED", "+QUEUED", "+OK"}},
      {"not RESP", {"hello"}},
      {"an absurd length", {"+QUEUED", "+QUEUED", "+QUEUED", "*99999999999999999999"}},
  };
  for (const auto& one : all) {
    SCOPED_TRACE(one.name);
    three_in_flight rig;
    for (const auto& line : one.replies) rig.backend(line);
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_EQ(rig.answers(), "");
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_EQ(rig.stats.protocol_errors(metrics::side::backend).value(), 1u);
  }
}

TEST(EngineBatch, AReplyToNothingCloses) {
  for (const std::string line : {"+OK", ":1", "$1|x", "*0"}) {
    engine_rig rig;
    rig.backend(line);
    EXPECT_TRUE(rig.engine.closing()) << line;
    EXPECT_EQ(rig.answers(), "") << line;
  }
}

TEST(EngineBatch, AnErrorToNothingReachesTheClientBeforeTheEnd) {
  engine_rig rig;
  rig.backend("-ERR max number of clients reached");
  EXPECT_EQ(rig.answers(), "-ERR max number of clients reached|");
  EXPECT_TRUE(rig.engine.closing());
}

// ── RESP3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineBatch, APushBetweenTheElementsOfExecIsNotOne) {
  three_in_flight rig;
  rig.queued();
  rig.backend("*3|+OK", ">3|$7|message|$1|c|$1|m", "$1|1", "+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|>3|$7|message|$1|c|$1|m|$1|1|+OK|");
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineBatch, PushesBetweenTheRepliesOfAnArmAreNotAmongThem) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.sent();
  const std::string push = ">3|$7|message|$1|c|$1|m";
  rig.backend(push, "+OK", push, marks("34"), push);
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), Contains("SET k v"));
  EXPECT_EQ(rig.answers(), push + "|" + push + "|" + push + "|");
}

TEST(EngineBatch, AnAttributeSharesTheWayOfItsReply) {
  const std::string attribute = "|1\r\n+ttl\r\n:3\r\n";
  three_in_flight rig;
  rig.queued();
  rig.backend("*3|+OK");
  rig.backend_bytes(attribute);
  rig.backend("$1|1", "+OK");
  EXPECT_EQ(rig.answers(), "+OK|" + readable(attribute) + "$1|1|+OK|");
  rig.backend_bytes(attribute);  // of a reply that is the gate's own
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "");
  EXPECT_TRUE(rig.engine.at_rest());
}

TEST(EngineBatch, ElementsOfAnyShapeKeepTheirPlaces) {
  engine_rig rig;
  rig.arm();
  rig.client("LRANGE l 0 -1", "HGETALL h", "SET k v", "GET k");
  rig.sent();
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED");
  rig.backend("*4|*2|*1|$0||:1|%1|+a|_|-ERR no|$4|a|b", "+OK", marks("34"), "+OK");  // $4: a CR LF b
  EXPECT_EQ(rig.answers(), "*2|*1|$0||:1|%1|+a|_|-ERR no|$4|a|b|");
  EXPECT_TRUE(rig.engine.at_rest());
}

}  // namespace
}  // namespace fencegate::test
