// Single commands with their check: writes behind it, in a script; fenced reads in front of it.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Bound, and the client watches a key: nothing of the gate's may end that.
struct watching : engine_rig {
  explicit watching(bool resp3 = false) : engine_rig(with_policy([](auto& p) { p.read = fence::reads::fence; })) {
    bind("orders=34");
    if (resp3) client("HELLO 3");
    if (resp3) backend("%0");
    client("WATCH k");
    backend("+OK");
    answers();
    sent();
  }
};

TEST(EngineWrapped, AFencedReadIsAnsweredByRedisWhenTheMarksBehindItAreKnown) {
  watching rig(true);
  rig.client("MGET none a", "GET b");
  EXPECT_THAT(rig.sent(), ElementsAre("MGET none a", mget));
  rig.backend("*2|_|$1|x");
  EXPECT_EQ(rig.answers(), "");
  rig.backend(marks("34"));
  EXPECT_EQ(rig.answers(), "*2|_|$1|x|");
  EXPECT_THAT(rig.sent(), ElementsAre("GET b", mget));
}

TEST(EngineWrapped, AReadWhoseMarkHasMovedIsNotShown) {
  watching rig;
  rig.client("GET a");
  rig.mark_is("orders", 35);
  rig.backend("$6|secret", marks("35"));
  EXPECT_EQ(rig.answers(), fenced);
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", mget));
}

TEST(EngineWrapped, AReadBesideALostMarkOrAnotherEpochIsReadAgain) {
  for (const std::string behind : {marks("nil"), bulks("34", "e2"), bulks("34"), marks("33")}) {
    watching rig;
    rig.client("GET a");
    rig.backend("$1|x", behind);
    EXPECT_EQ(rig.answers(), "");
    EXPECT_THAT(rig.sent(), ElementsAre("GET a", mget, "GET a", mget));
    rig.backend("$1|y", marks("34"));
    EXPECT_EQ(rig.answers(), "$1|y|");
  }
}

TEST(EngineWrapped, InAnotherDatabaseTheMarksAreReadInTheirOwn) {
  watching rig;
  rig.client("SELECT 3");
  rig.backend("+OK");
  rig.answers();
  rig.sent();
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "SELECT 0", mget, "SELECT 3"));
  rig.backend("$1|x", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "$1|x|");
  rig.client("GET a");
  rig.backend("$1|x", "-NOPERM no", marks("34"), "-NOPERM no");  // it looked in the client's database
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
}

TEST(EngineWrapped, WhereTheMarksMayNotBeReadNothingIsShown) {
  watching rig;
  rig.client("GET a");
  rig.backend("$1|x", "-NOPERM no");
  EXPECT_EQ(rig.answers(), "-NOPERM no (fencegate checks marks with the rights of this user); not applied|");
}

TEST(EngineWrapped, AnAnswerThatIsTooLargeToWaitIsRefused) {
  watching rig;
  rig.client("GET a", "GET b");
  rig.backend(bulk(std::string(1024 * 1024, 'x')), marks("34"));
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
  rig.backend("$1|x", marks("34"));
  EXPECT_EQ(rig.answers(), "$1|x|");
}

TEST(EngineWrapped, ACallThatReadsIsAnsweredByRedis) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 MGET none a");
  rig.backend("+PONG");
  EXPECT_THAT(rig.sent(), ElementsAre("PING", "MGET none a", mget));
  rig.mark_is("orders", 35);
  rig.backend("*2|$-1|$1|x", marks("35"));
  EXPECT_EQ(rig.answers(), fenced);
}

TEST(EngineWrapped, TheScriptIsToldHowToAnswer) {
  for (const bool resp3 : {false, true})
    for (const auto& [said, how] : std::vector<std::pair<std::string, std::string>>{
             {"ZADD z INCR 1 m", "typed"}, {"SORT l GET w_*", "untyped"}, {"BITFIELD b SET u8 0 1", "untyped"}}) {
      SCOPED_TRACE(said);
      watching rig(resp3);
      rig.client(said);
      EXPECT_THAT(rig.sent(),
                  ElementsAre(HasSubstr("0 " + (resp3 ? how : "untyped") + " 0 2 fencegate:mark:{orders}")));
    }
}

TEST(EngineWrapped, WhatAScriptCannotAnswerIsRefused) {
  watching rig(true);
  for (const std::string said : {"MOD.WRITE k v", "BITFIELD b SET i64 0 1", "BITFIELD b GET u54 0"}) {
    rig.client(said);
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY ")) << said;
  }
}

TEST(EngineWrapped, WhatHasTheWrongNumberOfArgumentsIsAnsweredAsByRedis) {
  watching rig;
  rig.client("SET k", "INCR k 2");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.answers(),
            "-ERR wrong number of arguments for 'set' command|-ERR wrong number of arguments for 'incr' command|");
}

TEST(EngineWrapped, ALargeIntegerIsWhatTheScriptHasReadAgain) {
  watching rig;
  rig.client("INCR k", "INCR k", "LPOP l 2", "LPOP l");
  rig.backend("-FENCEGATEINT 9223372036854775807");
  EXPECT_EQ(rig.answers(), ":9223372036854775807|");
  rig.backend("-FENCEGATEINT ");
  EXPECT_THAT(rig.answers(), StartsWith("-ERR applied; "));
  rig.backend("$-1");
  EXPECT_EQ(rig.answers(), "*-1|");
  rig.backend("$-1");
  EXPECT_EQ(rig.answers(), "$-1|");
}

}  // namespace
}  // namespace fencegate::test
