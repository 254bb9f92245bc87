// FENCE, rejections, policies: equal_token: reject, monitor mode, fenced reads.
#include "backend/command_roles.hpp"
#include "unit/gate/redis/engine_rig.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(EngineFence, ReplicationIsRefusedWithoutAdvice) {
  engine_rig rig;
  rig.client("SYNC", "PSYNC ? -1", "FLUSHALL");
  const std::string refused = "-FENCEDENY " + std::string(backend::replication_refused) + "; not applied|";
  EXPECT_THAT(rig.answers(),
              testing::AllOf(StartsWith(refused + refused), HasSubstr("allow_commands: [\"flushall\"]")));
}

// ── rejections ──────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, RejectedCommandsNeverReachTheBackend) {
  engine_rig rig;
  rig.client("SET k v", "FLUSHALL", "SET fencegate:epoch x", "NOSUCH a");
  EXPECT_THAT(rig.sent(), IsEmpty());
  const auto answers = rig.answers();
  EXPECT_THAT(answers, StartsWith("-FENCEMISSING "));
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '|'), 4);
  EXPECT_THAT(rig.host.reports,
              ElementsAre("missing set", "refused flushall", "refused set", testing::StartsWith("missing")));
}

TEST(EngineFence, WhatOnlyReadsKeysOfTheFencePasses) {
  engine_rig rig;
  rig.client("GET fencegate:epoch", "TYPE fencegate:mark:{orders}", "EXISTS fencegate:epoch a");
  EXPECT_THAT(rig.sent(),
              ElementsAre("GET fencegate:epoch", "TYPE fencegate:mark:{orders}", "EXISTS fencegate:epoch a"));
  rig.backend("$2|e1", "+string", ":1");
  rig.answers();
  for (const std::string line :
       {"GETEX fencegate:epoch PERSIST", "RENAME fencegate:epoch a", "COPY fencegate:epoch a"}) {
    rig.client(line);
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY ")) << line;
  }
}

TEST(EngineFence, RejectionsKeepTheirPlaceAmongReplies) {
  engine_rig rig;
  rig.client("GET a", "SET k v", "GET b");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "GET b"));
  EXPECT_EQ(rig.answers(), "");
  rig.backend("$1|a");
  EXPECT_THAT(rig.answers(), StartsWith("$1|a|-FENCEMISSING "));
  rig.backend("$1|b");
  EXPECT_EQ(rig.answers(), "$1|b|");
}

TEST(EngineFence, AStaleTagIsRefusedAndBindsAllTheSame) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  rig.mark_is("orders", 35);
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED "));
}

// Whatever reads like a tag and was not bound: the writes behind it must not pass as untagged.
TEST(EngineFence, WhatCouldNotBeBoundBindsAsUnusable) {
  std::string many;
  for (int i = 0; i < 33; ++i) many += " r" + std::to_string(i) + " 1";
  const std::string nul(1, '\0');
  const std::vector<std::pair<std::string, std::string>> ways{
      // what the client says, and what Redis answers ("": it is not asked)
      {"FENCE SET orders 034", ""},
      {"FENCE SET orders", ""},
      {"FENCE SET orders 33 payments", ""},
      {"FENCE SET orders=33 34", ""},
      {"FENCE SETT orders 33", ""},
      {"FENCE SET" + many, ""},
      {"FENCE SET orders 33", "-BUSY a script runs"},
      {"FENCE SET orders 33", "-NOPERM no"},
      {"FENCE SET orders 33", "-NOAUTH first"},
      {"CLIENT SETNAME fence:orders=33", "-NOPERM no"},
      {"CLIENT SETNAME fence:orders=33 x", "-ERR wrong number of arguments"},
      {"CLIENT SETNAME x fence:orders=33", "-ERR wrong number of arguments"},
      {"CLIENT SETNAME" + nul + " fence:orders=33", ""},
      {"CLIENT SETNAMES fence:orders=33", ""},
      {"HELLO 2 SETNAME" + nul + " fence:orders=33", ""},
      {"HELLO SETNAME fence:orders=33", "-ERR Protocol version is not an integer"},
      {"HELLO 9 SETNAME fence:orders=33", "-NOPROTO no"},
      {"HELLO 2 SETNAMES fence:orders=33", "-ERR Syntax error"},
  };
  for (const auto& [said, answered] : ways) {
    SCOPED_TRACE(readable(said));
    engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
    rig.client(said);
    EXPECT_EQ(rig.sent().empty(), answered.empty());
    if (!answered.empty()) rig.backend(answered);
    EXPECT_THAT(rig.answers(), StartsWith("-"));
    rig.sent();
    rig.client("SET k v", "MULTI");
    rig.backend("+OK");
    rig.client("SET k v", "EXEC");
    rig.backend("+OK");
    EXPECT_THAT(rig.sent(), testing::Not(testing::Contains(HasSubstr("SET k v"))));
    EXPECT_THAT(rig.answers(), testing::ContainsRegex("^-FENCE.*-FENCE"));
  }
}

TEST(EngineFence, ATagInsideMultiBindsAsUnusable) {
  for (const std::string said :
       {"CLIENT SETNAME fence:orders=33", "HELLO 2 SETNAME fence:orders=33", "FENCE SET orders 33"}) {
    SCOPED_TRACE(said);
    engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
    rig.client("MULTI");
    rig.backend("+OK");
    rig.client(said, "DISCARD", "SET k v");
    rig.backend("+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("MULTI", "DISCARD"));
    EXPECT_THAT(rig.answers(), HasSubstr("|-FENCEMISSING "));
  }
}

TEST(EngineFence, WhatCouldNotBeBoundIsMendedByBindingAllOfIt) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  rig.client("FENCE SET a 1");
  rig.backend("+PONG");
  rig.client("FENCE SET b 1 c 01", "FENCE SET b 1", "SET k v");
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("+OK|-FENCEBAD "), testing::Not(HasSubstr("|+OK|"))));
  rig.client("FENCE SET c 1");
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(StartsWith("WATCH fencegate:mark:{a} fencegate:mark:{b} fencegate:mark:{c}"),
                                      StartsWith("MGET"), "MULTI"));
}

TEST(EngineFence, FenceClearAndAnotherNameMendIt) {
  for (const std::string mends : {"FENCE CLEAR", "CLIENT SETNAME fence:orders=34", "RESET"}) {
    SCOPED_TRACE(mends);
    engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
    rig.client("FENCE SET a", mends);
    if (mends != "FENCE CLEAR") rig.backend(mends == "RESET" ? "+RESET" : "+OK");
    rig.sent();
    rig.client("SET k v");
    EXPECT_THAT(rig.sent(), testing::Not(IsEmpty()));
  }
}

TEST(EngineFence, AMalformedTagIsRefusedAndBindsAllTheSame) {
  for (const std::string name : {"fence:orders=034", "fence:orders=+34", "fence:", "fence:orders", "fence:a=1,a=2"}) {
    SCOPED_TRACE(name);
    engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
    rig.client("CLIENT SETNAME " + name);
    rig.backend("+OK");
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEBAD "));
    rig.sent();
    rig.client("SET k v");
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEBAD "));
  }
}

TEST(EngineFence, ANameThatRedisRefusedStillBindsItsTag) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("-NOPERM no");
  EXPECT_EQ(rig.answers(), "-NOPERM no|");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());
  // The tag was well formed; it is the token that is missing, and this is why.
  EXPECT_EQ(rig.answers(),
            "-FENCEMISSING a write needs a fencing token (the server refused the client name with the tag: NOPERM no; "
            "FENCE SET binds without a name); not applied|");
  rig.client("FENCE SET orders 34", "SET k v");
  rig.backend("+PONG");
  EXPECT_THAT(rig.sent(), ElementsAre("PING", watch, mget, "MULTI"));
}

TEST(EngineFence, ARaiseThatFailedIsTriedAgainAtTheFirstWrite) {
  engine_rig rig;
  rig.host.control_down = "the backend is away";
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.host.control_down.clear();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

TEST(EngineFence, AJumpIsRefusedAndRaisesNothing) {
  engine_rig rig(with_policy([](auto& p) { p.max_step = 10; }));
  rig.mark_is("orders", 34);
  rig.client("CLIENT SETNAME fence:orders=45");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEJUMP "));
  EXPECT_EQ(rig.host.marks["orders"], fence::token(34));
}

// ── no room for one more with this tag ──────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, WithoutRoomForItsTagTheConnectionEnds) {
  const std::pair<const char*, std::vector<const char*>> binders[]{
      {"CLIENT SETNAME fence:orders=34", {"+OK"}},
      {"HELLO 2 SETNAME fence:orders=34", {"*2|+proto|:2"}},
      {"FENCE SET orders 34", {"+PONG"}}};
  for (const auto& [binds, replies] : binders) {
    engine_rig rig;
    rig.host.no_room = "it is full";
    rig.client(binds, "SET k v");
    for (const auto* one : replies) rig.backend(one);
    EXPECT_EQ(rig.answers(), "-ERR max number of clients reached (it is full)|") << binds;
    EXPECT_EQ(rig.host.room_for, "orders=34") << binds;
    EXPECT_THAT(rig.host.seen, IsEmpty()) << binds;  // its mark stays
    EXPECT_TRUE(rig.engine.closing()) << binds;
    const auto sent = rig.sent();
    EXPECT_EQ(std::count(sent.begin(), sent.end(), "SET k v"), 0) << binds;
  }
}

// ── FENCE SET, GET, CLEAR, MARK ─────────────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, SetAsksRedisWhetherTheClientMaySpeakFirst) {
  engine_rig rig;
  rig.client("FENCE SET orders 34");
  EXPECT_THAT(rig.sent(), ElementsAre("PING"));
  EXPECT_THAT(rig.host.seen, IsEmpty());
  rig.backend("-NOAUTH Authentication required.");
  EXPECT_EQ(rig.answers(), "-NOAUTH Authentication required.|");
  EXPECT_THAT(rig.host.seen, IsEmpty());  // a stranger must not raise
}

TEST(EngineFence, SetRaisesAndBinds) {
  engine_rig rig;
  rig.client("FENCE SET orders 34 payments 12");
  rig.backend("+PONG");
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34", "raise payments 12"));
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.client("FENCE GET", "FENCE GET payments", "FENCE GET nosuch");
  EXPECT_EQ(rig.answers(), "*4|$6|orders|$2|34|$8|payments|$2|12|$2|12|$-1|");
}

TEST(EngineFence, SetFailsAtOnceWhenStale) {
  engine_rig rig;
  rig.mark_is("orders", 35);
  rig.client("FENCE SET orders 34");
  rig.backend("+PONG");
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
}

TEST(EngineFence, SetWithABadTokenBindsAsMalformed) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  rig.client("FENCE SET orders 034", "SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEBAD "), HasSubstr("|-FENCEBAD ")));
}

TEST(EngineFence, ClearUnbinds) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("FENCE CLEAR", "SET k v");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-FENCEMISSING "));
}

TEST(EngineFence, MarkReadsAndRaisesNothing) {
  engine_rig rig;
  rig.mark_is("orders", 35);
  rig.client("FENCE MARK orders");
  rig.backend("+PONG");
  EXPECT_EQ(rig.answers(), "$2|35|");
  rig.client("FENCE MARK nosuch", "FENCE MARK", "FENCE MARK bad!name");
  EXPECT_THAT(rig.answers(), StartsWith("$-1|-FENCEBAD "));
  EXPECT_THAT(rig.host.seen, ElementsAre("read orders", "read nosuch"));
}

TEST(EngineFence, UsageIsExplained) {
  engine_rig rig;
  rig.client("FENCE", "FENCE NOSUCH", "FENCE SET orders", "FENCE SET");
  EXPECT_THAT(rig.sent(), IsEmpty());
  const auto bytes = rig.engine.to_client;
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '\n'), 4);
  EXPECT_THAT(bytes, StartsWith("-ERR use FENCE"));
}

// ── FENCE CALL ──────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, CallRaisesThenRunsBehindItsCheck) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("PING"));
  rig.backend("+PONG");
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34"));
  EXPECT_THAT(rig.sent(),
              ElementsAre(HasSubstr("0 untyped 0 2 fencegate:mark:{orders} fencegate:epoch 34 e1 SET k v")));
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.client("SET k v");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING "));  // it does not bind
}

TEST(EngineFence, CallRefusesWhatCannotRunBehindACheck) {
  for (const std::string line :
       {"FENCE CALL orders 34 MULTI", "FENCE CALL orders 34 BLPOP k 0", "FENCE CALL orders 34 FLUSHALL",
        "FENCE CALL orders 34 FENCE SET a 1", "FENCE CALL orders 34 SUBSCRIBE c",
        "FENCE CALL orders 34 SET fencegate:epoch x", "FENCE CALL orders 034 SET k v", "FENCE CALL orders 34",
        "FENCE CALL bad! 34 SET k v", "FENCE CALL orders 34 EXEC"}) {
    SCOPED_TRACE(line);
    engine_rig rig;
    rig.client(line);
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), testing::AnyOf(StartsWith("-FENCEDENY "), StartsWith("-FENCEBAD ")));
    EXPECT_THAT(rig.host.seen, IsEmpty());
  }
}

TEST(EngineFence, ACallWhoseMarkMovedIsJudgedAnew) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 SET k v");
  rig.backend("+PONG");
  rig.sent();
  rig.mark_is("orders", 35);
  rig.backend("-FENCEGATEMARK the mark moved");
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(EngineFence, AnErrorOfTheWrappedCommandIsTheClients) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 INCR k");
  rig.backend("+PONG");
  rig.backend("-FENCEGATERAN WRONGTYPE Operation against a key");
  EXPECT_EQ(rig.answers(), "-WRONGTYPE Operation against a key|");
}

TEST(EngineFence, AnErrorOfTheWrapperIsUnavailable) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 INCR k");
  rig.backend("+PONG");
  rig.host.reports.clear();
  for (const std::string line :
       {"-NOPERM no permissions to run 'eval'", "-WRONGTYPE Operation against script: 1234", "-FENCEGATERANX"}) {
    rig.backend(line);
    EXPECT_EQ(rig.answers(), line.starts_with("-NOPERM ")
                                 ? line + " (fencegate checks marks with the rights of this user); not applied|"
                                 : "-FENCEDOWN the mark could not be checked: " + line.substr(1) + "; not applied|");
    rig.client("FENCE CALL orders 34 INCR k");
  }
  EXPECT_EQ(rig.host.reports, std::vector<std::string>(3, "unavailable fence|call"));
  rig.backend("-BUSY Redis is busy running a script");  // which the whole server says to everybody
  EXPECT_EQ(rig.answers(), "-BUSY Redis is busy running a script|");
}

// ── equal_token: reject ─────────────────────────────────────────────────────────────────────────────────────────────

struct one_use : engine_rig {
  one_use() : engine_rig(with_policy([](auto& p) { p.equal = fence::equal_token::reject; })) {
    mark_is("orders", 33);
    bind("orders=34");
  }
};

// EXEC looks at the user's rights again, and then runs the rest: the comparisons will find a mark that went back.
TEST(EngineFence, AUseThatIsRefusedByExecIsRemembered) {
  one_use rig;
  rig.client("SET a 1");
  rig.backend("+OK", marks("33"), "+OK");
  rig.backend("+QUEUED", "+QUEUED", "*2|-NOPERM no");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_EQ(rig.answers(), "");
  EXPECT_EQ(rig.mark_memory.cell("orders")->seen(), fence::token(34));
}

// Taken back with the others, a refused one would find the token used up.
TEST(EngineFence, SetsOfOneUseAreNotMerged) {
  one_use rig;
  rig.client("SET a 1", "SET b 2", "SET c 3");
  rig.backend("+OK", marks("33"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI", "SET fencegate:mark:{orders} 34", "SET a 1", "SET b 2",
                                      "SET c 3", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineFence, BindingForOneUseOnlyLooks) {
  one_use rig;
  EXPECT_THAT(rig.host.seen, ElementsAre("read orders"));
  EXPECT_EQ(rig.host.marks["orders"], fence::token(33));
}

TEST(EngineFence, OneUseIsOneBatchThatRaisesTheMarkItself) {
  one_use rig;
  rig.client("SET a 1");
  rig.backend("+OK", marks("33"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI", "SET fencegate:mark:{orders} 34", "SET a 1", "EXEC", watch,
                                      mget, "MULTI"));
  EXPECT_EQ(rig.stats.raises_total.value(), 0u);
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(rig.stats.raises_total.value(), 1u);
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));  // the arm behind it proved the use, and admits no more
  rig.backend("+OK");
  rig.client("SET b 2");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEUSED "));
}

TEST(EngineFence, AClientsTransactionIsOneUse) {
  one_use rig;
  rig.client("MULTI", "SET a 1", "SET b 2");
  rig.backend("+OK", marks("33"), "+OK");
  rig.sent();
  rig.backend("+QUEUED", "+QUEUED");
  rig.client("EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("SET fencegate:mark:{orders} 34", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|+QUEUED|*2|+OK|+OK|");
  rig.sent();
  rig.backend("+OK");
  rig.client("SET c 3");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEUSED "));
}

TEST(EngineFence, OneUseInAnotherDatabaseWritesThereAndRaisesTheMarkInItsOwn) {
  one_use rig;
  rig.client("SELECT 5");
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 5"));
  rig.client("SET a 1");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 0", watch, mget, "SELECT 5", "MULTI"));
  rig.backend("+OK", "+OK", marks("33"), "+OK", "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 0", "SET fencegate:mark:{orders} 34", "SELECT 5", "SET a 1", "EXEC",
                                      "SELECT 0", watch, mget, "SELECT 5", "MULTI"));
}

TEST(EngineFence, AUsedTokenIsRefusedWhenItIsBound) {
  engine_rig rig(with_policy([](auto& p) { p.equal = fence::equal_token::reject; }));
  rig.mark_is("orders", 34);
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEUSED "));
}

TEST(EngineFence, ATokenUsedBySomebodyElseMeanwhileIsNotUsedTwice) {
  one_use rig;
  rig.client("SET a 1");
  rig.sent();
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEUSED "));
}

TEST(EngineFence, AUseThatFailedCloses) {
  one_use rig;
  rig.client("SET a 1");
  rig.backend("+OK", marks("33"), "+OK");
  rig.backend("+QUEUED", "+QUEUED");
  ASSERT_FALSE(rig.engine.closing());
  rig.backend("*2|-NOPERM no|+OK");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_EQ(rig.answers(), "");
}

// ── monitor mode ────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, MonitorModeLetsEverythingPassAndNotes) {
  engine_rig rig(with_policy([](auto& p) { p.mode = fence::enforcement::monitor; }));
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v"));
  EXPECT_THAT(rig.host.reports, ElementsAre("missing set (monitor)"));
}

TEST(EngineFence, MonitorModeReadsTheMarksBeside) {
  engine_rig rig(with_policy([](auto& p) { p.mode = fence::enforcement::monitor; }));
  rig.bind("orders=34");
  rig.host.reports.clear();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("MGET fencegate:mark:{orders}", "SET k v"));
  rig.backend(bulks("35"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
}

TEST(EngineFence, MonitorModeStillRefusesWhatDamagesMarks) {
  engine_rig rig(with_policy([](auto& p) { p.mode = fence::enforcement::monitor; }));
  rig.client("SET fencegate:mark:{orders} 1", "FLUSHALL");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// ── fenced reads ────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineFence, FencedReadsOfAStaleReaderAreRejected) {
  engine_rig rig(with_policy([](auto& p) { p.read = fence::reads::fence; }));
  rig.bind("orders=34");
  rig.client("GET k");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", marks("35"), "+OK", "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED "));
}

TEST(EngineFence, AFencedReadUnderALostTagSaysThatAReadNeedsAToken) {
  engine_rig rig(with_policy([](auto& p) { p.read = fence::reads::fence; }));
  rig.client("CLIENT SETNAME fence:orders=34");
  rig.backend("-NOPERM no");
  rig.answers();
  rig.client("GET k");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING a read needs a fencing token (the server refused the client "));
}

// A token is used up by writes; reads only look, and go on while the mark is still the token.
struct read_after_use : engine_rig {
  read_after_use()
      : engine_rig(with_policy([](auto& p) {
          p.equal = fence::equal_token::reject;
          p.read = fence::reads::fence;
        })) {
    mark_is("orders", 34);
    client("CLIENT SETNAME fence:orders=34");
    backend("+OK");
    EXPECT_THAT(answers(), StartsWith("-FENCEUSED "));
    sent();
  }
  // An answered read, which leaves the link armed.
  void read() {
    client("GET k");
    ASSERT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
    backend("+OK", marks("34"), "+OK");
    ASSERT_THAT(sent(), ElementsAre("GET k", "EXEC", watch, mget, "MULTI"));
    backend("+QUEUED", "*1|$1|v", "+OK", marks("34"), "+OK");
    ASSERT_EQ(answers(), "$1|v|");
  }
};

TEST(EngineFence, AFencedReadGoesOnUnderAUsedToken) {
  read_after_use rig;
  rig.read();
  rig.client("SET k w");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEUSED "));
  rig.client("GET k");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED "));
}

TEST(EngineFence, AReadBehindTheWriteThatUsedTheTokenIsAdmitted) {
  engine_rig rig(with_policy([](auto& p) {
    p.equal = fence::equal_token::reject;
    p.read = fence::reads::fence;
  }));
  rig.mark_is("orders", 33);
  rig.bind("orders=34");
  rig.client("SET a 1");
  rig.backend("+OK", marks("33"), "+OK");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.backend("+OK");
  rig.sent();
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
}

TEST(EngineFence, ATransactionThatOnlyReadsGoesOnUnderAUsedToken) {
  read_after_use rig;
  rig.read();
  rig.client("MULTI", "GET k", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|$1|v", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|*1|$1|v|");
  rig.client("MULTI", "GET k", "SET k w", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k", "DISCARD"));  // the write is known to be refused
  rig.backend("+QUEUED", "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|+QUEUED|-FENCEUSED "));
}

}  // namespace
}  // namespace fencegate::test
