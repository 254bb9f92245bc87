#include "gate/relay/lease_door.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace fencegate::gate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using phase = lease::writer_phase;

class LeaseDoor : public testing::Test {
 protected:
  using door = lease_door<std::string>;

  door make(bool monitors = false) {
    return {
        rules,
        monitors,
        {[this](const std::string& one, const bound_tag& tag) { seen.push_back(one + " " + fence::write_tag(*tag)); },
         [this](const std::string& one, const std::string& why) { seen.push_back(one + " refused " + why); },
         [this](const std::string& one, const std::string& why) { seen.push_back(one + " passes " + why); },
         [this](const std::string& one) { seen.push_back(one + " dropped"); }, [this] { return now; },
         [this](const std::string& one) { return gone.contains(one); }}};
  }
  std::shared_ptr<lease::bond> bond_of(int token) {
    return std::make_shared<lease::bond>(
        fence::claims_list{{"orders", fence::token(token)}, {"stock", fence::token(7)}}, lease::holder(times, now));
  }
  door::time_point at(int ms) { return door::time_point(milliseconds(ms)); }
  void pass(milliseconds time) {
    now.boot += time;
    now.wall += time;
  }
  std::vector<std::string> take() { return std::exchange(seen, {}); }

  const lease::timing times = lease::timing::of(seconds(30));
  settings::gate_lease rules{{"orders"}, "default", false, false, milliseconds(100)};
  lease::clock_reading now{};
  std::vector<std::string> seen;
  std::set<std::string> gone;  // closed by their peers
};

TEST_F(LeaseDoor, RefusesUntilTheLeaseIsHeldAndAgainBehindItsLoss) {
  auto one = make();
  one.arrive("a", at(0));
  EXPECT_FALSE(one.shut(phase::standby, "standby: held by b"));
  one.arrive("b", at(0));
  one.open_to(bond_of(34));
  one.arrive("c", at(0));
  EXPECT_TRUE(one.shut(phase::lost, "lost"));
  one.arrive("d", at(0));
  EXPECT_FALSE(one.shut(phase::lost, "lost")) << "once";
  EXPECT_THAT(take(), ElementsAre("a refused unknown: the gate has just started", "b refused standby: held by b",
                                  "c orders=34", "d refused lost"));
}

TEST_F(LeaseDoor, BindsNothingBehindDNorToWhatWasRevoked) {
  auto one = make();
  const auto held = bond_of(34);
  one.open_to(held);
  pass(times.act_for());
  one.arrive("late", at(0));
  lease::holder renewed(times, now);
  held->moved(renewed);
  one.arrive("again", at(0));
  held->revoke();
  one.arrive("revoked", at(0));
  EXPECT_THAT(take(), ElementsAre(testing::StartsWith("late refused holding"), "again orders=34",
                                  testing::StartsWith("revoked refused")));
}

TEST_F(LeaseDoor, LetsWaitInStandbyOnlyAndForItsTime) {
  rules.waits = true;
  auto one = make();
  one.arrive("first", at(0));
  (void)one.shut(phase::standby, "standby: held by b");
  one.arrive("a", at(0));
  one.arrive("b", at(50));
  EXPECT_THAT(take(), ElementsAre("first refused unknown: the gate has just started"));
  one.tick(at(99));
  EXPECT_THAT(take(), IsEmpty());
  one.tick(at(100));
  EXPECT_THAT(take(), ElementsAre("a refused standby: held by b"));
  one.open_to(bond_of(35));
  EXPECT_THAT(take(), ElementsAre("b orders=35"));
  EXPECT_EQ(one.waiting(), 0u);
  (void)one.shut(phase::standby, "standby: held by b");
  one.arrive("c", at(100));
  (void)one.shut(phase::lost, "lost");
  EXPECT_THAT(take(), ElementsAre("c refused lost"));
}

TEST_F(LeaseDoor, DropsThoseThatWaitWhenTheirWriterMayBeDead) {
  rules.waits = true;
  auto one = make();
  (void)one.shut(phase::standby, "standby");
  one.arrive("a", at(0));
  one.drop_waiting();
  one.open_to(bond_of(35));
  EXPECT_THAT(take(), ElementsAre("a dropped"));
}

TEST_F(LeaseDoor, BindsNobodyWhoHasGoneAndKeepsNoRoomForHim) {
  rules.waits = true;
  auto one = make();
  (void)one.shut(phase::standby, "standby");
  for (const auto* name : {"a", "b", "c", "d"}) one.arrive(name, at(0));
  gone = {"a", "c"};
  one.tick(at(50));
  EXPECT_THAT(take(), ElementsAre("a dropped", "c dropped"));
  EXPECT_EQ(one.waiting(), 2u);
  gone = {"b"};
  one.open_to(bond_of(35));
  EXPECT_THAT(take(), ElementsAre("b dropped", "d orders=35"));
}

TEST_F(LeaseDoor, InMonitorModeAStandbyPassesWithoutATag) {
  auto one = make(true);
  (void)one.shut(phase::standby, "standby: held by b");
  one.arrive("a", at(0));
  one.open_to(bond_of(35));
  one.arrive("b", at(0));
  EXPECT_THAT(take(), ElementsAre("a passes standby: held by b", "b orders=35"));
}

}  // namespace
}  // namespace fencegate::gate
