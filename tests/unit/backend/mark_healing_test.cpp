#include "backend/mark_healing.hpp"

#include <gtest/gtest.h>

#include <deque>
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
  EXPECT_FALSE(healing.failed());
}

TEST(MarkHealing, EachMarkOnceAndNeverTooManyUnderWay) {
  constexpr std::size_t count = 60'000;
  mark_healing healing({}, cells(count));
  std::deque<std::string> under_way;
  std::size_t begun = 0;
  while (!healing.over()) {
    while (const auto cell = healing.begin_next()) {
      EXPECT_EQ(cell->resource, "r" + std::to_string(begun++));
      under_way.push_back(cell->resource);
    }
    ASSERT_LE(under_way.size(), limits::marks_healed_at_once_max);
    ASSERT_FALSE(under_way.empty());
    under_way.pop_front();
    healing.one_done(true);
  }
  EXPECT_EQ(begun, count);
  EXPECT_FALSE(healing.failed());
}

TEST(MarkHealing, OneThatFailedFailsItButNotTheOthers) {
  mark_healing healing({}, cells(3));
  for (const bool ok : {true, false, true}) {
    ASSERT_NE(healing.begin_next(), nullptr);
    healing.one_done(ok);
  }
  EXPECT_TRUE(healing.over());
  EXPECT_TRUE(healing.failed());
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
