#include "backend/mark_memory.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fencegate::backend {
namespace {

TEST(MarkMemory, KnowsNothingBeforeAMarkWasSeen) {
  mark_memory memory;
  EXPECT_EQ(memory.cell("orders")->seen(), std::nullopt);
}

TEST(MarkMemory, MarksOnlyRise) {
  mark_memory memory;
  const auto cell = memory.cell("orders");
  cell->saw(fence::token(0));
  EXPECT_EQ(cell->seen(), fence::token(0));
  cell->saw(fence::token(35));
  cell->saw(fence::token(34));
  EXPECT_EQ(cell->seen(), fence::token(35));
  cell->saw(fence::token(9223372036854775807));
  EXPECT_EQ(cell->seen(), fence::token(9223372036854775807));
}

TEST(MarkMemory, TellsOfMarksThatRise) {
  metrics::gate gate("cache");
  std::vector<std::string> told;
  gate.on_rise = [&told](std::string_view resource, std::int64_t mark, std::uint64_t /*lowering*/, bool first) {
    told.push_back(std::string(resource) + " " + std::to_string(mark) + (first ? " first" : ""));
  };
  mark_memory memory;
  memory.tell_rises(gate);
  const auto cell = memory.cell("orders");
  for (const std::int64_t mark : {0, 34, 34, 33, 35}) memory.saw_since(memory.now(0), cell, fence::token(mark));
  EXPECT_EQ(told, (std::vector<std::string>{"orders 0 first", "orders 34", "orders 35"}));
}

TEST(MarkMemory, OneCellPerResource) {
  mark_memory memory;
  const auto cell = memory.cell("orders");
  EXPECT_EQ(memory.cell("orders"), cell);
  EXPECT_NE(memory.cell("Orders"), cell);
  EXPECT_EQ(cell->key, "fencegate:mark:{orders}");
  EXPECT_EQ(memory.size(), 2u);
}

std::set<std::string_view> all_of(mark_memory::walk walk) {
  std::set<std::string_view> found;
  for (auto some = walk.next(50); !some.empty(); some = walk.next(50)) {
    EXPECT_LT(some.size(), 100u);
    for (const auto& cell : some) found.insert(cell->resource);
  }
  return found;
}

TEST(MarkMemory, AWalkComesToAllMarksAndBeginsAnew) {
  mark_memory memory;
  mark_memory::walk walk(memory);
  EXPECT_TRUE(walk.next(50).empty());
  std::vector<std::shared_ptr<mark_cell>> held;
  for (int i = 0; i < 5000; ++i) {
    held.push_back(memory.cell("r" + std::to_string(i)));
    if (i % 5 != 0) held.back()->saw(fence::token(7));
  }
  EXPECT_EQ(all_of(walk).size(), 4000u) << "those without a mark are none";
  while (!walk.next(50).empty()) continue;
  EXPECT_EQ(all_of(walk).size(), 4000u);
}

TEST(MarkMemory, AWalkMissesNothingWhileTheMemoryGrows) {
  mark_memory memory;
  for (int i = 0; i < 5000; ++i) memory.cell("r" + std::to_string(i))->saw(fence::token(7));
  mark_memory::walk walk(memory);
  std::set<std::string> found;
  int more = 5000;
  for (auto some = walk.next(50); !some.empty(); some = walk.next(50)) {
    for (const auto& cell : some) found.emplace(cell->resource);
    for (int i = 0; i < 200 && more < 40'000; ++i, ++more)
      memory.cell("r" + std::to_string(more))->saw(fence::token(7));
  }
  for (int i = 0; i < 5000; ++i) EXPECT_TRUE(found.contains("r" + std::to_string(i)));
}

// When Redis loses its marks, what was forgotten is lost.
TEST(MarkMemory, ForgetsNoMarkThatWasSeen) {
  constexpr int count = 120'000;
  mark_memory memory;
  for (int i = 0; i < count; ++i) memory.cell("r" + std::to_string(i))->saw(fence::token(i));
  EXPECT_EQ(memory.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ASSERT_EQ(memory.seen("r" + std::to_string(i)), fence::token(i));
}

// A session's cell must not be replaced by a fresh one that knows less.
TEST(MarkMemory, ForgetsNamesWithoutAMarkThatNobodyHolds) {
  mark_memory memory;
  std::vector<std::shared_ptr<mark_cell>> held;
  for (int i = 0; i < 1000; ++i) held.push_back(memory.cell("held" + std::to_string(i)));
  for (int i = 0; i < 100'000; ++i) static_cast<void>(memory.cell("r" + std::to_string(i)));
  EXPECT_LT(memory.size(), 10'000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(memory.cell("held" + std::to_string(i)), held[static_cast<std::size_t>(i)]);
}

TEST(MarkMemory, WhatIsTooManyIsNotKept) {
  static_assert(limits::marks_remembered_max >= 10'000'000, "what an operator may count on (docs/operations.md)");
  mark_memory memory(2);
  const auto first = memory.cell("a");
  first->saw(fence::token(1));
  memory.cell("b")->saw(fence::token(2));
  EXPECT_FALSE(memory.cell("c")->kept);
  EXPECT_TRUE(memory.cell("b")->kept);
  EXPECT_EQ(memory.cell("a"), first);
  EXPECT_EQ(memory.size(), 2u);
}

TEST(MarkMemory, TheHighestOfManyThreadsStays) {
  mark_memory memory;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 5000; ++i) memory.cell("orders")->saw(fence::token(i * 4 + t));
    });
  threads.clear();
  EXPECT_EQ(memory.cell("orders")->seen(), fence::token(4999 * 4 + 3));
}

}  // namespace
}  // namespace fencegate::backend
