#include "lease/writer.hpp"

#include "lease/bond.hpp"

#include <gtest/gtest.h>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using phase = writer_phase;
using report = writer::report;

boot_clock::time_point boot_at(int ms) { return boot_clock::time_point(milliseconds(ms)); }

// This process began at 1000.
writer restarted(std::vector<std::string> containers = {}) {
  return {{false, std::move(containers), milliseconds(30'000)}, boot_at(1'000)};
}

writer holding() {
  auto one = restarted();
  (void)one.started("", boot_at(2'000), boot_at(2'001));
  one.granted();
  return one;
}

TEST(LeaseWriter, IsUnknownUntilItWasStartedLaterThanThisProcess) {
  auto one = restarted();
  EXPECT_EQ(one.phase(), phase::unknown);
  EXPECT_EQ(one.started("", boot_at(999), boot_at(5'000)), report::early);
  EXPECT_EQ(one.started("", boot_at(1'000), boot_at(5'000)), report::early);
  EXPECT_EQ(one.phase(), phase::unknown);
  EXPECT_EQ(one.started("", boot_at(1'001), boot_at(5'000)), report::counted);
  EXPECT_EQ(one.phase(), phase::standby);
  EXPECT_EQ(one.started_at(), boot_at(1'001));
}

TEST(LeaseWriter, IsLostUntilItWasStartedLaterThanTheLoss) {
  auto one = holding();
  one.lost(boot_at(9'000));
  EXPECT_EQ(one.phase(), phase::lost);
  EXPECT_EQ(one.started("", boot_at(2'000), boot_at(9'001)), report::early) << "repeated";
  EXPECT_EQ(one.started("", boot_at(9'000), boot_at(9'001)), report::early);
  EXPECT_EQ(one.phase(), phase::lost);
  EXPECT_EQ(one.started("", boot_at(9'001), boot_at(9'500)), report::counted);
  EXPECT_EQ(one.phase(), phase::standby);
  EXPECT_EQ(one.started("", boot_at(9'001), boot_at(9'600)), report::counted) << "repeated";
}

TEST(LeaseWriter, AStartThatIsStillToComeIsOfAnotherClock) {
  auto one = restarted();
  EXPECT_EQ(one.started("", boot_at(2'001), boot_at(2'000)), report::ahead);
  EXPECT_EQ(one.phase(), phase::unknown);
}

TEST(LeaseWriter, NothingHangsOnAReportWhileItHolds) {
  auto one = holding();
  EXPECT_EQ(one.started("", boot_at(500), boot_at(3'000)), report::counted);
  EXPECT_EQ(one.started("", boot_at(2'500), boot_at(3'000)), report::counted);
  EXPECT_EQ(one.phase(), phase::holding);
  one.lost(boot_at(4'000));
  EXPECT_EQ(one.phase(), phase::lost) << "a start before the loss does not count for it";
}

TEST(LeaseWriter, EachOfItsContainersStartsAnew) {
  auto one = restarted({"app", "worker"});
  EXPECT_EQ(one.started("app", boot_at(2'000), boot_at(2'000)), report::counted);
  EXPECT_EQ(one.started("app", boot_at(2'100), boot_at(2'100)), report::counted);
  EXPECT_EQ(one.started("", boot_at(2'100), boot_at(2'100)), report::stranger);
  EXPECT_EQ(one.started("cook", boot_at(2'100), boot_at(2'100)), report::stranger);
  EXPECT_EQ(one.phase(), phase::unknown);
  EXPECT_EQ(one.started("worker", boot_at(2'050), boot_at(2'200)), report::counted);
  EXPECT_EQ(one.phase(), phase::standby);
  one.granted();
  EXPECT_EQ(one.started("app", boot_at(3'000), boot_at(3'000)), report::counted);
  one.lost(boot_at(4'000));
  EXPECT_EQ(one.started("worker", boot_at(5'000), boot_at(5'000)), report::counted);
  EXPECT_EQ(one.phase(), phase::lost) << "app was started before the loss";
}

TEST(LeaseWriter, ANameIsNotNeededWhereThereIsOneContainer) {
  auto named = restarted({"app"});
  EXPECT_EQ(named.started("", boot_at(2'000), boot_at(2'000)), report::counted);
  EXPECT_EQ(named.phase(), phase::standby);
  auto unnamed = restarted();
  EXPECT_EQ(unnamed.started("whatever", boot_at(2'000), boot_at(2'000)), report::counted);
  EXPECT_EQ(unnamed.phase(), phase::standby);
}

TEST(LeaseWriter, FallsSilentOnlyWhereItsProbesCame) {
  auto one = holding();
  EXPECT_FALSE(one.is_silent(boot_at(1'000'000)));
  EXPECT_EQ(one.silent_at(), std::nullopt);
  one.heard(boot_at(3'000));
  EXPECT_EQ(one.silent_at(), boot_at(33'000));
  EXPECT_FALSE(one.is_silent(boot_at(32'999)));
  one.heard(boot_at(32'999));
  EXPECT_FALSE(one.is_silent(boot_at(62'998)));
  EXPECT_TRUE(one.is_silent(boot_at(62'999)));
  one.lost(boot_at(63'000));
  EXPECT_EQ(one.phase(), phase::lost);
  EXPECT_FALSE(one.is_silent(boot_at(100'000))) << "there is nothing to release";
  one.heard(boot_at(100'000));
  EXPECT_EQ(one.phase(), phase::lost) << "a probe is no start";
  (void)one.started("", boot_at(150'000), boot_at(150'100));
  EXPECT_EQ(one.phase(), phase::standby);
  EXPECT_FALSE(one.is_silent(boot_at(180'000))) << "its first probe may be some time off";
  EXPECT_TRUE(one.is_silent(boot_at(180'100)));
}

TEST(LeaseWriter, ThatRebindsNeedsNoReports) {
  writer one({true, {}, seconds(30)}, boot_at(1'000));
  EXPECT_EQ(one.phase(), phase::standby);
  one.granted();
  one.heard(boot_at(2'000));
  one.lost(boot_at(3'000));
  EXPECT_EQ(one.phase(), phase::standby);
  one.lost(boot_at(40'000));
  EXPECT_EQ(one.phase(), phase::lost) << "nobody is there who would write";
  (void)one.started("", boot_at(50'000), boot_at(50'000));
  EXPECT_EQ(one.phase(), phase::lost);
  one.heard(boot_at(60'000));
  EXPECT_EQ(one.phase(), phase::standby);
}

TEST(LeaseBond, BindsUntilDAndNeverOnceItIsRevoked) {
  const auto reading = [](int ms) {
    return clock_reading{boot_at(ms), std::chrono::system_clock::time_point(milliseconds(ms))};
  };
  const auto times = timing::of(seconds(30));
  holder held(times, reading(0));
  bond one({{"orders", *fence::token::parse("34")}}, held);
  EXPECT_TRUE(one.may_bind(reading(23'999)));
  EXPECT_FALSE(one.may_bind(reading(24'000)));
  held.renewed(reading(10'000));
  one.moved(held);
  EXPECT_TRUE(one.may_bind(reading(24'000)));
  one.revoke();
  EXPECT_FALSE(one.may_bind(reading(10'001)));
  one.moved(held);
  EXPECT_FALSE(one.may_bind(reading(10'001))) << "a renewal that is told late brings nothing back";
}

}  // namespace
}  // namespace fencegate::lease
