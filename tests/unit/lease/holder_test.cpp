#include "lease/holder.hpp"

#include <gtest/gtest.h>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Both clocks so many milliseconds after the beginning; the time of day may have gained on the other one.
clock_reading at(int ms, int wall_gained_ms = 0) {
  return {boot_clock::time_point(milliseconds(ms)),
          std::chrono::system_clock::time_point(seconds(1'700'000'000) + milliseconds(ms + wall_gained_ms))};
}

class LeaseHolder : public testing::Test {
 protected:
  const timing times =
      timing::of(milliseconds(30'000));  // renews at 10 s, then each 2.5 s; D is 24 s, the deadline 29 s
  holder held{times, at(0)};

  // Renews whenever it is due, and hears nothing: how many were sent by then?
  int unanswered_until(int ms) {
    int sent = 0;
    for (int t = 0; t < ms; ++t)
      if (held.due(at(t)) == holder::duty::renew) {
        held.renewal_sent(at(t));
        ++sent;
      }
    return sent;
  }
};

TEST_F(LeaseHolder, RenewsAtAThirdAndThenEveryTwelfth) {
  EXPECT_EQ(held.due(at(9'999)), holder::duty::wait);
  EXPECT_EQ(held.wake(at(0)), at(10'000).boot);
  EXPECT_EQ(held.due(at(10'000)), holder::duty::renew);
  held.renewal_sent(at(10'000));
  EXPECT_EQ(held.due(at(10'001)), holder::duty::wait);
  EXPECT_EQ(held.wake(at(10'001)), at(12'500).boot);
  EXPECT_EQ(held.due(at(12'500)), holder::duty::renew);
}

TEST_F(LeaseHolder, AnAnswerCountsFromWhenItsRequestWasSent) {
  held.renewal_sent(at(10'000));
  held.renewed(at(10'000));
  EXPECT_EQ(held.deadline(), at(39'000).boot);
  EXPECT_EQ(held.stop_at(), at(34'000).boot);
  EXPECT_EQ(held.wake(at(10'400)), at(20'000).boot);
}

TEST_F(LeaseHolder, AnEarlierAnswerThatComesLateTakesNothingBack) {
  held.renewal_sent(at(10'000));
  held.renewal_sent(at(12'500));
  held.renewed(at(12'500));
  held.renewed(at(10'000));
  EXPECT_EQ(held.deadline(), at(41'500).boot);
}

TEST_F(LeaseHolder, AnEarlierAnswerLeavesTheLaterRequestInFlight) {
  held.renewal_sent(at(10'000));
  held.renewal_sent(at(12'500));
  held.renewed(at(10'000));
  EXPECT_EQ(held.due(at(14'999)), holder::duty::wait);
  EXPECT_EQ(held.due(at(15'000)), holder::duty::renew);
}

TEST_F(LeaseHolder, FiveLostRenewalsInARowAreSurvived) {
  EXPECT_EQ(unanswered_until(22'500), 5);
  EXPECT_TRUE(held.may_begin(at(22'500)));
  EXPECT_EQ(held.due(at(22'500)), holder::duty::renew);
  held.renewal_sent(at(22'500));
  held.renewed(at(22'500));
  EXPECT_EQ(held.due(at(24'000)), holder::duty::wait);
}

TEST_F(LeaseHolder, StopsThenEnds) {
  unanswered_until(24'000);
  EXPECT_TRUE(held.may_begin(at(23'999)));
  EXPECT_FALSE(held.may_begin(at(24'000)));
  EXPECT_EQ(held.due(at(24'000)), holder::duty::stop);
  EXPECT_EQ(held.due(at(28'999)), holder::duty::renew);  // it may yet be confirmed
  EXPECT_EQ(held.due(at(29'000)), holder::duty::end);
}

TEST_F(LeaseHolder, WhatWasLostIsOverWithinItsGrace) {
  held.lost(at(3'000));
  EXPECT_TRUE(held.is_lost());
  EXPECT_FALSE(held.may_begin(at(3'000)));
  EXPECT_EQ(held.stop_at(), at(3'000).boot);
  EXPECT_EQ(held.deadline(), at(8'000).boot);
  EXPECT_EQ(held.due(at(3'000)), holder::duty::stop);
  held.renewed(at(4'000));  // an answer from before
  EXPECT_EQ(held.deadline(), at(8'000).boot);
  EXPECT_EQ(held.due(at(8'000)), holder::duty::end);
}

TEST_F(LeaseHolder, WithAGraceTheSameTermMayBeHadAgain) {
  auto with_grace = times;
  with_grace.grace = seconds(45);
  holder patient{with_grace, at(0)};
  EXPECT_EQ(patient.end_at(), at(74'000).boot);
  patient.renewal_sent(at(28'999));
  EXPECT_EQ(patient.wake(at(28'999)), at(29'000).boot);
  EXPECT_EQ(patient.due(at(29'001)), holder::duty::stop);
  EXPECT_EQ(patient.due(at(31'499)), holder::duty::renew);
  EXPECT_FALSE(patient.may_begin(at(31'499)));
  patient.renewal_sent(at(73'000));
  EXPECT_EQ(patient.wake(at(73'000)), at(74'000).boot);
  EXPECT_EQ(patient.due(at(73'999)), holder::duty::stop);
  EXPECT_EQ(patient.due(at(74'000)), holder::duty::end);
  patient.renewed(at(73'000));
  EXPECT_EQ(patient.due(at(74'000)), holder::duty::wait);
  EXPECT_TRUE(patient.may_begin(at(74'000)));
  EXPECT_EQ(patient.deadline(), at(102'000).boot);
}

TEST_F(LeaseHolder, ALossLeavesNoGrace) {
  auto with_grace = times;
  with_grace.grace = seconds(45);
  holder patient{with_grace, at(0)};
  patient.lost(at(40'000));
  EXPECT_EQ(patient.end_at(), at(29'000).boot);
  EXPECT_EQ(patient.due(at(40'000)), holder::duty::end);
}

TEST_F(LeaseHolder, ALossNeverMovesTheDeadlineForward) {
  held.lost(at(27'000));
  EXPECT_EQ(held.stop_at(), at(24'000).boot);
  EXPECT_EQ(held.deadline(), at(29'000).boot);
}

TEST_F(LeaseHolder, NothingIsBegunBehindAClockThatStoodStill) {
  EXPECT_TRUE(held.may_begin(at(100, 1'000)));
  EXPECT_FALSE(held.may_begin(at(100, 1'001)));
  EXPECT_EQ(held.due(at(100, 1'001)), holder::duty::renew);
  held.renewal_sent(at(100, 1'001));
  EXPECT_EQ(held.due(at(101, 1'001)), holder::duty::wait);
  EXPECT_FALSE(held.may_begin(at(101, 1'001)));
  held.renewed(at(100, 1'001));
  EXPECT_TRUE(held.may_begin(at(101, 1'001)));
}

TEST_F(LeaseHolder, ATimeOfDayThatWasSetBackHarmsNothing) {
  EXPECT_TRUE(held.may_begin(at(100, -86'400'000)));
  EXPECT_EQ(held.due(at(100, -86'400'000)), holder::duty::wait);
}

}  // namespace
}  // namespace fencegate::lease
