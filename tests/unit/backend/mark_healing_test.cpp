#include "backend/mark_healing.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>

namespace fencegate::backend {
namespace {

std::vector<std::shared_ptr<mark_cell>> cells(std::size_t count) {
  std::vector<std::shared_ptr<mark_cell>> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(std::make_shared<mark_cell>("r" + std::to_string(i)));
  return out;
}

TEST(MarkHealing, NothingToDoIsOverAtOnce) {
  mark_healing healing({}, {});
  EXPECT_TRUE(healing.over());
  EXPECT_EQ(healing.begin_next(), nullptr);
  EXPECT_EQ(healing.problem(), "");
}

TEST(MarkHealing, EachMarkOnceAndNeverTooManyUnderWay) {
  constexpr std::size_t count = 60'000;
  mark_healing healing({}, cells(count));
  std::deque<std::string> under_way;
  std::size_t begun = 0;
  while (!healing.over()) {
    while (const auto cell = healing.begin_next()) {
      EXPECT_EQ(cell->resource, "r" + std::to_string(begun++));
      under_way.emplace_back(cell->resource);
    }
    ASSERT_LE(under_way.size(), limits::marks_healed_at_once_max);
    ASSERT_FALSE(under_way.empty());
    under_way.pop_front();
    healing.one_done({});
  }
  EXPECT_EQ(begun, count);
  EXPECT_EQ(healing.problem(), "");
}

TEST(MarkHealing, BehindTheFirstComesEverythingElse) {
  mark_memory memory;
  for (int i = 0; i < 1000; ++i) memory.cell("m" + std::to_string(i))->saw(fence::token(7));
  mark_healing healing({}, cells(2));
  healing.and_all(mark_memory::walk(memory));
  std::set<std::string> begun;
  while (!healing.over()) {
    while (const auto cell = healing.begin_next()) begun.emplace(cell->resource);
    healing.one_done({});
  }
  EXPECT_EQ(begun.size(), 1002u);
}

TEST(MarkHealing, WhatHasNotBegunIsGivenBack) {
  mark_memory memory;
  memory.cell("orders")->saw(fence::token(7));
  mark_healing healing({}, cells(3));
  healing.and_all(mark_memory::walk(memory));
  ASSERT_NE(healing.begin_next(), nullptr);
  healing.one_done({});
  healing.give_back_rest(memory);
  EXPECT_TRUE(healing.over());
  const auto late = memory.take_late();
  EXPECT_EQ(late.these.size(), 2u);
  EXPECT_TRUE(late.all);
}

TEST(MarkHealing, OneThatFailedEndsItWhenThoseUnderWayAreDone) {
  mark_healing healing({}, cells(1000));
  std::size_t begun = 0;
  while (healing.begin_next() != nullptr) ++begun;
  healing.one_done({});
  healing.one_done("r1: why");
  healing.one_done("r2: why");
  EXPECT_EQ(healing.begin_next(), nullptr);
  EXPECT_FALSE(healing.over());
  for (std::size_t i = 3; i < begun; ++i) healing.one_done({});
  EXPECT_TRUE(healing.over());
  EXPECT_EQ(healing.problem(), "r1: why");
}

TEST(MarkHealing, OnlyTheFirstLostMarksAreNamed) {
  mark_healing healing({}, {});
  std::size_t named = 0;
  for (int i = 0; i < 1000; ++i) named += healing.note_lost() ? 1 : 0;
  EXPECT_EQ(named, limits::lost_marks_logged_max);
  EXPECT_EQ(healing.lost(), 1000u);
}

}  // namespace
}  // namespace fencegate::backend
