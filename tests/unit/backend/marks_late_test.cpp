// Several threads of one process, which share what they know: marks that are learned too late for those that were put back,
// raises under way, and connections that are lost.
#include "marks_rig.hpp"

#include <gmock/gmock.h>

#include <set>

namespace fencegate::test {
namespace {

using testing::Contains;

class MarksLate : public MarksTest {
 protected:
  // Two connections of one process, which know of orders=34, and of as many others.
  void serve(int others = 0) {
    first = &served(process, "orders", 34);
    for (int i = 0; i < others; ++i) first->raise("r" + std::to_string(i), 7);
    second = &connection_of(process);
    second->answer();
  }

  keeper_rig* first = nullptr;
  keeper_rig* second = nullptr;
};

// ── late marks, and raises under way

TEST_F(MarksLate, AMarkThatIsLearnedTooLateIsPutBackBehindTheOthers) {
  auto& gate = served(process, "orders", 34);
  const auto then = process.state.marks.now(0);
  lose_all();
  time_until([&] { return !gate.ready(); }, {&gate});
  time_until([&] { return gate.ready(); }, {&gate});
  process.state.marks.saw_since(then, process.state.marks.cell("late"), fence::token(9));
  pass(seconds(3), {&gate});
  EXPECT_EQ(server.mark("late"), "9");
}

TEST_F(MarksLate, ALateMarkThatCouldNotBePutBackIsNotForgotten) {
  auto& gate = served(process, "orders", 34);
  process.state.marks.came_late(process.state.marks.cell("orders"));
  gate.keeper.recheck([] {});
  while (gate.asks() != std::vector<std::string>{"EVAL"}) gate.answer_one();
  server.keys.erase(mark_key("orders"));
  gate.lose();
  EXPECT_TRUE(process.state.marks.any_late());
}

TEST_F(MarksLate, ARaiseThatIsAnsweredBehindALossIsMadeAgain) {
  auto& gate = served(process, "orders", 34);
  auto& other = connection_of(process);
  other.answer();
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("orders", 35, outcome);
  gate.run_all();  // raised, and not heard of yet
  ASSERT_EQ(server.mark("orders"), "35");
  // All is lost; an operator, or another process, has opened it; the other thread puts back what is known: 34.
  server.keys = {{"fencegate:epoch", "empty-of-others"}};
  other.look();
  ASSERT_TRUE(gate.ready());
  ASSERT_EQ(server.mark("orders"), "34");
  gate.answer();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->what, kind::held);
  EXPECT_EQ(server.mark("orders"), "35");
}

TEST_F(MarksLate, WhereTheEpochMovedARaiseChangesNothingAndTheServerIsLookedAt) {
  auto& gate = served(process, "orders", 34);
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("orders", 35, outcome);
  server.keys = {{"fencegate:epoch", "empty-of-others"}};
  gate.answer(1);
  EXPECT_FALSE(outcome);
  EXPECT_EQ(server.mark("orders"), "");
  EXPECT_THAT(gate.asks(), Contains("INFO"));
  gate.answer();
  EXPECT_EQ(gate.known(), "empty-of-others");
  // It was made again behind that.
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->what, kind::held);
  EXPECT_EQ(server.mark("orders"), "35");
}

TEST_F(MarksLate, AnEpochThatMovesWhileMarksAreComparedProvesNothing) {
  auto& gate = served(process, "orders", 34);
  gate.look(2);  // INFO, the epoch; the comparison is sent
  server.keys = {{"fencegate:epoch", "empty-of-others"}, {mark_key("orders"), "34"}, {mark_key("stock"), "1"}};
  gate.answer(1);
  gate.answer();
  EXPECT_EQ(gate.known(), "empty-of-others");
}

// ── several threads

TEST_F(MarksLate, ARaiseIsMadeAgainWhereABackupWasRestoredMeanwhile) {
  serve();
  auto backup = server.keys;
  std::optional<backend::raise_outcome> outcome;
  first->begin_raise("orders", 35, outcome);
  first->run_all();
  server.keys = {{"fencegate:epoch", "first-another"}};
  second->look();
  server.keys = backup;  // in which nothing is lower than what is known
  pass(tick, {second});
  ASSERT_TRUE(first->ready());
  first->answer();
  EXPECT_EQ(outcome.value().what, kind::held);
  EXPECT_EQ(server.mark("orders"), "35");
}

TEST_F(MarksLate, ARaiseIsMadeAgainWhereAnotherMarkWentBack) {
  serve(1);
  std::optional<backend::raise_outcome> outcome;
  first->begin_raise("orders", 35, outcome);
  first->run_all();
  server.run_id = "r2";
  server.keys[mark_key("orders")] = "34";
  server.keys[mark_key("r0")] = "6";
  second->lose();
  second->connect();
  second->answer();
  ASSERT_EQ(server.mark("r0"), "7");
  first->answer();
  EXPECT_EQ(outcome.value().what, kind::held);
  EXPECT_EQ(server.mark("orders"), "35");
}

TEST_F(MarksLate, WhatIsLearnedBehindAComparisonIsPutBack) {
  enum class way { reads, is_stale, raises };
  for (const auto by : {way::reads, way::is_stale, way::raises})
    for (const bool flushed : {false, true}) {
      if (flushed && by == way::raises) continue;  // then it is raised again
      server = {};
      keeper_process fresh;
      auto& one = served(fresh, "orders", 34);
      auto& two = connection_of(fresh);
      two.answer();
      std::optional<backend::raise_outcome> outcome;
      if (by != way::raises) server.keys[mark_key("orders")] = "36";
      if (by == way::reads)
        one.keeper.read(fresh.state.marks.cell("orders"), [](const auto&) {});
      else
        one.begin_raise("orders", by == way::raises ? 36 : 35, outcome);
      one.run_all();
      server.run_id = "r2";
      server.keys[mark_key("orders")] = "34";
      if (flushed) server.keys = {{"fencegate:epoch", "empty-of-others"}};
      two.look();  // puts back, or compares, what is known
      ASSERT_EQ(server.mark("orders"), "34");
      ASSERT_FALSE(fresh.state.marks.any_late());
      one.answer(1);
      EXPECT_TRUE(fresh.state.marks.any_late()) << static_cast<int>(by) << flushed;
      two.look();
      EXPECT_EQ(server.mark("orders"), "36");
    }
}

TEST_F(MarksLate, AComparisonOfBeforeTheLossDoesNotBringTheOldEpochBack) {
  serve();
  first->look(2);    // INFO, the epoch
  first->run_all();  // the marks are read
  server.keys["fencegate:epoch"] = "by-hand";
  second->look();
  ASSERT_EQ(second->known(), "by-hand");
  first->answer(1);
  EXPECT_EQ(first->known(), "by-hand");
  first->answer();
  EXPECT_EQ(first->known(), "by-hand");
}

TEST_F(MarksLate, WhoIsLateToPutBackDoesNotCloseWhatAnotherThreadHasSettled) {
  serve();
  lose_all();
  first->look(3);  // INFO, the epoch, that it is at work
  server.keys = {{"fencegate:epoch", "by-hand"}};
  second->look();
  ASSERT_TRUE(second->ready());
  first->answer();
  EXPECT_TRUE(first->ready());
  EXPECT_TRUE(first->keeper.proves());
}

TEST_F(MarksLate, AHealingThatFailedLeavesADoubt) {
  serve(1000);
  const auto last = last_of(process);
  auto backup = server.keys;
  backup.erase(mark_key(last));
  server.keys = {{"fencegate:epoch", "empty-of-others"}};
  server.spoil = [](const words& command) {
    return command[0] == "EVAL" ? std::optional<std::string>("-NOREPLICAS no\r\n") : std::nullopt;
  };
  first->look();
  EXPECT_FALSE(first->ready());
  server.spoil = nullptr;
  server.keys = backup;
  pass(tick, {first});
  EXPECT_TRUE(first->ready());
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksLate, OfManyLateMarksNoneIsForgottenWhenTheConnectionIsLost) {
  serve();
  for (int i = 0; i < 1000; ++i) {
    process.saw("r" + std::to_string(i), 7);
    process.state.marks.came_late(process.state.marks.cell("r" + std::to_string(i)));
  }
  first->keeper.recheck([] {});
  while (first->asks()[0] != "EVAL") first->answer_one();
  EXPECT_FALSE(process.state.marks.any_late());
  first->lose();
  const auto late = process.state.marks.take_late();
  std::set<std::string> names;
  for (const auto& cell : late.these) names.emplace(cell->resource);
  EXPECT_EQ(names.size(), 1000u);
}

TEST_F(MarksLate, WhereAllMayBeLateAllArePutBack) {
  serve(1000);
  const auto last = last_of(process);
  server.keys.erase(mark_key(last));
  process.state.marks.all_came_late();
  first->look();
  EXPECT_NE(server.mark(last), "");
}

TEST_F(MarksLate, ARaiseWritesWhatAnotherThreadHasSeenMeanwhile) {
  serve();
  server.keys[mark_key("stock")] = "33";
  std::optional<backend::raise_outcome> outcome;
  first->begin_raise("stock", 34, outcome);
  process.saw("stock", 36);
  first->answer();
  EXPECT_EQ(outcome.value().what, kind::stale);
  EXPECT_EQ(server.mark("stock"), "36");
}

}  // namespace
}  // namespace fencegate::test
