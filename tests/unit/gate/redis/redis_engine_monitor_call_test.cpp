// Monitor mode, of FENCE CALL.
#include "unit/gate/redis/monitor_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

TEST(EngineMonitor, WithoutTheServersTableACallIsRefused) {
  engine_rig rig(with_a_monitored_rule());
  rig.host.snapshot_now.commands = backend::command_table::empty();
  rig.host.snapshot_now.problem = "the server is away";
  for (const std::string words : {"ACL SETUSER evil on", "EVAL x 0", "SET report:1 v"}) {
    rig.client("FENCE CALL report 34 " + words);
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN ")) << words;
  }
  EXPECT_THAT(rig.sent(), IsEmpty());
}

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
  const auto gate = with_a_monitored_rule("orders");
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

TEST(EngineMonitor, ACallForAMonitoredKeyOfAnEnforcedResourceIsForwarded) {
  auto gate = with_a_monitored_rule("orders");
  std::swap(gate.resources[0], gate.resources[1]);
  engine_rig rig(gate);
  rig.mark_is("orders", 35);
  rig.client("FENCE CALL orders 34 SET report:1 v");
  rig.backend("+PONG");
  EXPECT_THAT(rig.sent(), Contains("SET report:1 v"));
  EXPECT_THAT(rig.host.reports, ElementsAre("stale fence|call (monitor)"));
  rig.backend("+OK");
  rig.client("FENCE CALL orders 34 SET acct:1 v", "FENCE CALL orders 34 MSET acct:1 v report:1 v");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

}  // namespace
}  // namespace fencegate::test
