// A server that lost its marks: who puts them back, who waits for whom, and when it is opened again.
#include "marks_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto quiet_least = backend::marks_keeper::quiet_least;
constexpr auto healing_wait = backend::marks_keeper::healing_wait;

class MarksHealing : public MarksTest {
 protected:
  [[nodiscard]] static bool waits_for_others(const keeper_rig& rig) {
    return rig.keeper.problem().find("waiting until every fencegate") != std::string::npos;
  }
  void lose_all_and_put_back(keeper_rig& rig) {
    lose_all();
    rig.look();
    ASSERT_TRUE(waits_for_others(rig));
  }
};

TEST_F(MarksHealing, ARestartThatLostMarksOpensBehindAllOfThem) {
  auto& gate = served(process, "orders", 34);
  const auto before = gate.known();
  lose_all();
  server.run_id = "r2";
  must_be_there = {"orders", "34"};
  gate.lose();
  gate.connect();
  gate.answer();
  EXPECT_FALSE(gate.ready());
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_EQ(server.epoch(), "") << "others may know more";
  const auto waited = time_until([&] { return gate.ready(); }, {&gate});
  EXPECT_GE(waited, quiet_least - seconds(1));
  EXPECT_THAT(server.epoch(), StartsWith("empty-"));
  EXPECT_NE(server.epoch(), before);
  EXPECT_EQ(server.keys.count("fencegate:healing") + server.keys.count("fencegate:healing:busy"), 0u);
  EXPECT_EQ(process.stats.regressions_total.value(), 2u) << "the epoch, and the mark";
}

TEST_F(MarksHealing, ALossIsNoticedWhileTheConnectionStays) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  must_be_there = {"orders", "34"};
  pass(seconds(3), {&gate});
  EXPECT_FALSE(gate.ready());
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, WhereDataOutlivedTheMarksAnOperatorDecides) {
  auto& gate = served(process, "orders", 34);
  server.keys = {{"orders:1", "v"}};
  pass(seconds(60), {&gate});
  EXPECT_FALSE(gate.ready());
  EXPECT_THAT(gate.keeper.problem(), HasSubstr("SET fencegate:epoch"));
  server.keys["fencegate:epoch"] = "by-hand";
  pass(tick, {&gate});
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_EQ(gate.known(), "by-hand");
}

TEST_F(MarksHealing, AnEpochWrittenBesideDataOpensNobodyWhoKnewAnother) {
  auto& gate = served(process, "orders", 34);
  server.keys = {{"orders:1", "v"}};
  keeper_process other;
  auto& started = connection_of(other);
  started.answer();
  EXPECT_TRUE(started.ready());
  pass(seconds(10), {&gate, &started});
  EXPECT_FALSE(gate.ready());
}

TEST_F(MarksHealing, AnOperatorsEpochEndsTheHealing) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  pass(seconds(3), {&gate});
  ASSERT_TRUE(waits_for_others(gate));
  server.keys["fencegate:epoch"] = "by-hand";
  pass(tick, {&gate});
  EXPECT_EQ(server.keys.count("fencegate:healing") + server.keys.count("fencegate:healing:busy"), 0u);
  EXPECT_TRUE(gate.ready());
}

TEST_F(MarksHealing, WhatOthersHaveOpenedGetsTheRestBeforeItIsTakenOver) {
  auto& gate = served(process, "orders", 34);
  server.keys = {{"fencegate:epoch", "empty-of-others"}};
  gate.look(2);  // INFO, the epoch
  EXPECT_FALSE(gate.ready());
  EXPECT_THAT(gate.asks(), Contains("EVAL"));
  gate.answer();
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(gate.known(), "empty-of-others");
  EXPECT_EQ(server.mark("orders"), "34");
}

// ── several processes

TEST_F(MarksHealing, WhoIsAtWorkIsWaitedForAndWhoDiesIsNot) {
  for (const bool dies : {false, true}) {
    lose_all();
    keeper_process one, other;
    auto& quick = served(one, "orders", 33);
    auto& slow = served(other, "orders", 34);
    lose_all();
    slow.look(3);  // INFO, the epoch, and that it is at work: nothing is put back yet
    for (milliseconds gone{0}; gone < seconds(30); gone += tick) {
      pass(tick, {&quick});
      slow.keeper.on_tick();  // says that it is at work
      slow.run_all();
      ASSERT_EQ(server.epoch(), "");
    }
    EXPECT_EQ(server.mark("orders"), "33");
    EXPECT_TRUE(waits_for_others(quick));
    if (dies)
      slow.lose();
    else
      slow.answer();
    const auto waited = time_until([&] { return quick.ready(); }, {&quick});
    EXPECT_GE(waited, quiet_least - seconds(1));
    EXPECT_LE(waited, seconds(10)) << "nobody is waited for for ever";
    EXPECT_EQ(server.mark("orders"), dies ? "33" : "34");
  }
}

TEST_F(MarksHealing, WhoStartsMeanwhileWaitsAndThenTakesOver) {
  keeper_process later;
  auto& gate = served(process, "orders", 34);
  lose_all_and_put_back(gate);
  auto& started = connection_of(later);
  started.answer();
  EXPECT_THAT(started.keeper.problem(), HasSubstr("another fencegate puts them back"));
  gate.lose();  // for good
  const auto waited = time_until([&] { return started.ready(); }, {&started});
  EXPECT_GE(waited, healing_wait);
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_THAT(server.epoch(), StartsWith("empty-")) << "no other gate may stay closed for it";
}

TEST_F(MarksHealing, WhoStartsWaitsForLongerWhileAnotherIsAtWork) {
  keeper_process later;
  auto& slow = served(process, "orders", 34);
  lose_all();
  slow.look(3);
  auto& started = connection_of(later);
  must_be_there = {"orders", "34"};
  for (milliseconds gone{0}; gone < seconds(40); gone += tick) {
    slow.keeper.on_tick();
    slow.run_all();
    server.keys.erase(mark_key("orders"));  // of many, one that it has not come to
    pass(tick, {&started});
    ASSERT_FALSE(started.ready());
  }
}

TEST_F(MarksHealing, WhoWasFrozenTakesNoSilenceForGranted) {
  auto& gate = served(process, "orders", 34);
  lose_all_and_put_back(gate);
  for (int i = 0; i < 3; ++i) {
    clock += seconds(60);  // nobody could look meanwhile
    pass(tick, {&gate});
    EXPECT_FALSE(gate.ready());
  }
}

TEST_F(MarksHealing, SilenceIsCountedAnewOnANewConnection) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  gate.look();
  pass(seconds(3), {&gate});
  ASSERT_TRUE(waits_for_others(gate));
  gate.lose();
  gate.connect();
  gate.answer();
  const auto waited = time_until([&] { return gate.ready(); }, {&gate});
  EXPECT_GE(waited, quiet_least - seconds(1));
}

TEST_F(MarksHealing, WhoStartedCountsSilenceAnewOnANewConnection) {
  keeper_process later;
  auto& gate = served(process, "orders", 34);
  lose_all();
  gate.look();
  gate.lose();  // for good
  auto& started = connection_of(later);
  started.answer();
  pass(healing_wait - tick, {&started});
  EXPECT_FALSE(started.ready());
  started.lose();
  started.connect();
  started.answer();
  const auto waited = time_until([&] { return started.ready(); }, {&started});
  EXPECT_GE(waited, quiet_least - seconds(1));
}

TEST_F(MarksHealing, OnANewConnectionAllIsPutBackAgain) {
  auto& gate = served(process, "orders", 34);
  lose_all_and_put_back(gate);
  gate.lose();
  server.keys.erase(mark_key("orders"));
  gate.connect();
  must_be_there = {"orders", "34"};
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, WhoCameToWorkInTheLastMomentIsWaitedFor) {
  keeper_process other;
  auto& quick = served(process, "orders", 33);
  auto& late = served(other, "orders", 34);
  lose_all();
  quick.look();
  const auto writes = [&] { return quick.asks() == std::vector<std::string>{"EVAL"}; };
  for (int i = 0; i < 100 && !writes(); ++i) {
    clock += tick;
    quick.keeper.on_tick();
    while (!quick.asks().empty() && !writes()) quick.answer_one();
  }
  ASSERT_TRUE(writes()) << "it is about to write the epoch";
  late.look(3);
  quick.answer();
  EXPECT_EQ(server.epoch(), "");
  EXPECT_TRUE(waits_for_others(quick)) << "it has looked again";
}

// ── losses in the middle

TEST_F(MarksHealing, AConnectionThatIsLostHalfWayBeginsAnew) {
  auto& gate = served(process, "orders", 34);
  gate.raise("stock", 7);
  lose_all();
  gate.look(2);  // INFO, the epoch
  EXPECT_FALSE(gate.ready());
  EXPECT_FALSE(gate.keeper.proves());
  gate.answer(2);  // that it is at work, a look at one mark
  gate.lose();
  EXPECT_FALSE(gate.ready());
  EXPECT_THAT(gate.keeper.problem(), StartsWith("the backend is down"));
  gate.connect();
  gate.answer();
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_EQ(server.mark("stock"), "7");
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, WhatALostThreadHadTakenAnotherPutsBack) {
  auto& first = served(process, "orders", 34);
  auto& second = connection_of(process);
  second.answer();
  lose_all();
  second.look();
  ASSERT_TRUE(waits_for_others(second));
  // A mark is learned, too late for those that were put back; the first takes it, and is lost.
  process.state.marks.saw_since({}, process.state.marks.cell("late"), fence::token(9));
  first.look(3);
  ASSERT_FALSE(process.state.marks.any_late());
  first.lose();
  must_be_there = {"late", "9"};
  time_until([&] { return second.ready(); }, {&second});
  EXPECT_EQ(server.mark("late"), "9");
}

TEST_F(MarksHealing, ASecondLossTakesAllThatWasPutBackForNothing) {
  auto& gate = served(process, "orders", 34);
  lose_all_and_put_back(gate);
  pass(seconds(3), {&gate});
  lose_all();
  must_be_there = {"orders", "34"};
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, ASecondLossBetweenTwoMarks) {
  auto& gate = served(process, "orders", 34);
  gate.raise("stock", 7);
  lose_all();
  gate.look(6);  // one of the two marks is put back
  ASSERT_EQ(server.mark("orders").empty() + server.mark("stock").empty(), 1);
  lose_all();
  time_until([&] { return gate.ready(); }, {&gate});
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_EQ(server.mark("stock"), "7");
}

TEST_F(MarksHealing, AnotherServerHasNothingOfWhatWasPutBack) {
  auto& gate = served(process, "orders", 34);
  lose_all_and_put_back(gate);
  server.run_id = "r2";  // on it is the same text, by replication, but not the mark
  server.keys.erase(mark_key("orders"));
  must_be_there = {"orders", "34"};
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, AMarkThatCannotBePutBackKeepsAllClosed) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  server.spoil = [](const words& command) {
    return command.size() > 3 && command[3] == mark_key("orders")
               ? std::optional<std::string>("-NOREPLICAS Not enough good replicas to write.\r\n")
               : std::nullopt;
  };
  pass(seconds(30), {&gate});
  EXPECT_FALSE(gate.ready());
  EXPECT_THAT(gate.keeper.problem(), HasSubstr("orders: NOREPLICAS"));
  server.spoil = nullptr;
  must_be_there = {"orders", "34"};
  time_until([&] { return gate.ready(); }, {&gate});
}

TEST_F(MarksHealing, WhoMayNotPutMarksBackSaysSo) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  server.spoil = [](const words& command) {
    return command[0] == "EVAL" ? std::optional<std::string>("-NOPERM no\r\n") : std::nullopt;
  };
  pass(seconds(3), {&gate});
  EXPECT_EQ(gate.keeper.problem(), "marks cannot be put back: NOPERM no");
}

TEST_F(MarksHealing, WhoComesToWorkBehindAnEpochTakesThatOver) {
  auto& gate = served(process, "orders", 34);
  lose_all();
  gate.look(2);  // INFO, the epoch
  server.keys["fencegate:epoch"] = "by-hand";
  gate.answer();
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(server.mark("orders"), "34");
}

}  // namespace
}  // namespace fencegate::test
