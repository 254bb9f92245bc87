#include "lease/timing.hpp"

#include <gtest/gtest.h>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;

TEST(LeaseTiming, ThirtySecondsSurviveFiveLostRenewals) {
  const auto times = timing::of(milliseconds(30'000));
  EXPECT_EQ(times.renew_every(), milliseconds(10'000));
  EXPECT_EQ(times.retry_after(), milliseconds(2'500));
  EXPECT_EQ(times.act_for(), milliseconds(24'000));
  EXPECT_EQ(times.hold_for(), milliseconds(29'000));
  EXPECT_EQ(times.lost_renewals(), 5);
}

TEST(LeaseTiming, DefaultsAreFineFromFiveSecondsOn) {
  for (int seconds = 5; seconds <= 86'400; seconds += 7)
    ASSERT_EQ(timing::of(milliseconds(seconds * 1000)).violated(), std::nullopt) << seconds;
  EXPECT_EQ(timing::of(milliseconds(5'000)).lost_renewals(), 2);
  EXPECT_NE(timing::of(milliseconds(4'000)).violated(), std::nullopt);
}

TEST(LeaseTiming, ViolationsSayWhatIsWrongAndAllNumbers) {
  auto times = timing::of(milliseconds(30'000));
  times.margin = milliseconds(779);  // skew 280 + round_trip 500 = 780
  ASSERT_NE(times.violated(), std::nullopt);
  EXPECT_TRUE(times.violated()->starts_with("not safe: margin must be at least skew + round_trip"));
  EXPECT_TRUE(
      times.violated()->ends_with("(ttl 30000ms, margin 779ms, stop_grace 5000ms, skew 280ms, round_trip 500ms)"));
  times.margin = milliseconds(780);
  EXPECT_EQ(times.violated(), std::nullopt);
  times.stop_grace = milliseconds(14'000);
  ASSERT_NE(times.violated(), std::nullopt);
  EXPECT_TRUE(times.violated()->starts_with("not available: "));
}

TEST(LeaseTiming, WhoSetsTheNumbersMayGoBelowFiveSeconds) {
  const timing times{milliseconds(1'000), milliseconds(100), milliseconds(100), milliseconds(20), milliseconds(50)};
  EXPECT_EQ(times.violated(), std::nullopt);
}

}  // namespace
}  // namespace fencegate::lease
