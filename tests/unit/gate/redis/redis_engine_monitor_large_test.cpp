// Monitor mode, of writes larger than the buffer.
#include "unit/gate/redis/monitor_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

std::string set_beyond_buffer(std::string_view key) {
  std::string out;
  wire::append_command_of(out, std::string_view("SET"), key, std::string(limits::command_buffered_bytes_max + 1, 'x'));
  return out;
}

// It may be on its way for long: the marks are looked at when it has gone.
TEST(EngineMonitor, TheMarksAreLookedAtBehindALargeWrite) {
  for (const bool caching : {false, true}) {
    engine_rig rig(monitored());
    rig.bind("orders=34");
    if (caching) rig.client("CLIENT CACHING YES");
    if (caching) rig.backend("+OK");
    rig.sent();
    const auto set = set_beyond_buffer("k");
    rig.client_bytes(set.substr(0, 100'000));
    rig.client_bytes(set.substr(100'000));
    EXPECT_TRUE(rig.engine.to_backend == set + command("MGET fencegate:mark:{orders}"));
    rig.backend("+OK", bulks("35"));
    EXPECT_EQ(rig.answers(), caching ? "+OK|+OK|" : "+OK|");
    EXPECT_THAT(rig.host.reports, ElementsAre("stale set (monitor)"));
    EXPECT_EQ(admitted(rig), 0U);
  }
}

// Nothing of monitor mode drops a write: neither a mark that moves while it streams, nor a gate that is not ready. Nor do
// the marks of others that its connection is bound to.
TEST(EngineMonitor, ALargeWriteUnderARuleInMonitorModeGoesBare) {
  for (const std::string tag : {"report=34", "orders=34,report=34"}) {
    engine_rig rig(with_a_monitored_rule());
    rig.bind(tag);
    rig.host.snapshot_now.ready = false;
    const auto set = set_beyond_buffer("report:1");
    rig.client_bytes(set.substr(0, 100'000));
    rig.client_bytes(set.substr(100'000));
    EXPECT_TRUE(rig.engine.to_backend.starts_with(set + "*")) << tag;
    if (tag == "report=34")
      rig.backend("+OK", bulks("34"));
    else
      rig.backend("+OK", bulks("35", "34"));
    EXPECT_EQ(rig.answers(), "+OK|");
    EXPECT_EQ(admitted(rig), 1U);
    EXPECT_FALSE(rig.engine.closing());
  }
}

TEST(EngineMonitor, ALargeWriteThatARuleInMonitorModeWouldRejectGoesThrough) {
  engine_rig rig(with_a_monitored_rule());
  rig.mark_is("report", 35);
  rig.bind("orders=34,report=34");
  for (const std::string key : {"report:1", "acct:1"}) {
    const auto set = set_beyond_buffer(key);
    rig.client_bytes(set);
    if (key == "acct:1") rig.backend("+OK", marks("34"), "+OK");
    if (key == "acct:1") rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    if (key == "report:1") rig.backend("+OK");
    EXPECT_EQ(rig.answers(), "+OK|") << key;
  }
  EXPECT_EQ(admitted(rig), 1U);
  EXPECT_THAT(rig.host.reports, ElementsAre("stale client|setname (monitor)", "stale set (monitor)"));
}

// Its keys come later than the decision: it streams into MULTI.
TEST(EngineMonitor, ALargeWriteToKeysOfBothKindsIsBookedOnce) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("orders=34,report=34");
  std::string mset;
  wire::append_command_of(mset, std::string_view("MSET"), std::string_view("acct:1"), std::string(300'000, 'x'),
                          std::string_view("report:1"), std::string_view("v"));
  rig.client_bytes(mset);
  rig.backend("+OK", marks("34", "34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34", "35"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mset (monitor)"));
  EXPECT_EQ(admitted(rig), 0U);
}

TEST(EngineMonitor, ALargeWriteThatIsEnforcedIsRefusedBeforeItComes) {
  engine_rig rig(with_a_monitored_rule());
  rig.bind("report=34");
  const auto set = set_beyond_buffer("acct:1");
  rig.client_bytes(set.substr(0, 100'000));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.client_bytes(set.substr(100'000));
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING "));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineMonitor, ALargeReadThatCannotBeFencedIsBooked) {
  engine_rig rig(monitored_reads());
  rig.bind("orders=34");
  std::string get;
  wire::append_command_of(get, std::string_view("MGET"), std::string(300'000, 'x'));
  rig.client_bytes(get);
  EXPECT_TRUE(rig.engine.to_backend == get);
  EXPECT_THAT(rig.host.reports, ElementsAre("refused mget (monitor)"));
}

// One resource under two rules: the key's own decides, also of a large write and inside MULTI.
TEST(EngineMonitor, AnEnforcedKeyWhoseResourceARuleInMonitorModeNamesFirst) {
  const auto gate = with_a_monitored_rule("orders");
  engine_rig large(gate);
  large.bind("orders=34");
  large.client_bytes(set_beyond_buffer("acct:1"));
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

}  // namespace
}  // namespace fencegate::test
