// Monitor mode, of the gate or of a rule: everything is forwarded, and what would have been rejected is counted, by a look
// at the marks where memory does not know.
#include "unit/gate/redis/monitor_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

TEST(EngineMonitor, ARuleInMonitorModeLooksAtTheMarksToo) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("report=34");
  rig.client("SET report:1 v");
  EXPECT_THAT(rig.sent(), ElementsAre("MGET fencegate:mark:{report}", "SET report:1 v"));
  rig.backend(bulks("34"), "+OK");
  EXPECT_EQ(admitted(rig), 1U);
  rig.client("SET report:1 v");
  rig.backend(bulks("35"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
  EXPECT_EQ(admitted(rig), 1U);
}

// The arm behind a batch looks at the marks of what ran in it, too; alone, a monitored write goes behind a look of its own.
TEST(EngineMonitor, ARuleInMonitorModeBesideAnEnforcedOne) {
  engine_rig rig(with_a_monitored_rule());
  const std::string both = "fencegate:mark:{orders} fencegate:mark:{report}";
  rig.bind("orders=34,report=34");
  rig.client("SET acct:1 v");
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34", "34"), "+OK");
  rig.sent();
  rig.client("SET report:1 v");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "MGET " + both, "SET report:1 v"));
  rig.backend("+OK", bulks("34", "34"), "+OK");
  EXPECT_EQ(admitted(rig), 2U);
  rig.client("SET acct:1 v", "INCR report:1");
  rig.sent();
  rig.backend("+OK", marks("34", "34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET acct:1 v", "INCR report:1", "EXEC", watch,
                                      "MGET " + both + " fencegate:epoch", "MULTI"));
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|:1", "+OK", marks("34", "35"), "+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale incr (monitor)"));
  EXPECT_EQ(admitted(rig), 3U);
  rig.client("SET acct:1 v", "INCR report:1", "INCR report:2");
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|:1|:1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.host.reports, testing::SizeIs(3));
  EXPECT_EQ(admitted(rig), 4U);
}

TEST(EngineMonitor, AMarkThatIsOnlyLookedAtProvesNothing) {
  for (const std::string orders : {"35", "33", "nil"}) {
    engine_rig rig(with_a_monitored_rule());
    rig.bind("orders=34,report=34");
    rig.host.hold_answers = true;
    rig.client("SET acct:1 v");
    rig.sent();
    rig.backend("+OK", marks(orders, "34"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
    rig.backend("+OK");
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), orders == "35" ? StartsWith("-FENCED ") : StartsWith(""));
  }
}

// A batch that was not applied is booked when it is.
TEST(EngineMonitor, ABatchThatIsSentAgainIsBookedOnce) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  rig.client("SET acct:1 v", "SET report:1 v", "MSET acct:1 v report:1 v");
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*-1", "+OK", marks("34", "35"), "+OK");
  EXPECT_THAT(rig.host.reports, IsEmpty());
  EXPECT_EQ(admitted(rig), 0U);
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)", "stale mset (monitor)"));
  EXPECT_EQ(admitted(rig), 1U);
}

TEST(EngineMonitor, AWriteThatNeedsBothIsReportedForTheMonitoredOne) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  rig.mark_memory.cell("report")->saw(fence::token(35));
  rig.client("MSET acct:1 v report:1 v");
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), Contains("MSET acct:1 v report:1 v"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mset (monitor)"));
  EXPECT_EQ(admitted(rig), 0U) << "each write has one outcome";
  rig.client("WATCH acct:1", "MSET acct:1 w report:1 w");
  rig.backend("+OK", "+OK", "+OK");
  EXPECT_THAT(rig.host.reports, testing::SizeIs(2));
  EXPECT_EQ(admitted(rig), 0U);
}

TEST(EngineMonitor, BetweenWatchAndMultiAWriteThatNeedsBothIsLookedAt) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  rig.client("WATCH acct:1", "MSET acct:1 w report:1 w");
  EXPECT_THAT(rig.sent(),
              ElementsAre("WATCH acct:1", "MGET fencegate:mark:{orders} fencegate:mark:{report}", StartsWith("EVAL ")));
  rig.backend("+OK", bulks("34", "35"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mset (monitor)"));
}

// Redis is full: what frees memory goes outside of MULTI.
TEST(EngineMonitor, AMonitoredWriteThatLeavesItsBatchIsBooked) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  rig.client("DEL acct:1", "DEL report:1");
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("-OOM full", "-OOM full", "-EXECABORT", "+OK", marks("34", "34"), "+OK");
  rig.backend("+OK", ":1");
  rig.sent();
  rig.backend(bulks("34", "35"), ":1");
  EXPECT_EQ(rig.answers(), ":1|:1|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale del (monitor)"));
  EXPECT_EQ(admitted(rig), 1U);
}

// A shared link's engine reports to nobody.
TEST(EngineMonitor, AWriteThatNeedsBothIsNotShared) {
  auto settings = with_a_monitored_rule();
  settings.share_writes = settings::sharing::always;
  engine_rig rig(settings);
  rig.host.shares = true;
  rig.bind("orders=34,report=34");
  rig.client("MSET acct:1 v report:1 v");
  rig.backend_bytes(info_of_server("here"));
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34", "34"), "+OK");
  rig.client("SET report:1 v");
  rig.backend("+OK", bulks("34", "34"), "+OK");
  EXPECT_THAT(rig.host.shared, IsEmpty());
  EXPECT_EQ(admitted(rig), 2U);
}

TEST(EngineMonitor, WhatALookCannotReadIsUnavailable) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.backend("-NOPERM no", "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("unavailable set (monitor)"));
  EXPECT_EQ(admitted(rig), 0U);
}

// ── claims that could not be raised ─────────────────────────────────────────────────────────────────────────────────

TEST(EngineMonitor, AClaimWhoseRaiseHasFailedIsRaisedByTheNextWrite) {
  for (const std::string write : {"SET k v", "MULTI"}) {
    engine_rig rig(monitored());
    rig.host.control_down = "no route";
    rig.bind("orders=34");
    rig.client(write);
    EXPECT_THAT(rig.sent(), ElementsAre("MGET fencegate:mark:{orders}", write));
    rig.backend(bulks("nil"), "+OK");
    if (write == "MULTI") {
      rig.client("SET k v", "EXEC");
      rig.backend("+QUEUED", "*1|+OK");
    }
    EXPECT_THAT(rig.host.reports, ElementsAre("unavailable client|setname (monitor)", "unavailable set (monitor)"));
    rig.host.control_down.clear();
    rig.client(write);
    EXPECT_EQ(rig.host.marks["orders"], fence::token(34));
    rig.backend(bulks("34"), "+OK");
    if (write == "MULTI") {
      rig.client("SET k v", "EXEC");
      rig.backend("+QUEUED", "*1|+OK");
    }
    EXPECT_EQ(admitted(rig), 1U);
  }
}

// One attempt for each look: a pipeline does not wait for each of its writes.
TEST(EngineMonitor, WritesBehindALookWaitForNoRaise) {
  engine_rig rig(monitored());
  rig.host.control_down = "no route";
  rig.bind("orders=34");
  rig.host.seen.clear();
  rig.client("SET a v", "SET b v", "SET c v");
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34"));
  rig.backend(bulks("nil"), "+OK", "+OK", "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|");
}

TEST(EngineMonitor, BesideAnEnforcedClaimItIsRaisedAgain) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34");
  rig.host.control_down = "no route";
  rig.client("FENCE SET report 34");
  rig.backend("+PONG");
  EXPECT_EQ(rig.answers(), "+OK|") << "nothing enforced is wrong";
  rig.host.control_down.clear();
  rig.client("MSET acct:1 v report:1 v");
  EXPECT_EQ(rig.host.marks["report"], fence::token(34));
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34", "34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(admitted(rig), 1U);
}

// ── equal_token: reject ─────────────────────────────────────────────────────────────────────────────────────────────

settings::redis_gate monitored_once() {
  return with_policy([](auto& p) {
    p.mode = monitor;
    p.equal = fence::equal_token::reject;
  });
}

TEST(EngineMonitorOnce, ATokenThatALookFindsUsedIsEqual) {
  engine_rig rig(monitored_once());
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.backend(bulks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)"));
  EXPECT_EQ(admitted(rig), 0U);
}

TEST(EngineMonitorOnce, TheFirstWritesUseTheTokenUp) {
  engine_rig rig(monitored_once());
  rig.mark_is("orders", 33);
  rig.bind("orders=34");
  rig.client("SET k v", "SET k w");
  rig.backend(bulks("33"), "+OK", "+OK");
  EXPECT_EQ(admitted(rig), 2U) << "what arrived together";
  EXPECT_EQ(rig.host.marks["orders"], fence::token(34)) << "others are to see it";
  rig.client("SET k v", "GET k");
  rig.backend("+OK", "$1|v");
  EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|$1|v|");
  EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)"));
}

TEST(EngineMonitorOnce, ATransactionUsesTheTokenUp) {
  engine_rig rig(monitored_once());
  rig.bind("orders=34");
  for (int i = 0; i < 2; ++i) {
    rig.client("MULTI");
    rig.backend(i == 0 ? bulks("nil") : bulks("34"), "+OK");
    rig.client("SET a 1", "EXEC");
    rig.backend("+QUEUED", "*1|+OK");
  }
  EXPECT_EQ(admitted(rig), 1U);
  EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)"));
}

settings::redis_gate with_a_monitored_once_rule() {
  auto settings = with_a_monitored_rule();
  settings.resources[0] = fence::key_rule::compile("report:*", "report", monitored_once().policy).value();
  return settings;
}

// Its raise must not end the batches of its enforced neighbours.
TEST(EngineMonitorOnce, BesideAnEnforcedClaimItIsNotWatched) {
  engine_rig rig(with_a_monitored_once_rule());
  rig.bind("orders=34,report=34");
  rig.client("SET acct:1 v", "SET report:1 v");
  rig.backend("+OK", marks("34", "nil"), "+OK");
  EXPECT_THAT(rig.sent(), testing::AllOf(Contains(watch), testing::Not(Contains("SET fencegate:mark:{report} 34"))));
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34", "nil"), "+OK");
  EXPECT_EQ(admitted(rig), 2U);
  EXPECT_EQ(rig.host.marks["report"], fence::token(34));
  rig.client("SET acct:1 v", "SET report:1 v");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+OK|+OK|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)"));
}

// A blocking write is tried many times, but uses up no token that it does not need.
TEST(EngineMonitorOnce, BesideAnEnforcedClaimItStopsNoBlockingWrite) {
  engine_rig rig(with_a_monitored_once_rule());
  rig.bind("orders=34,report=34");
  rig.client("BLPOP acct:1 0");
  rig.backend("+OK", marks("34", "33"), "+OK");
  rig.backend("+QUEUED", "*1|*-1", "+OK", marks("34", "33"), "+OK");
  rig.fire_timer();
  rig.backend("+QUEUED", "*1|*2|$1|k|$1|v", "+OK", marks("34", "33"), "+OK");
  EXPECT_EQ(rig.answers(), "*2|$1|k|$1|v|");
  EXPECT_EQ(admitted(rig), 1U);
}

// One resource under two rules, of which only one enforces it: what used the token up is what the other's writes ran with.
TEST(EngineMonitorOnce, WhatRanWithTheUseOfATokenIsAdmitted) {
  settings::redis_gate settings;
  settings.policy.equal = fence::equal_token::reject;
  settings.resources.push_back(fence::key_rule::compile("acct:*", "orders", settings.policy).value());
  settings.resources.push_back(fence::key_rule::compile("report:*", "orders", monitored_once().policy).value());
  for (const bool inside : {false, true}) {
    engine_rig rig(settings);
    rig.bind("orders=34");
    if (inside) {
      rig.client("MULTI", "SET acct:1 v", "SET report:1 v", "EXEC");
      rig.backend("+OK", marks("nil"), "+OK");
      rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
    } else {
      rig.client("SET acct:1 v", "SET report:1 v");
      rig.backend("+OK", marks("nil"), "+OK");
      rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|+OK|+OK|+OK", "+OK", marks("34"), "+OK");
    }
    EXPECT_THAT(rig.host.reports, IsEmpty()) << inside;
    EXPECT_EQ(admitted(rig), 2U) << inside;
    rig.backend("+OK");
    rig.client("SET report:1 v");
    rig.backend(bulks("34"), "+OK");
    EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)")) << inside;
  }
}

// ── what else would have been rejected ──────────────────────────────────────────────────────────────────────────────

TEST(EngineMonitor, MissingMalformedAndJumpGoThrough) {
  const auto settings = with_policy([](auto& p) {
    p.mode = monitor;
    p.max_step = 10;
  });
  engine_rig rig(settings);
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v"));
  rig.backend("+OK");
  rig.bind("orders=034");
  rig.client("SET k v", "MULTI");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "MULTI"));
  rig.backend("+OK", "+OK");
  rig.client("SET k v", "EXEC");
  rig.backend("+QUEUED", "*1|+OK");
  rig.mark_is("orders", 1);
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v"));
  rig.backend("+OK");
  EXPECT_EQ(rig.host.marks["orders"], fence::token(1));
  EXPECT_THAT(rig.host.reports,
              ElementsAre("missing set (monitor)", "malformed client|setname (monitor)", "malformed set (monitor)",
                          "malformed set (monitor)", "jump client|setname (monitor)", "jump set (monitor)"));
  EXPECT_EQ(admitted(rig), 0U);
}

TEST(EngineMonitor, FenceSetIsAnsweredByTheRulesOfItsResources) {
  auto settings = with_a_monitored_rule();
  fence::policy rules;
  rules.mode = monitor;
  rules.max_step = 10;
  settings.resources[0] = fence::key_rule::compile("report:*", "report", rules).value();
  engine_rig rig(settings);
  rig.mark_is("report", 35);
  rig.client("FENCE SET report 34");
  rig.backend("+PONG");
  rig.client("FENCE SET report 100");
  EXPECT_EQ(rig.answers(), "+OK|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale fence|set (monitor)", "jump fence|set (monitor)"));
  rig.mark_is("orders", 35);
  rig.client("FENCE SET report 34 orders 34");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED token 34 of orders "));
  rig.client("SET report:1 v");
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(rig.host.reports.back(), "stale set (monitor)");
}

TEST(EngineMonitor, ATagIsAnsweredByTheRulesOfItsResources) {
  engine_rig rule(with_a_monitored_rule());
  rule.mark_is("report", 35);
  rule.bind("report=34,orders=34");
  EXPECT_THAT(rule.host.reports, ElementsAre("stale client|setname (monitor)"));
  auto settings = monitored();
  settings.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  engine_rig gate(settings);
  gate.mark_is("orders", 35);
  gate.client("CLIENT SETNAME fence:orders=34");
  gate.backend("+OK");
  EXPECT_THAT(gate.answers(), StartsWith("-FENCED "));
  EXPECT_THAT(gate.host.reports, ElementsAre("stale client|setname"));
}

TEST(EngineMonitor, FencedReadsAreLookedAtToo) {
  engine_rig rig(monitored_reads());
  rig.bind("orders=34");
  rig.client("GET k");
  EXPECT_THAT(rig.sent(), ElementsAre("MGET fencegate:mark:{orders}", "GET k"));
  rig.backend(bulks("34"), "$1|v");
  EXPECT_EQ(admitted(rig), 1U);
  rig.client("XREAD BLOCK 10 STREAMS s 0");
  rig.backend("*-1");
  rig.client("GET k", "MULTI");
  rig.backend(bulks("35"), "$1|v", "+OK");
  rig.client("GET k", "EXEC");
  rig.backend("+QUEUED", "*1|$1|v");
  EXPECT_EQ(rig.answers(), "$1|v|*-1|$1|v|+OK|+QUEUED|*1|$1|v|");
  EXPECT_THAT(rig.host.reports, ElementsAre("refused xread (monitor)", "stale get (monitor)", "stale get (monitor)"));
  EXPECT_EQ(admitted(rig), 1U);
}

settings::redis_gate with_monitored_reads_in_a_rule() {
  auto settings = with_a_monitored_rule();
  settings.resources[0] = fence::key_rule::compile("report:*", "report", monitored_reads().policy).value();
  return settings;
}

// The arm behind its batch looks at the marks. A link that only reads goes bare, as it does without these rules.
TEST(EngineMonitor, AReadLeavesTheLinkArmedForTheNextWrite) {
  engine_rig rig(with_monitored_reads_in_a_rule());
  rig.bind("orders=34,report=34");
  rig.client("SET acct:1 v");
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34", "34"), "+OK");
  rig.sent();
  for (int i = 0; i < 8; ++i) {
    rig.client("GET report:1");
    EXPECT_THAT(rig.sent(), testing::AllOf(Contains("GET report:1"), testing::Not(Contains("DISCARD")))) << i;
    rig.backend("+QUEUED", "*1|$1|v", "+OK", marks("34", i < 7 ? "34" : "35"), "+OK");
  }
  EXPECT_EQ(admitted(rig), 8U);
  EXPECT_THAT(rig.host.reports, ElementsAre("stale get (monitor)"));
  rig.client("GET report:1");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "GET report:1"));
}

TEST(EngineMonitor, AReadWhoseClaimWasNotRaisedRaisesItOnAnArmedLink) {
  engine_rig rig(with_monitored_reads_in_a_rule());
  rig.bind("orders=34");
  rig.host.control_down = "no route";
  rig.client("FENCE SET report 34");
  rig.backend("+PONG");
  rig.client("SET acct:1 v");
  rig.backend("+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  rig.answers();
  rig.host.control_down.clear();
  rig.client("GET report:1");
  EXPECT_EQ(rig.host.marks["report"], fence::token(34));
  rig.backend("+QUEUED", "*1|$1|v", "+OK", marks("34", "34"), "+OK");
  EXPECT_EQ(rig.answers(), "$1|v|");
  EXPECT_EQ(admitted(rig), 2U);
}

TEST(EngineMonitor, AReadIsNoUseOfAToken) {
  auto settings = monitored_reads();
  settings.policy.equal = fence::equal_token::reject;
  engine_rig rig(settings);
  rig.bind("orders=34");
  rig.client("GET k");
  rig.backend(bulks("34"), "$1|v");
  EXPECT_EQ(admitted(rig), 1U);
  rig.client("SET k v");
  rig.backend("+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("equal set (monitor)"));
}

// Enforced, nobody would have been rejected either.
TEST(EngineMonitor, ATransactionThatIsNotExecutedIsNotBooked) {
  for (const std::string end : {"DISCARD", "EXEC"}) {
    engine_rig rig(monitored());
    rig.client("MULTI");
    rig.backend("+OK");
    rig.client("SET a 1", end);
    rig.backend("+QUEUED", end == "EXEC" ? "*-1" : "+OK");
    EXPECT_THAT(rig.host.reports, IsEmpty());
  }
}

TEST(EngineMonitor, WhatIsNotedInATransactionIsBounded) {
  auto settings = monitored();
  settings.resources.push_back(fence::key_rule::compile("{r}:*", "{r}", settings.policy).value());
  engine_rig rig(settings);
  rig.client("MULTI");
  rig.backend("+OK");
  for (int i = 0; i < 100; ++i) rig.client("SET r" + std::to_string(i) + ":1 v");
  EXPECT_THAT(rig.host.reports, testing::SizeIs(36));
}

TEST(EngineMonitor, EachTryOfABlockingWriteIsNotAWrite) {
  engine_rig rig;
  rig.arm();
  EXPECT_EQ(admitted(rig), 1U);
  rig.client("BLPOP k 0");
  rig.backend("+QUEUED", "*1|*-1", "+OK", marks("34"), "+OK");
  rig.fire_timer();
  rig.backend("+QUEUED", "*1|*2|$1|k|$1|v", "+OK", marks("34"), "+OK");
  EXPECT_EQ(admitted(rig), 2U);
}

TEST(EngineMonitor, EachWriteIsBookedUnderWhatItNeedsAndByItsName) {
  auto settings = monitored();
  for (const std::string one : {"a", "b"})
    settings.resources.push_back(fence::key_rule::compile(one + ":*", one, settings.policy).value());
  settings.unmatched = fence::unmatched::pass;
  engine_rig rig(settings);
  rig.bind("a=34,b=34");
  rig.client("SET a:1 v", "SET b:1 v", "INCR b:2", "INCR b:2", "SET free v", "MSET a:1 v b:1 v");
  rig.backend(bulks("35", "34"), "+OK", "+OK", ":1", ":2", "+OK", "+OK");
  EXPECT_THAT(rig.host.reports, UnorderedElementsAre("stale set (monitor)", "stale mset (monitor)"));
  EXPECT_EQ(admitted(rig), 3U);
}

TEST(EngineMonitor, WhatIsPeekedIsBounded) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  for (int i = 0; i < 100; ++i) rig.client("MOD.WRITE" + std::to_string(i) + " k");
  EXPECT_THAT(rig.sent(), testing::SizeIs(65));
  rig.backend(bulks("34"));
  EXPECT_EQ(admitted(rig), 64U);
  EXPECT_THAT(rig.sent(), testing::SizeIs(37));
}

// The look would take the place of the command that is meant.
TEST(EngineMonitor, NothingComesBetweenCachingAndItsCommand) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  rig.client("CLIENT CACHING YES", "EVAL script 1 k");
  EXPECT_THAT(rig.sent(), ElementsAre("CLIENT CACHING YES", "EVAL script 1 k", "MGET fencegate:mark:{orders}"));
  rig.backend("+OK", ":1", bulks("35"));
  EXPECT_EQ(rig.answers(), "+OK|:1|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale eval (monitor)"));
}

TEST(EngineMonitor, NorBetweenWatchAndMulti) {
  auto settings = with_monitored_reads_in_a_rule();
  fence::policy rules;
  rules.read = fence::reads::fence;
  settings.resources[1] = fence::key_rule::compile("acct:*", "orders", rules).value();
  engine_rig rig(settings);
  rig.bind("orders=34,report=34");
  rig.client("WATCH w", "CLIENT CACHING YES", "MGET acct:1 report:1");
  EXPECT_THAT(rig.sent(), ElementsAre("WATCH w", "CLIENT CACHING YES", "MGET acct:1 report:1", mget));
  rig.backend("+OK", "+OK", bulks("v", "w"), marks("34"));
  EXPECT_EQ(rig.answers(), "+OK|+OK|*2|$1|v|$1|w|");
  EXPECT_EQ(admitted(rig), 1U);
}

TEST(EngineMonitor, BetweenWatchAndMultiTheMarksAreLookedAtToo) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  rig.client("WATCH w", "SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("WATCH w", "MGET fencegate:mark:{orders}", "SET k v"));
  rig.backend("+OK", bulks("35"), "+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
}

TEST(EngineMonitor, TheMarksAreLookedAtInFrontOfMulti) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  rig.client("MULTI", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("MGET fencegate:mark:{orders}", "MULTI"));
  rig.backend(bulks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC"));
  rig.backend("+QUEUED", "*1|+OK");
  EXPECT_EQ(admitted(rig), 1U);
  rig.client("WATCH w", "MULTI", "SET a 1", "EXEC");
  EXPECT_THAT(rig.sent(), ElementsAre("WATCH w", "MGET fencegate:mark:{orders}", "MULTI"));
  rig.backend("+OK", bulks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC"));
  rig.backend("+QUEUED", "*1|+OK");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|*1|+OK|+OK|+OK|+QUEUED|*1|+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
  EXPECT_EQ(admitted(rig), 1U);
}

TEST(EngineMonitor, CachingIsLeftToTheTransactionBehindIt) {
  engine_rig rig(monitored());
  rig.bind("orders=34");
  rig.client("CLIENT CACHING YES", "MULTI");
  EXPECT_THAT(rig.sent(), ElementsAre("CLIENT CACHING YES", "MULTI"));
}

TEST(EngineMonitor, ALookWhoseSelectIsRefusedDisturbsNobody) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("report=34");
  rig.client("SELECT 3");
  rig.backend("+OK");
  rig.answers();
  rig.client("SET report:1 v");
  rig.backend("-BUSY a script", bulks("35"), "-BUSY a script", "-BUSY a script");
  EXPECT_EQ(rig.answers(), "-BUSY a script|");
  EXPECT_THAT(rig.host.reports, ElementsAre("unavailable set (monitor)"));
  EXPECT_FALSE(rig.engine.closing());
  EXPECT_EQ(rig.mark_memory.seen("report"), fence::token(34)) << "of another database";
  rig.client("SET report:1 v");
  rig.backend("+OK", bulks("34"), "-BUSY a script");
  EXPECT_TRUE(rig.engine.closing()) << "the link stays in database 0";
}

TEST(EngineMonitor, WhatALookFindsWhileMarksAreListedIsLate) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("report=34");
  rig.client("SET report:1 v");
  rig.mark_memory.note_listing();
  rig.backend(bulks("35"), "+OK");
  EXPECT_TRUE(rig.mark_memory.any_late());
}

}  // namespace
}  // namespace fencegate::test
