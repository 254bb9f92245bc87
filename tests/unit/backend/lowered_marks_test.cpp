// Marks that an operator has lowered: the text that says so, and keepers that follow.
#include "backend/lowered_marks.hpp"

#include "marks_rig.hpp"

#include <gmock/gmock.h>

#include <utility>

namespace fencegate::test {
namespace {

using backend::is_behind_lowerings;
using backend::lowerings_in;
using backend::read_lowerings;
using testing::ElementsAre;

constexpr std::int64_t poison = 9223372036854775807;

TEST(LoweredMarks, AnEpochCountsThem) {
  EXPECT_EQ(lowerings_in("empty-1f"), 0u);
  EXPECT_EQ(lowerings_in("empty-1f~7"), 7u);
  for (const auto* text : {"e~", "e~07", "e~x", "e~7 ", "~", ""}) EXPECT_EQ(lowerings_in(text), 0u) << text;
}

TEST(LoweredMarks, WhichEpochLiesBehindWhich) {
  EXPECT_TRUE(is_behind_lowerings("e~3", "e"));
  EXPECT_TRUE(is_behind_lowerings("e~10", "e~9"));
  for (const auto& [later, known] : {std::pair("e~9", "e~10"),
                                     {"e~9", "e~9"},
                                     {"e", "e~9"},
                                     {"f~9", "e"},
                                     {"e~9", ""},
                                     {"", "e"},
                                     {"e~x", "e"},
                                     {"e~9~10", "e~8"},
                                     {"f", "e"}})
    EXPECT_FALSE(is_behind_lowerings(later, known)) << later << " " << known;
}

TEST(LoweredMarks, OnlyThoseBehindTheKnownAreNews) {
  const std::string text = "4\te\n9\torders\t99\t41\troot on a\tbad token\n7\tstock\t8\t2\tme\tx\n";
  auto found = read_lowerings(text, "e~7");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1u);
  const auto& one = found->front();
  EXPECT_EQ(one.number, 9u);
  EXPECT_EQ(one.resource, "orders");
  EXPECT_EQ(std::pair(one.from, one.to), std::pair(fence::token(99), fence::token(41)));
  EXPECT_EQ(one.by, "root on a");
  EXPECT_EQ(one.why, "bad token");
  EXPECT_EQ(read_lowerings(text, "e~4")->size(), 2u);
  EXPECT_FALSE(read_lowerings(text, "f~7"));  // it is of another epoch
  EXPECT_FALSE(read_lowerings(text, "e~3"));  // one is forgotten that would be news
}

TEST(LoweredMarks, WhatIsNoSuchTextIsAnError) {
  for (const std::string text : {"", "x\n", "0\te\n1\n", "0\te\n1\to!\t9\t8\ta\tb\n", "0\te\n1\torders\t9\t-8\ta\tb\n",
                                 "0\te\nx\torders\t9\t8\ta\tb\n", "0\te\n\n", "0\n"})
    EXPECT_FALSE(read_lowerings(text, "e")) << text;
}

// ── a cell

TEST(LoweredMarks, ALoweringCountsMoreThanAMark) {
  backend::mark_cell cell("orders");
  cell.saw(fence::token(poison));
  EXPECT_EQ(cell.rose_to(fence::token(41), 3), poison);
  EXPECT_EQ(cell.seen(), fence::token(41));
  EXPECT_EQ(cell.rose_to(fence::token(poison), 2), std::nullopt);  // comes late
  EXPECT_EQ(cell.rose_to(fence::token(40), 3), std::nullopt);
  EXPECT_EQ(cell.rose_to(fence::token(42), 3), 41);
  EXPECT_EQ(cell.seen(), fence::token(42));
  EXPECT_EQ(cell.lowering(), 3u);
}

TEST(LoweredMarks, AnAnswerFromBeforeSaysNothing) {
  backend::mark_memory memory;
  const auto cell = memory.cell("orders");
  const auto before = memory.now(0), behind = memory.now(1);
  memory.saw(*cell, fence::token(41), 1);
  memory.saw_since(before, cell, fence::token(poison));
  EXPECT_EQ(cell->seen(), fence::token(41));
  memory.saw_since(behind, cell, fence::token(50));
  EXPECT_EQ(cell->seen(), fence::token(50));
}

// ── keepers

class Lowered : public MarksTest {
 protected:
  // As lower_mark does.
  void lower(std::int64_t to, const std::string& resource = "orders") {
    auto& epoch = server.keys["fencegate:epoch"];
    const auto base = epoch.substr(0, epoch.find('~'));
    auto& text = server.keys["fencegate:lowered"];
    if (text.find("\t" + base + "\n") == std::string::npos)
      text = std::to_string(backend::lowerings_in(epoch)) + "\t" + base + "\n";
    const auto number = std::to_string(++number_);
    text.insert(text.find('\n') + 1,
                number + "\t" + resource + "\t" + server.mark(resource) + "\t" + std::to_string(to) + "\tme\twhy\n");
    server.keys[mark_key(resource)] = std::to_string(to);
    epoch = base + "~" + number;
  }
  std::optional<fence::token> seen(const keeper_process& by) { return by.state.marks.seen("orders"); }

  int number_ = 0;
};

TEST_F(Lowered, ItIsFollowedAndNothingIsPutBack) {
  auto& gate = served(process, "orders", poison);
  lower(41);
  gate.look();
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(gate.known(), server.epoch());
  EXPECT_EQ(seen(process), fence::token(41));
  pass(seconds(10), {&gate});
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_EQ(process.stats.regressions_total.value(), 0u);
  EXPECT_EQ(gate.raise("orders", 42).what, kind::held);
  EXPECT_EQ(gate.raise("orders", 41).what, kind::stale);
}

TEST_F(Lowered, WhatRoseBehindItIsPutBack) {
  auto& gate = served(process, "orders", poison);
  lower(41);
  gate.look();
  gate.raise("orders", 50);
  server.keys[mark_key("orders")] = "41";
  pass(seconds(10), {&gate});
  EXPECT_EQ(server.mark("orders"), "50");
  lose_all();
  must_be_there = {"orders", "50"};
  time_until([&] { return !gate.ready(); }, {&gate});
  time_until([&] { return gate.ready(); }, {&gate});
  EXPECT_EQ(server.mark("orders"), "50");
}

// Its client may have gone long ago: who still wants it asks again.
TEST_F(Lowered, ARaiseThatWasSentBeforeItRaisesNothingBehindIt) {
  auto& gate = served(process, "orders", 60);
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("orders", 70, outcome);
  lower(41);  // before Redis comes to it
  gate.answer();
  EXPECT_EQ(outcome->what, kind::unavailable);
  EXPECT_EQ(gate.known(), server.epoch());
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_EQ(seen(process), fence::token(41));
}

TEST_F(Lowered, ARaiseThatWasSentBeforeThatOfAnotherGoesOnBehindIt) {
  auto& gate = served(process, "orders", 60);
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("invoices", 70, outcome);
  lower(41);
  gate.answer();
  EXPECT_EQ(outcome->what, kind::held);
  EXPECT_EQ(server.mark("invoices"), "70");
}

// A mark that went back is put back as it was seen, and not behind a lowering.
TEST_F(Lowered, WhatIsAboutToBePutBackStaysBackBehindIt) {
  auto& gate = served(process, "orders", 60);
  server.keys[mark_key("orders")] = "50";
  std::optional<backend::mark_reading> reading;
  gate.keeper.read(process.state.marks.cell("orders"), [&](const backend::mark_reading& found) { reading = found; });
  gate.answer_one();
  lower(41);
  gate.answer();
  EXPECT_NE(reading->detail, "");
  EXPECT_EQ(server.mark("orders"), "41");
}

// ── a server that goes back and forth

TEST_F(Lowered, AServerThatWasPutBackToBeforeItGetsAnotherEpoch) {
  for (const std::string first : {"empty-1", "first-1"}) {
    SCOPED_TRACE(first);
    server.keys = {{"fencegate:epoch", first}, {"k", "v"}};
    keeper_process one, other;
    auto& gate = served(one, "orders", 60);
    const auto before = server.keys;
    lower(41);
    const auto behind = server.keys;
    gate.look();
    gate.raise("orders", 50);
    server.keys = before;
    gate.look();
    EXPECT_TRUE(gate.ready());
    EXPECT_NE(server.epoch(), first);
    EXPECT_FALSE(server.epoch().starts_with(first + "~"));
    EXPECT_EQ(gate.known(), server.epoch());
    EXPECT_EQ(server.mark("orders"), "60");
    auto& late = connection_of(other);
    late.answer();
    EXPECT_EQ(late.raise("orders", 170).what, kind::held);
    gate.look();
    // Forward again, that is no lowering.
    server.keys = behind;
    late.look();
    gate.look();
    EXPECT_TRUE(first == "empty-1" ? late.ready() && server.mark("orders") == "170" : !late.ready());
  }
}

// It was put back, and an operator lowers the mark again, before the new epoch is written.
TEST_F(Lowered, OneInFrontOfTheNewEpochIsFollowed) {
  auto& gate = served(process, "orders", poison);
  const auto before = server.keys;
  lower(41);
  gate.look();
  server.keys = before;
  bool lowered = false;
  server.spoil = [&](const words& command) -> std::optional<std::string> {
    if (command[0] == "EVAL" && command[1] == backend::renew_epoch && !std::exchange(lowered, true)) lower(45);
    return std::nullopt;
  };
  pass(seconds(10), {&gate});
  EXPECT_TRUE(lowered);
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(server.mark("orders"), "45");
  EXPECT_EQ(seen(process), fence::token(45));
  EXPECT_EQ(gate.known(), server.epoch());
}

TEST_F(Lowered, AnOlderListSaysNothingUnderAnotherEpoch) {
  auto& gate = served(process, "orders", poison);
  lower(41);
  gate.look();
  EXPECT_EQ(gate.raise("orders", 60).what, kind::held);
  server.keys["fencegate:epoch"] = "of-an-operator";
  pass(seconds(5), {&gate});
  ASSERT_TRUE(gate.ready());
  server.keys[mark_key("stock")] = "9";
  lower(3, "stock");
  gate.look();
  EXPECT_EQ(gate.known(), server.epoch());
  EXPECT_EQ(seen(process), fence::token(60));
  EXPECT_EQ(gate.raise("orders", 42).what, kind::stale);
}

// A healing that has succeeded is heard of when another thread has followed a lowering since.
TEST_F(Lowered, ALateHealingTakesNoEpochBack) {
  auto& first = served(process, "orders", poison);
  auto& second = connection_of(process);
  second.answer();
  server.keys["fencegate:epoch"] = "f";
  first.keeper.recheck([] {});
  first.answer(2);  // INFO, the epoch: it begins to heal
  first.run_all();  // put back, and not heard of yet
  second.look();
  ASSERT_EQ(second.known(), "f");
  lower(41);
  second.look();
  EXPECT_EQ(second.raise("orders", 60).what, kind::held);
  first.answer();
  EXPECT_EQ(first.known(), server.epoch());
  EXPECT_EQ(seen(process), fence::token(60));
  EXPECT_EQ(second.raise("orders", 42).what, kind::stale);
}

TEST_F(Lowered, AnAnswerThatComesLateIsOfBefore) {
  auto& gate = served(process, "orders", 60);
  auto& other = connection_of(process);
  other.answer();
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("orders", poison, outcome);
  gate.run_all();  // raised, and not heard of yet
  lower(41);
  other.look();
  EXPECT_EQ(seen(process), fence::token(41));
  gate.answer();
  EXPECT_EQ(seen(process), fence::token(41));
  pass(seconds(10), {&gate, &other});
  EXPECT_EQ(server.mark("orders"), "41");
}

TEST_F(Lowered, OfTwoThreadsOneFollowsOnce) {
  auto& first = served(process, "orders", poison);
  auto& second = connection_of(process);
  second.answer();
  lower(41);
  second.keeper.recheck([] {});
  second.answer(2);  // INFO, the epoch
  second.run_all();  // what was lowered: answered, and not heard of yet
  first.look();
  EXPECT_EQ(first.raise("orders", 50).what, kind::held);
  second.answer();
  EXPECT_EQ(seen(process), fence::token(50));
  EXPECT_TRUE(second.keeper.proves());
}

TEST_F(Lowered, AProcessThatWasAwayForSeveralFollowsThemAtOnce) {
  auto& gate = served(process, "orders", poison);
  keeper_process other;
  auto& away = served(other, "stock", 9);
  other.saw("orders", poison);
  lower(41);
  gate.look();
  gate.raise("orders", 80);
  lower(45);
  lower(3, "stock");
  gate.look();
  gate.raise("orders", 46);
  away.look();
  EXPECT_EQ(seen(other), fence::token(45));
  EXPECT_EQ(other.state.marks.seen("stock"), fence::token(3));
  pass(seconds(10), {&gate, &away});
  EXPECT_EQ(server.mark("orders"), "46");
  EXPECT_EQ(server.mark("stock"), "3");
}

TEST_F(Lowered, OneThatStartsBehindItTakesItAsItIs) {
  auto& gate = served(process, "orders", poison);
  lower(41);
  keeper_process fresh;
  auto& late = connection_of(fresh);
  late.answer();
  EXPECT_EQ(late.known(), server.epoch());
  EXPECT_EQ(late.raise("orders", 42).what, kind::held);
  pass(seconds(5), {&gate, &late});
  EXPECT_EQ(server.mark("orders"), "42");
}

TEST_F(Lowered, WhereNobodyKnowsWhatWasLoweredMarksArePutBack) {
  for (const bool gone : {true, false}) {
    keeper_process one;
    auto& gate = served(one, "orders", 60 + (gone ? 0 : 1));
    lower(41);
    if (gone)
      server.keys.erase("fencegate:lowered");
    else
      server.keys["fencegate:lowered"] = "99\t" + server.epoch().substr(0, server.epoch().find('~')) + "\n";
    gate.look();
    EXPECT_TRUE(gate.ready());
    EXPECT_EQ(server.mark("orders"), gone ? "60" : "61");
  }
}

TEST_F(Lowered, AnUnreadableAnswerCloses) {
  auto& gate = served(process, "orders", poison);
  lower(41);
  server.spoil = [](const words& command) -> std::optional<std::string> {
    if (command.back() == "fencegate:lowered") return "-NOPERM no\r\n";
    return std::nullopt;
  };
  gate.look();
  EXPECT_FALSE(gate.ready());
  server.spoil = nullptr;
  pass(seconds(3), {&gate});
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(seen(process), fence::token(41));
}

}  // namespace
}  // namespace fencegate::test
