#include "base/seldom.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using namespace std::chrono_literals;

TEST(Seldom, OneInAnIntervalIsWrittenAndSaysHowManyWereNot) {
  seldom lines(1s);
  const seldom::clock::time_point start{};  // the clock's own beginning is a time like any other
  EXPECT_EQ(lines.due(start), 0);
  EXPECT_EQ(lines.due(start + 1ms), std::nullopt);
  EXPECT_EQ(lines.due(start + 999ms), std::nullopt);
  EXPECT_EQ(lines.due(start + 1s), 2);
  EXPECT_EQ(lines.due(start + 1s), std::nullopt);
  EXPECT_EQ(lines.due(start + 5s), 1);
  EXPECT_EQ(lines.due(start + 6s), 0);
}

}  // namespace
}  // namespace fencegate
