// Commands larger than the buffer, which are streamed; and blocking writes, which are polled.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::size_t large_bytes = limits::command_buffered_bytes_max + 1000;

std::string large_set(std::string_view key) {
  std::string out;
  wire::append_command_of(out, std::string_view("SET"), key, std::string(large_bytes, 'x'));
  return out;
}

// What was sent, with every large argument as (large).
std::vector<std::string> sent_shortly(engine_rig& rig) {
  auto out = rig.sent();
  for (auto& line : out)
    if (line.size() > 1000) line = line.substr(0, line.find("xxx")) + "(large)";
  return out;
}

TEST(EngineLarge, AFencedValueStreamsIntoTheProvenMulti) {
  engine_rig rig;
  rig.bind("orders=34");
  const std::string set = large_set("k");
  rig.client_bytes(set.substr(0, 100'000));
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.engine.to_backend, set.substr(0, 100'000));  // nothing is held back once it is proven
  rig.client_bytes(set.substr(100'000));
  EXPECT_THAT(sent_shortly(rig), ElementsAre("SET k (large)", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
}

// Only its end tells whose keys it writes.
TEST(EngineLarge, AValueSpendsThoseTokensThatItNeeds) {
  auto gate = with_policy([](auto& p) { p.equal = fence::equal_token::reject; });
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", gate.policy).value());
  gate.resources.push_back(fence::key_rule::compile("item:*", "stock", gate.policy).value());
  engine_rig rig(std::move(gate));
  rig.mark_is("orders", 33);
  rig.mark_is("stock", 6);
  rig.bind("orders=34,stock=7");
  std::string mset;
  wire::append_command_of(mset, std::string_view("MSET"), std::string_view("acct:1"), std::string(large_bytes, 'x'),
                          std::string_view("acct:2"), std::string_view("1"));
  rig.client_bytes(mset);
  EXPECT_EQ(rig.sent().back(), "MULTI");
  rig.backend("+OK", marks("33", "6"), "+OK");
  const auto sent = sent_shortly(rig);
  EXPECT_THAT(std::vector(sent.begin(), sent.begin() + 3),
              ElementsAre("MSET acct:1 (large)", "SET fencegate:mark:{orders} 34", "EXEC"));
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34", "6"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(rig.stats.raises_total.value(), 1u);
  EXPECT_EQ(rig.mark_memory.cell("orders")->seen(), fence::token(34));
  EXPECT_EQ(rig.mark_memory.cell("stock")->seen(), fence::token(6));
}

TEST(EngineLarge, ASpentTokenThatIsRefusedBehindAValueAbortsBoth) {
  engine_rig rig(with_policy([](auto& p) { p.equal = fence::equal_token::reject; }));
  rig.mark_is("orders", 33);
  rig.bind("orders=34");
  rig.client_bytes(large_set("k"));
  rig.backend("+OK", marks("33"), "+OK");
  EXPECT_THAT(sent_shortly(rig), ElementsAre(watch, mget, "MULTI", "SET k (large)", "SET fencegate:mark:{orders} 34",
                                             "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "-NOPERM no", "-EXECABORT no", "+OK", marks("33"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDOWN the mark could not be checked: NOPERM no"));
  EXPECT_NE(rig.mark_memory.cell("orders")->seen(), fence::token(34));
}

// EXEC looks at the user's rights again, and then runs the rest: the comparisons will find a mark that went back.
TEST(EngineLarge, ASpentTokenThatExecRefusesBehindAValueIsRemembered) {
  engine_rig rig(with_policy([](auto& p) { p.equal = fence::equal_token::reject; }));
  rig.mark_is("orders", 33);
  rig.bind("orders=34");
  rig.client("SELECT 5");
  rig.backend("+OK");
  rig.answers();
  rig.sent();
  rig.client_bytes(large_set("k"));
  rig.backend("+OK", "+OK", marks("33"), "+OK", "+OK");
  EXPECT_THAT(sent_shortly(rig), ElementsAre("SELECT 0", watch, mget, "SELECT 5", "MULTI", "SET k (large)", "SELECT 0",
                                             "SET fencegate:mark:{orders} 34", "SELECT 5", "EXEC", "SELECT 0", watch,
                                             mget, "SELECT 5", "MULTI"));
  rig.backend("+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "*4|+OK|+OK|-NOPERM no");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_EQ(rig.answers(), "+OK|") << "it was written";
  EXPECT_EQ(rig.mark_memory.cell("orders")->seen(), fence::token(34));
}

TEST(EngineLarge, WithoutATokenNothingOfItIsSent) {
  engine_rig rig;
  const std::string set = large_set("k");
  for (std::size_t at = 0; at < set.size(); at += 50'000) rig.client_bytes(std::string_view(set).substr(at, 50'000));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING "));
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a"));  // the connection goes on
}

TEST(EngineLarge, ALargeReadGoesBare) {
  engine_rig rig;
  std::string get;
  wire::append_command_of(get, std::string_view("GET"), std::string(large_bytes, 'x'));
  rig.client_bytes(get);
  EXPECT_EQ(rig.engine.to_backend.size(), get.size());
  rig.backend("$-1");
  EXPECT_EQ(rig.answers(), "$-1|");
}

// MSET with a reserved key behind a large value: seen late, and never completed.
TEST(EngineLarge, AReservedKeyThatComesLateIsNeverCompleted) {
  engine_rig rig;
  rig.bind("orders=34");
  std::string mset;
  wire::append_command_of(mset, std::string_view("MSET"), std::string_view("k"), std::string(large_bytes, 'x'),
                          std::string_view("fencegate:mark:{orders}"), std::string_view("1"));
  rig.client_bytes(mset);
  rig.sent();
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_LT(rig.engine.to_backend.size(), mset.size());
  EXPECT_THAT(rig.engine.to_backend, testing::Not(HasSubstr("EXEC\r\n")));
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
}

// Not fenced, so it goes out while answers of earlier commands are still under way: these come first.
TEST(EngineLarge, WhatIsRefusedLateKeepsEarlierAnswers) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  std::string mset;
  wire::append_command_of(mset, std::string_view("MSET"), std::string_view("k"), std::string(large_bytes, 'x'),
                          std::string_view("fencegate:mark:{orders}"), std::string_view("1"));
  rig.client_bytes(command("GET a") + mset + command("SET b 1"));
  EXPECT_THAT(rig.engine.to_backend, StartsWith(command("GET a")));
  EXPECT_LT(rig.engine.to_backend.size(), command("GET a").size() + mset.size());
  EXPECT_THAT(rig.engine.to_backend, testing::Not(HasSubstr(command("SET b 1"))));
  EXPECT_EQ(rig.answers(), "");
  EXPECT_FALSE(rig.engine.closing());
  rig.backend("$1|v");
  EXPECT_THAT(rig.answers(), StartsWith("$1|v|-FENCEDENY "));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineLarge, WhatIsRefusedLateInATransactionKeepsEarlierAnswers) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  rig.client("MULTI");
  rig.backend("+OK");
  std::string mset;
  wire::append_command_of(mset, std::string_view("MSET"), std::string_view("k"), std::string(large_bytes, 'x'),
                          std::string_view("fencegate:mark:{orders}"), std::string_view("1"));
  rig.client_bytes(command("GET a") + mset + command("EXEC"));
  EXPECT_THAT(rig.engine.to_backend, testing::Not(HasSubstr("EXEC\r\n")));
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.backend("+QUEUED");
  EXPECT_THAT(rig.answers(), StartsWith("+QUEUED|-FENCEDENY "));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineLarge, ABrokenValueKeepsEarlierAnswers) {
  engine_rig rig(with_policy([](auto& p) { p.missing = fence::missing_token::allow; }));
  std::string set = large_set("k");
  set[set.size() - 2] = 'x';  // no CRLF behind the value
  rig.client_bytes(command("GET a") + set.substr(0, 100'000));
  rig.client_bytes(set.substr(100'000));
  EXPECT_FALSE(rig.engine.closing());
  rig.backend("$1|v");
  EXPECT_THAT(rig.answers(), StartsWith("$1|v|-ERR Protocol error"));
  EXPECT_TRUE(rig.engine.closing());
}

// The token becomes stale while the value is on its way: EXEC drops it.
TEST(EngineLarge, NilIsSaidAndNothingIsSentAgain) {
  for (const auto& [mark, code] : std::map<std::string, std::string>{{"35", "-FENCED "}, {"34", "-FENCEDOWN "}}) {
    engine_rig rig;
    rig.bind("orders=34");
    rig.client_bytes(large_set("k"));
    rig.backend("+OK", marks("34"), "+OK");
    rig.sent();
    rig.backend("+QUEUED", "*-1", "+OK", marks(mark), "+OK");
    EXPECT_THAT(sent_shortly(rig), testing::Not(testing::Contains(StartsWith("SET"))));
    EXPECT_THAT(rig.answers(), AllOf(StartsWith(code), HasSubstr("not applied")));
  }
}

TEST(EngineLarge, ACutInTheMiddleLeavesNoExec) {
  engine_rig rig;
  rig.bind("orders=34");
  const std::string set = large_set("k");
  rig.client_bytes(set.substr(0, set.size() - 1));
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.engine.to_backend, testing::Not(HasSubstr("EXEC\r\n")));
  EXPECT_FALSE(rig.engine.at_rest());
  EXPECT_TRUE(rig.engine.streaming());
}

TEST(EngineLarge, ABrokenValueClosesWithoutExec) {
  engine_rig rig;
  rig.bind("orders=34");
  std::string set = large_set("k");
  set[set.size() - 2] = 'x';  // no CRLF behind the value
  rig.client_bytes(set);
  rig.sent();
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.engine.to_backend, testing::Not(HasSubstr("EXEC\r\n")));
}

TEST(EngineLarge, ItWaitsForTheBatchInFrontOfIt) {
  engine_rig rig;
  rig.arm();
  rig.client_bytes(command("SET a 1") + large_set("k"));
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent_shortly(rig), ElementsAre("SET k (large)", "EXEC", watch, mget, "MULTI"));
}

// A script could not hold it, and our EXEC would end the client's watch.
TEST(EngineLarge, BetweenWatchAndMultiItIsRefusedAndTheWatchStays) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("WATCH k");
  rig.backend("+OK");
  rig.answers();
  rig.sent();
  const std::string set = large_set("k");
  for (std::size_t at = 0; at < set.size(); at += 50'000) rig.client_bytes(std::string_view(set).substr(at, 50'000));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEDENY "), HasSubstr("a value this large cannot be fenced; put it "
                                                                        "behind MULTI; not applied|")));
  EXPECT_THAT(rig.host.reports, ElementsAre(HasSubstr("set")));
  rig.client("MULTI");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));  // neither UNWATCH nor DISCARD
  rig.backend("+OK", marks("34"), "+OK");
  rig.client_bytes(set + command("EXEC"));  // where it was told to put it
  EXPECT_THAT(sent_shortly(rig), ElementsAre("SET k (large)", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|*1|+OK|");
}

// ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────

settings::redis_gate fenced_reads(fence::enforcement mode = fence::enforcement::enforce) {
  return with_policy([&](auto& p) {
    p.mode = mode;
    p.read = fence::reads::fence;
  });
}

std::string large_of(std::string_view words, const std::string& last = std::string(large_bytes, 'x')) {
  std::string out = command(std::string(words) + " ''");
  out.resize(out.size() - std::string_view("$0\r\n\r\n").size());
  return out + "$" + std::to_string(last.size()) + "\r\n" + last + "\r\n";
}

TEST(EngineLarge, AReadThatNeedsAProofIsRefused) {
  engine_rig rig(fenced_reads());
  rig.bind("orders=34");
  rig.client_bytes(large_of("BITCOUNT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEDENY "), HasSubstr("put it behind MULTI")));
  EXPECT_THAT(rig.host.reports, ElementsAre("refused bitcount"));
  EXPECT_FALSE(rig.engine.closing());
  rig.client_bytes(large_of("PING"));  // reads nothing
  EXPECT_FALSE(rig.engine.to_backend.empty());
}

TEST(EngineLarge, AStaleReaderIsToldSo) {
  engine_rig rig(fenced_reads());
  rig.bind("orders=34");
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  rig.client_bytes(large_of("MGET k"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCED "));
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mget"));
}

TEST(EngineLarge, AReadWhoseKeysComeLateIsNeverCompleted) {
  auto settings = fenced_reads();
  settings.unmatched = fence::unmatched::pass;
  settings.resources.push_back(fence::key_rule::compile("acct:*", "orders", settings.policy).value());
  engine_rig rig(settings);
  rig.bind("orders=34");
  std::string free, bound;
  for (int i = 0; i < 30'000; ++i) free += "$6\r\nfree:k\r\n";
  bound = "*30002\r\n$4\r\nMGET\r\n" + free + "$6\r\nacct:1\r\n";
  free = "*30002\r\n$4\r\nMGET\r\n" + free + "$6\r\nfree:1\r\n";
  rig.client_bytes(free);
  EXPECT_EQ(rig.sent_bytes(), free);
  rig.backend("*0");
  EXPECT_EQ(rig.answers(), "*0|");
  rig.client_bytes(bound);
  EXPECT_LT(rig.engine.to_backend.size(), bound.size());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
  EXPECT_TRUE(rig.engine.closing());
}

// A module's read: its keys are asked of the server.
std::shared_ptr<const backend::command_table> commands_of_a_module() {
  const auto raw = reply("*1|*6|$8|mod.read|:-2|*2|+readonly|+movablekeys|:0|:0|:0");
  return backend::command_table::build((*wire::parse_value(raw))->first, {}).value();
}

TEST(EngineLarge, AReadWhoseKeysOnlyTheServerKnowsIsNeverCompleted) {
  for (const bool inside : {false, true}) {
    auto settings = fenced_reads();
    settings.resources.push_back(fence::key_rule::compile("acct:*", "orders", settings.policy).value());
    engine_rig rig(settings);
    rig.host.snapshot_now.commands = commands_of_a_module();
    rig.bind("orders=34");
    if (inside) {
      rig.client("MULTI");
      rig.backend("+OK", marks("34"), "+OK");
      EXPECT_EQ(rig.answers(), "+OK|");
    }
    rig.sent();
    const auto read = large_of("MOD.READ acct:1");
    rig.client_bytes(read);
    EXPECT_LT(rig.engine.to_backend.size(), read.size());
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
    EXPECT_TRUE(rig.engine.closing());
  }
}

TEST(EngineLarge, AReadIsFencedByTheClientsOwnTransaction) {
  engine_rig rig(fenced_reads());
  rig.bind("orders=34");
  rig.client("MULTI");
  rig.backend("+OK", marks("34"), "+OK");
  rig.client_bytes(large_of("MGET k") + command("EXEC"));
  rig.sent();
  rig.backend("+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|-FENCED "));
}

TEST(EngineLarge, AMonitoredReadGoesBare) {
  engine_rig rig(fenced_reads(fence::enforcement::monitor));
  rig.bind("orders=34");
  rig.mark_memory.cell("orders")->saw(fence::token(35));
  const auto mget = large_of("MGET k");
  rig.client_bytes(mget);
  EXPECT_EQ(rig.engine.to_backend, mget);
  EXPECT_THAT(rig.host.reports, ElementsAre("stale mget (monitor)"));
}

TEST(EngineLarge, WhatIsRefusedIsRefusedLikeASmallOne) {
  for (const auto mode : {fence::enforcement::enforce, fence::enforcement::monitor}) {
    engine_rig rig(with_policy([&](auto& p) { p.mode = mode; }));
    rig.client("FUNCTION RESTORE x");
    const auto small = rig.answers();
    EXPECT_THAT(small, StartsWith("-FENCEDENY FUNCTION RESTORE could damage marks"));
    rig.client_bytes(large_of("FUNCTION RESTORE"));
    EXPECT_EQ(rig.answers(), small);
    rig.client_bytes(large_of("MIGRATE host 1 '' 0 10 KEYS k"));
    EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY MIGRATE "));
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.host.reports,
                ElementsAre("refused function|restore", "refused function|restore", "refused migrate"));
  }
}

TEST(EngineLarge, WhatIsRefusedSpoilsATransactionLikeASmallOne) {
  engine_rig rig;
  rig.client("MULTI");
  rig.backend("+OK");
  rig.answers();
  rig.sent();
  rig.client("FUNCTION RESTORE x");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  const auto small = rig.answers();
  EXPECT_THAT(small, StartsWith("-FENCEDENY FUNCTION RESTORE could damage marks"));
  rig.client_bytes(large_of("FUNCTION RESTORE"));
  EXPECT_EQ(rig.answers(), small);
  EXPECT_THAT(rig.host.reports, ElementsAre("refused function|restore", "refused function|restore"));
}

TEST(EngineLarge, ACallSaysWhatToDoInstead) {
  engine_rig rig;
  rig.client_bytes(large_of("FENCE CALL orders 34 SET k"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEDENY "), HasSubstr("FENCE SET")));
  EXPECT_THAT(rig.host.reports, ElementsAre("refused fence|call"));
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineLarge, WhatIsDroppedIsNamed) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client_bytes(large_of("APPEND k"));
  rig.backend("+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.host.reports, ElementsAre("stale append"));
  rig.client_bytes(large_of("MOD.WRITE k"));  // no command of the table
  EXPECT_THAT(rig.host.reports, ElementsAre("stale append", "stale MOD.WRITE"));
}

TEST(EngineLarge, InResp2ASubscribedClientIsToldAsWithASmallOne) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SUBSCRIBE a");
  rig.sent();
  rig.client_bytes(large_of("SET k"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.answers(), "");
  rig.backend_bytes("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
  EXPECT_THAT(rig.answers(), HasSubstr(":1|-ERR Can't execute 'set'"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.host.reports, IsEmpty());
}

TEST(EngineLarge, AScriptBehindClientCachingIsRefused) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT CACHING YES");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "CLIENT CACHING YES"));
  rig.backend("+OK", "+OK");
  rig.client_bytes(large_of("EVAL script 1 k"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-FENCEDENY CLIENT CACHING does not reach this command"));
  EXPECT_FALSE(rig.engine.closing());
}

// ── blocking writes ─────────────────────────────────────────────────────────────────────────────────────────────────

struct polling : engine_rig {
  explicit polling(const std::string& line) {
    arm();
    client(line);
    EXPECT_THAT(sent(), ElementsAre(line, "EXEC", watch, mget, "MULTI"));
  }
  void found_nothing() { backend("+QUEUED", "*1|*-1", "+OK", marks("34"), "+OK"); }
};

TEST(EngineLarge, ABlockingWriteIsTriedAgainBehindItsCheckEachTime) {
  polling rig("BLPOP k 0");
  for (int i = 0; i < 20; ++i) {
    rig.found_nothing();
    ASSERT_THAT(rig.sent(), IsEmpty());
    ASSERT_EQ(rig.answers(), "");
    rig.fire_timer();
    ASSERT_THAT(rig.sent(), ElementsAre("BLPOP k 0", "EXEC", watch, mget, "MULTI"));
  }
  rig.backend("+QUEUED", "*1|*2|$1|k|$1|v", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "*2|$1|k|$1|v|");
  EXPECT_EQ(rig.host.timer, std::nullopt);
}

TEST(EngineLarge, ItPopsNothingOnceTheMarkHasMoved) {
  polling rig("BLPOP k 0");
  rig.backend("+QUEUED", "*1|*-1", "+OK", marks("35"), "+OK");
  rig.backend("+OK");
  if (rig.host.timer) rig.fire_timer();
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("BLPOP k 0")));
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
}

TEST(EngineLarge, ItsTimeoutIsKept) {
  polling rig("BLPOP k 0.1");
  for (const bool again : {false, true}) {
    if (again) rig.client("BLPOP k 0.1");
    const auto began = rig.host.clock;
    while (rig.host.clock - began < std::chrono::seconds(10)) {
      rig.found_nothing();
      if (!rig.host.timer) break;
      EXPECT_EQ(rig.answers(), "");
      rig.fire_timer();
      rig.sent();
    }
    EXPECT_EQ(rig.answers(), "*-1|");
    EXPECT_GE(rig.host.clock - began, std::chrono::milliseconds(100)) << again;
    EXPECT_LT(rig.host.clock - began, std::chrono::milliseconds(160)) << again;
  }
}

// What stands in front of it must not be done again with each try.
TEST(EngineLarge, ABlockingWriteIsABatchOfItsOwn) {
  engine_rig rig;
  rig.arm();
  rig.client("INCR a", "BLPOP k 0", "INCR b");
  EXPECT_THAT(rig.sent(), ElementsAre("INCR a", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  for (int tries = 0; tries < 3; ++tries) {
    EXPECT_THAT(rig.sent(), ElementsAre("BLPOP k 0", "EXEC", watch, mget, "MULTI"));
    rig.backend("+QUEUED", "*1|*-1", "+OK", marks("34"), "+OK");
    rig.fire_timer();
  }
  EXPECT_EQ(rig.answers(), ":1|");
}

TEST(EngineLarge, WhatComesBehindABlockingWriteWaits) {
  polling rig("BLPOP k 0");
  rig.client("SET a 1");
  rig.found_nothing();
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.fire_timer();
  EXPECT_THAT(rig.sent(), ElementsAre("BLPOP k 0", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|*2|$1|k|$1|v", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineLarge, AnUnfencedBlockingReadGoesBare) {
  engine_rig rig;
  rig.arm();
  rig.client("XREAD BLOCK 0 STREAMS s $");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "XREAD BLOCK 0 STREAMS s $"));
  EXPECT_TRUE(rig.engine.may_block_in_server());
  rig.client("PING");
  EXPECT_TRUE(rig.engine.may_block_in_server());
  rig.backend("+OK", "*-1");
  EXPECT_FALSE(rig.engine.may_block_in_server());
}

}  // namespace
}  // namespace fencegate::test
