// Is the server fit, and is it the one that was known: the first start, looks, marks that went back under a known epoch.
#include "marks_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

class MarksKeeper : public MarksTest {};

// ── the first start

TEST_F(MarksKeeper, ProvesNothingBeforeTheEpochIsKnown) {
  auto& gate = connection_of(process);
  EXPECT_THAT(gate.asks(), ElementsAre("INFO"));
  gate.answer(1);
  EXPECT_FALSE(gate.keeper.proves());
  EXPECT_FALSE(gate.ready());
  EXPECT_NE(gate.keeper.problem(), "");
  gate.answer();
  EXPECT_TRUE(gate.keeper.proves());
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(gate.keeper.problem(), "");
}

TEST_F(MarksKeeper, AnEmptyServerGetsAnEpoch) {
  auto& gate = connection_of(process);
  gate.answer();
  EXPECT_THAT(server.epoch(), StartsWith("empty-"));
  EXPECT_EQ(gate.known(), server.epoch());
  EXPECT_EQ(process.stats.regressions_total.value(), 0u);
}

TEST_F(MarksKeeper, TheEpochBesideDataSaysSo) {
  server.keys["orders:1"] = "v";
  auto& gate = connection_of(process);
  gate.answer();
  EXPECT_THAT(server.epoch(), StartsWith("first-"));
  EXPECT_TRUE(gate.ready());
}

TEST_F(MarksKeeper, TheEpochThatIsThereIsTakenOver) {
  server.keys = {{"fencegate:epoch", "e1"}, {"orders:1", "v"}};
  auto& gate = connection_of(process);
  gate.answer();
  EXPECT_EQ(server.epoch(), "e1");
  EXPECT_EQ(gate.known(), "e1");
}

TEST_F(MarksKeeper, OfTwoThreadsThatStartOneWritesTheEpoch) {
  auto& first = connection_of(process);
  auto& second = connection_of(process);
  for (auto* one : {&first, &second}) {
    one->answer(1);
    one->run_all();  // both see that there is none
  }
  first.answer();
  second.answer();
  EXPECT_TRUE(second.keeper.proves());
  EXPECT_EQ(process.stats.regressions_total.value(), 0u);
}

TEST_F(MarksKeeper, OfTwoProcessesThatStartOneWritesTheEpoch) {
  keeper_process other;
  auto& first = connection_of(process);
  auto& second = connection_of(other);
  for (auto* one : {&first, &second}) one->answer(2);
  first.answer();
  second.answer();
  EXPECT_EQ(first.known(), server.epoch());
  EXPECT_EQ(second.known(), server.epoch());
}

// ── servers that must not keep marks

TEST_F(MarksKeeper, AServerThatIsUnfitAdmitsNothing) {
  const std::vector<std::pair<std::string, std::function<void()>>> kinds{
      {"evict marks", [this] { server.policy = "allkeys-lru"; }},
      {"Cluster", [this] { server.cluster = true; }},
      {"INFO failed: NOPERM", [this] {
         server.spoil = [](const words& command) {
           return command[0] == "INFO" ? std::optional<std::string>("-NOPERM no\r\n") : std::nullopt;
         };
       }}};
  for (const auto& [said, spoil] : kinds) {
    server = {};
    keeper_process fresh;
    auto& started = connection_of(fresh);
    spoil();
    started.answer();
    EXPECT_FALSE(started.ready()) << said;
    EXPECT_THAT(started.keeper.problem(), testing::HasSubstr(said));
    server = {};
    pass(tick, {&started});
    EXPECT_TRUE(started.ready()) << "fit again: " << said;
    spoil();
    pass(seconds(3), {&started});  // the next look
    EXPECT_FALSE(started.ready()) << said;
    EXPECT_FALSE(started.keeper.proves());
    EXPECT_EQ(started.raise("orders", 34).what, kind::unavailable);
    EXPECT_EQ(server.mark("orders"), "");
  }
}

TEST_F(MarksKeeper, AReplicaIsLeftForAnotherConnection) {
  auto& gate = served(process, "orders", 34);
  server.role = "slave";
  pass(seconds(3), {&gate});
  EXPECT_FALSE(gate.ready());
  EXPECT_EQ(gate.drops.size(), 1u);
  server.role = "master";
  gate.connect();
  gate.answer();
  EXPECT_TRUE(gate.ready());
}

TEST_F(MarksKeeper, WithoutTheCommandTableNothingIsAdmitted) {
  process.state.change([](auto& p) { p.commands = backend::command_table::empty(); });
  auto& gate = connection_of(process);
  gate.answer();
  EXPECT_FALSE(gate.ready());
}

TEST_F(MarksKeeper, AnEpochThatCannotBeReadOrWrittenAdmitsNothing) {
  for (const std::string refused : {"MGET", "EVAL"}) {
    server = {};
    server.spoil = [&](const words& command) {
      return command[0] == refused ? std::optional<std::string>("-NOPERM no\r\n") : std::nullopt;
    };
    keeper_process fresh;
    auto& gate = connection_of(fresh);
    gate.answer();
    EXPECT_FALSE(gate.ready()) << refused;
  }
}

TEST_F(MarksKeeper, AScriptThatRunsLongSaysNothingOfTheServer) {
  auto& gate = served(process, "orders", 34);
  keeper_process other;
  auto& started = connection_of(other);
  server.spoil = [](const words&) { return std::optional<std::string>("-BUSY Redis is busy running a script\r\n"); };
  started.answer();
  pass(seconds(3), {&gate});
  EXPECT_TRUE(gate.ready());
  EXPECT_FALSE(started.ready()) << "it had shown nothing before";
  EXPECT_FALSE(started.keeper.proves());
  server.spoil = nullptr;
  server.policy = "allkeys-lru";
  pass(tick, {&gate});  // the look is made up for at once
  EXPECT_FALSE(gate.ready());
}

// ── looks

TEST_F(MarksKeeper, ARecheckIsAnsweredByALook) {
  auto& gate = served(process, "orders", 34);
  server.policy = "allkeys-lru";
  bool answered = false;
  gate.keeper.recheck([&] { answered = true; });
  EXPECT_FALSE(answered);
  gate.answer();
  EXPECT_TRUE(answered);
  EXPECT_FALSE(gate.ready());
}

TEST_F(MarksKeeper, ARecheckIsAnsweredWhenTheConnectionIsLost) {
  auto& gate = served(process, "orders", 34);
  int answered = 0;
  gate.keeper.recheck([&] { ++answered; });
  gate.lose();
  EXPECT_EQ(answered, 1);
  gate.keeper.recheck([&] { ++answered; });
  EXPECT_EQ(answered, 2);
}

TEST_F(MarksKeeper, ALostConnectionProvesNothing) {
  auto& gate = served(process, "orders", 34);
  gate.lose("end of file");
  EXPECT_FALSE(gate.ready());
  EXPECT_EQ(gate.keeper.problem(), "the backend is down: end of file");
  EXPECT_EQ(gate.raise("orders", 35).what, kind::unavailable);
  gate.connect();
  EXPECT_FALSE(gate.ready());
  gate.answer();
  EXPECT_TRUE(gate.ready());
}

TEST_F(MarksKeeper, AtTheEndNothingIsSaidOfTheServer) {
  auto& gate = served(process, "orders", 34);
  gate.keeper.end("the gate is stopping");
  gate.lose();
  EXPECT_TRUE(gate.ready()) << "others may still use it";
  EXPECT_FALSE(gate.keeper.proves());
}

// ── marks that went back under the known epoch

TEST_F(MarksKeeper, ADeletedMarkIsPutBackAtTheNextLook) {
  auto& gate = served(process, "orders", 34);
  server.keys.erase(mark_key("orders"));
  pass(seconds(3), {&gate});
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_TRUE(gate.ready()) << "others are served meanwhile";
}

TEST_F(MarksKeeper, ALoweredMarkIsPutBackAndAHigherOneStays) {
  auto& gate = served(process, "orders", 34);
  ASSERT_EQ(gate.raise("stock", 7).what, kind::held);
  server.keys[mark_key("orders")] = "33";
  server.keys[mark_key("stock")] = "8";
  pass(seconds(3), {&gate});
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_EQ(server.mark("stock"), "8");
}

TEST_F(MarksKeeper, OfManyMarksSomeAreComparedAtEachLook) {
  auto& gate = served(process, "orders", 34);
  for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
  const auto last = last_of(process);
  server.keys.erase(mark_key(last));
  pass(seconds(15), {&gate});
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksKeeper, WhereNothingIsInDoubtALookAsksForSomeOnly) {
  auto& gate = served(process, "orders", 34);
  for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
  for (int i = 0; i < 1000; i += 2) server.keys[mark_key("r" + std::to_string(i))] = "8";  // by another process
  const auto before = server.commands;
  gate.look();
  EXPECT_EQ(server.commands - before, 3u) << "INFO, the epoch, some marks";
}

TEST_F(MarksKeeper, WhereALookFindsALowerMarkAllAreCompared) {
  auto& gate = served(process, "orders", 34);
  for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
  const std::string first(backend::mark_memory::walk(process.state.marks).next(1)[0]->resource);
  const auto last = last_of(process);
  server.keys.erase(mark_key(first));
  server.keys.erase(mark_key(last));
  gate.look();
  EXPECT_NE(server.mark(first), "");
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksKeeper, WithOneMarkThatWentBackAllAreCompared) {
  auto& gate = served(process, "orders", 34);
  for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
  const auto last = last_of(process);
  server.keys.erase(mark_key(last));
  server.keys.erase(mark_key("orders"));
  EXPECT_EQ(gate.raise("orders", 34).what, kind::held);  // notices that it is gone
  pass(seconds(3), {&gate});
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksKeeper, AServerThatWasStartedAnewOrPromotedHasAllMarksCompared) {
  for (const bool promoted : {false, true}) {
    server = {};
    keeper_process fresh;
    auto& gate = served(fresh, "orders", 34);
    for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
    const auto last = last_of(fresh);
    server.keys.erase(mark_key(last));
    (promoted ? server.history : server.run_id) = "another";
    gate.lose();
    gate.connect();
    gate.answer();
    EXPECT_NE(server.mark(last), "") << promoted;
    EXPECT_TRUE(gate.ready());
  }
}

TEST_F(MarksKeeper, ABackupWithTheKnownEpochHasAllMarksCompared) {
  auto& gate = served(process, "orders", 34);
  for (int i = 0; i < 1000; ++i) gate.raise("r" + std::to_string(i), 7);
  const auto last = last_of(process);
  auto backup = server.keys;
  backup.erase(mark_key(last));
  server.keys = {{"fencegate:epoch", "first-another"}};  // closed: somebody else's
  pass(seconds(3), {&gate});
  EXPECT_FALSE(gate.ready());
  server.keys = backup;
  pass(seconds(1), {&gate});
  EXPECT_TRUE(gate.ready());
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksKeeper, AMarkThatIsNoNumberClosesItsOwnResource) {
  auto& gate = served(process, "orders", 34);
  gate.raise("stock", 7);
  server.keys[mark_key("orders")] = "034";
  server.keys.erase(mark_key("stock"));
  pass(seconds(3), {&gate});
  EXPECT_EQ(server.mark("orders"), "034");
  EXPECT_EQ(server.mark("stock"), "7");
  EXPECT_EQ(gate.raise("orders", 35).what, kind::unavailable);
  EXPECT_EQ(gate.raise("stock", 8).what, kind::held);
}

}  // namespace
}  // namespace fencegate::test
