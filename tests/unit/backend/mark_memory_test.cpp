#include "backend/mark_memory.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

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

TEST(MarkMemory, OneCellPerResource) {
  mark_memory memory;
  const auto cell = memory.cell("orders");
  EXPECT_EQ(memory.cell("orders"), cell);
  EXPECT_NE(memory.cell("Orders"), cell);
  EXPECT_EQ(cell->key, "fencegate:mark:{orders}");
  EXPECT_EQ(memory.all().size(), 2u);
}

TEST(MarkMemory, SomeInTurnAreAll) {
  mark_memory memory;
  std::size_t place = 0;
  EXPECT_TRUE(memory.some(place, 256).empty());
  for (int i = 0; i < 1000; ++i) static_cast<void>(memory.cell("r" + std::to_string(i)));
  std::set<std::string> found;
  for (int looks = 0; looks < 40 && found.size() < 1000; ++looks) {
    const auto some = memory.some(place, 50);
    EXPECT_LT(some.size(), 100u);
    for (const auto& cell : some) found.insert(cell->resource);
  }
  EXPECT_EQ(found.size(), 1000u);
}

// A session's cell must not be replaced by a fresh one that knows less.
TEST(MarkMemory, ForgetsOnlyWhatNobodyIsBoundTo) {
  mark_memory memory;
  const auto bound = memory.cell("bound");
  bound->saw(fence::token(7));
  for (std::size_t i = 0; i < limits::marks_remembered_max + 100; ++i) (void)memory.cell("r" + std::to_string(i));
  EXPECT_LE(memory.all().size(), limits::marks_remembered_max + 1);
  EXPECT_EQ(memory.cell("bound"), bound);
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
