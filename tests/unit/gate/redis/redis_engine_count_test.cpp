// requests_total: each command of a client once, by what it is, whatever became of it.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::StartsWith;

// "read 1 write 2 other 0"
std::string counted(engine_rig& rig) {
  using enum metrics::request_class;
  const auto value = [&rig](metrics::request_class c) { return std::to_string(rig.stats.requests(c).value()); };
  return "read " + value(read) + " write " + value(write) + " other " + value(other);
}

TEST(EngineCount, RejectedWritesAreWrites) {
  engine_rig rig;
  rig.client("SET k v", "SET fencegate:epoch x", "NOSUCH k", "BLPOP k 0");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING "));
  EXPECT_EQ(counted(rig), "read 0 write 4 other 0");
  rig.client("FLUSHALL", "GET fencegate:epoch");
  EXPECT_EQ(counted(rig), "read 1 write 4 other 1");
}

TEST(EngineCount, FencedReadsAreReads) {
  engine_rig rig(with_policy([](auto& p) { p.read = fence::reads::fence; }));
  rig.bind("orders=34");
  rig.client("GET k");
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_EQ(counted(rig), "read 1 write 0 other 1");
}

TEST(EngineCount, ABatchThatIsSentAgainIsCountedOnce) {
  engine_rig rig;
  rig.arm();
  EXPECT_EQ(counted(rig), "read 0 write 1 other 1");
  rig.client("SET a 1", "GET a");
  rig.backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|$1|1", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|$1|1|");
  EXPECT_EQ(counted(rig), "read 1 write 2 other 1");
}

TEST(EngineCount, ABlockingWriteIsCountedOnceHoweverOftenItIsTried) {
  engine_rig rig;
  rig.arm();
  rig.client("BLPOP k 0");
  rig.backend("+QUEUED", "*1|*-1", "+OK", marks("34"), "+OK");
  rig.fire_timer();
  rig.backend("+QUEUED", "*1|*2|$1|k|$1|v", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "*2|$1|k|$1|v|");
  EXPECT_EQ(counted(rig), "read 0 write 2 other 1");
}

TEST(EngineCount, AFenceCallIsWhatItCarries) {
  engine_rig rig;
  rig.client("FENCE CALL orders 34 SET k v");
  rig.backend("+PONG");
  rig.backend("+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(counted(rig), "read 0 write 1 other 0");
  rig.client("FENCE CALL orders 34 GET k", "FENCE GET");
  rig.backend("$1|v", marks("34"));
  EXPECT_EQ(counted(rig), "read 1 write 1 other 1");
}

TEST(EngineCount, InsideATransactionEachCommandCounts) {
  engine_rig rig;
  rig.client("MULTI");
  rig.backend("+OK");
  rig.client("SET k v", "GET k", "EXEC");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|+QUEUED|-FENCEMISSING "));
  EXPECT_EQ(counted(rig), "read 1 write 1 other 2");
}

TEST(EngineCount, ALargeWriteCountsOnceAndRejectedToo) {
  for (const bool bound : {false, true}) {
    engine_rig rig;
    if (bound) rig.bind("orders=34");
    std::string set;
    wire::append_command_of(set, std::string_view("SET"), std::string_view("k"),
                            std::string(limits::command_buffered_bytes_max + 1, 'x'));
    rig.client_bytes(set.substr(0, 1000));
    rig.client_bytes(set.substr(1000));
    if (bound) {
      rig.backend("+OK", marks("34"), "+OK");
      rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    }
    EXPECT_NE(rig.answers(), "");
    EXPECT_EQ(rig.stats.requests(metrics::request_class::write).value(), 1u);
  }
}

TEST(EngineCount, WithoutABackendWritesCountAsWell) {
  engine_rig rig;
  rig.engine.from_client.append(command("SET k v") + command("GET k"));
  rig.engine.fail_all("down");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN "));
  EXPECT_EQ(counted(rig), "read 1 write 1 other 0");
}

}  // namespace
}  // namespace fencegate::test
