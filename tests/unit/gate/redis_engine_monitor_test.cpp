// Monitor mode, of the gate or of a rule: everything is forwarded, and what would have been rejected is counted, by a look
// at the marks where memory does not know.
#include "unit/gate/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr auto monitor = fence::enforcement::monitor;

settings::redis_gate monitored() {
  return with_policy([](auto& p) { p.mode = monitor; });
}

// An enforcing gate; report:* belongs to report, in monitor mode, acct:* to orders.
settings::redis_gate with_a_monitored_rule() {
  settings::redis_gate gate;
  fence::policy rules;
  rules.mode = monitor;
  gate.resources.push_back(fence::key_rule::compile("report:*", "report", rules).value());
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  return gate;
}

std::uint64_t admitted(engine_rig& rig) { return rig.figures.checks(metrics::check_outcome::admitted).value(); }

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

// The armed link compares the marks of what runs in its batch; alone, a monitored write goes behind a look of its own.
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
  EXPECT_THAT(rig.sent(), ElementsAre("SET acct:1 v", "INCR report:1", "EXEC", "WATCH " + both,
                                      "MGET " + both + " fencegate:epoch", "MULTI"));
  rig.backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("34", "35"), "+OK");
  rig.backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale incr (monitor)"));
}

TEST(EngineMonitor, AWriteThatNeedsBothIsReportedForTheMonitoredOne) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  rig.mark_memory.cell("report")->saw(fence::token(35));
  rig.client("MSET acct:1 v report:1 v");
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), Contains("MSET acct:1 v report:1 v"));
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mset (monitor)"));
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

std::string large_set(std::string_view key) {
  std::string out;
  wire::append_command_of(out, std::string_view("SET"), key, std::string(limits::command_buffered_bytes_max + 1, 'x'));
  return out;
}

TEST(EngineMonitor, TheMarksAreLookedAtInFrontOfALargeWrite) {
  for (const bool late : {false, true}) {
    engine_rig rig(monitored());
    rig.bind("orders=34");
    const auto set = large_set("k");
    rig.client_bytes(set.substr(0, 100'000));
    EXPECT_THAT(rig.engine.to_backend, StartsWith(command("MGET fencegate:mark:{orders}") + set.substr(0, 100)));
    if (!late) rig.backend(bulks("35"));
    rig.client_bytes(set.substr(100'000));
    if (late) rig.backend(bulks("35"));
    rig.backend("+OK");
    EXPECT_EQ(rig.answers(), "+OK|");
    EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
    EXPECT_EQ(admitted(rig), 0U);
  }
}

// Nothing of monitor mode drops a write: neither a mark that moves while it streams, nor a gate that is not ready.
TEST(EngineMonitor, ALargeWriteUnderARuleInMonitorModeGoesBare) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("report=34");
  rig.host.now_picture.ready = false;
  const auto set = large_set("report:1");
  rig.client_bytes(set);
  EXPECT_EQ(rig.engine.to_backend, command("MGET fencegate:mark:{report}") + set);
  rig.backend(bulks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(admitted(rig), 1U);
}

// One resource under two rules: the key's own decides, also of a large write and inside MULTI.
TEST(EngineMonitor, AnEnforcedKeyWhoseResourceARuleInMonitorModeNamesFirst) {
  settings::redis_gate gate;
  fence::policy rules;
  rules.mode = monitor;
  gate.resources.push_back(fence::key_rule::compile("report:*", "orders", rules).value());
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  engine_rig large(gate);
  large.bind("orders=34");
  large.client_bytes(large_set("acct:1"));
  EXPECT_THAT(large.sent(), ElementsAre(watch, mget, "MULTI"));
  large.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(large.engine.to_backend, StartsWith("*3\r\n$3\r\nSET\r\n$6\r\nacct:1\r\n"));
  engine_rig inside(gate);
  inside.bind("orders=34");
  inside.client("MULTI");
  inside.backend("+OK", marks("34"), "+OK");
  inside.client("SET acct:1 v");
  EXPECT_THAT(inside.sent(), Contains("SET acct:1 v"));
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

TEST(EngineMonitor, WithoutTheServersTableACallIsRefused) {
  engine_rig rig(with_a_monitored_rule());
  rig.host.now_picture.commands = backend::command_table::empty();
  rig.host.now_picture.problem = "the server is away";
  for (const std::string words : {"ACL SETUSER evil on", "EVAL x 0", "SET report:1 v"}) {
    rig.client("FENCE CALL report 34 " + words);
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN ")) << words;
  }
  EXPECT_THAT(rig.sent(), IsEmpty());
}

// ── FENCE CALL ──────────────────────────────────────────────────────────────────────────────────────────────────────

struct calling_rig : engine_rig {
  explicit calling_rig(const std::function<void(fence::policy&)>& change = [](auto&) {})
      : engine_rig(with_policy([&](auto& p) {
          p.mode = monitor;
          change(p);
        })) {}
  void call(const std::string& words) {
    client(words);
    EXPECT_THAT(sent(), ElementsAre("PING"));
    backend("+PONG");
  }
};

TEST(EngineMonitor, ACallWithABadTokenIsForwardedBareAndReported) {
  calling_rig stale;
  stale.mark_is("orders", 35);
  stale.call("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(stale.sent(), ElementsAre("SET k v"));
  stale.backend("+OK");
  EXPECT_EQ(stale.answers(), "+OK|");
  EXPECT_THAT(stale.host.reports, ElementsAre("stale fence|call (monitor)"));

  calling_rig jump([](auto& p) { p.max_step = 10; });
  jump.mark_is("orders", 1);
  jump.call("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(jump.sent(), ElementsAre("SET k v"));
  EXPECT_THAT(jump.host.reports, ElementsAre("jump fence|call (monitor)"));

  calling_rig used([](auto& p) { p.equal = fence::equal_token::reject; });
  used.call("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(used.sent(), ElementsAre("SET k v"));
  EXPECT_THAT(used.host.reports, ElementsAre("refused fence|call (monitor)"));

  calling_rig down;
  down.host.control_down = "no route";
  down.call("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(down.sent(), ElementsAre("SET k v"));
  EXPECT_THAT(down.host.reports, ElementsAre("unavailable fence|call (monitor)"));
}

TEST(EngineMonitor, ACallWithAGoodTokenRaisesAndIsAdmitted) {
  calling_rig rig;
  rig.call("FENCE CALL orders 34 SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v"));
  EXPECT_THAT(rig.host.seen, Contains("raise orders 34"));
  EXPECT_THAT(rig.host.reports, IsEmpty());
  EXPECT_EQ(admitted(rig), 1U);
}

TEST(EngineMonitor, AMalformedCallStaysAnError) {
  calling_rig rig;
  for (const std::string words : {"FENCE CALL orders 034 SET k v", "FENCE CALL orders 34",
                                  "FENCE CALL orders 34 FLUSHALL", "FENCE CALL orders 34 SET fencegate:epoch x"}) {
    rig.client(words);
    EXPECT_THAT(rig.answers(), StartsWith("-FENCE"));
    EXPECT_THAT(rig.sent(), IsEmpty());
  }
}

// Two rules may name one resource: the key's own decides.
TEST(EngineMonitor, ACallForAnEnforcedKeyIsFenced) {
  settings::redis_gate gate;
  fence::policy rules;
  rules.mode = monitor;
  gate.resources.push_back(fence::key_rule::compile("report:*", "orders", rules).value());
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  engine_rig rig(gate);
  rig.client("FENCE CALL orders 34 SET acct:1 v");
  rig.sent();
  rig.backend("+PONG");
  EXPECT_THAT(rig.sent(), ElementsAre(StartsWith("EVAL ")));
  rig.backend("+OK");
  rig.mark_is("orders", 35);
  rig.client("FENCE CALL orders 34 SET acct:1 v");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-FENCED "));
}

}  // namespace
}  // namespace fencegate::test
