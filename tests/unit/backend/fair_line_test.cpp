#include "backend/fair_line.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;

constexpr auto anybody = [](const std::string&) { return true; };

std::vector<int> all_of(fair_line<int>& line) {
  std::vector<int> out;
  while (const auto next = line.take(anybody)) out.push_back(*next);
  return out;
}

TEST(FairLine, EachOwnerHasItsTurn) {
  fair_line<int> line;
  for (const int item : {1, 2, 3}) line.push("a", item);
  line.push("b", 10);
  for (const int item : {20, 21}) line.push("c", item);
  EXPECT_EQ(line.size(), 6U);
  EXPECT_THAT(all_of(line), ElementsAre(1, 10, 20, 2, 21, 3));
  EXPECT_TRUE(line.empty());
}

TEST(FairLine, WhoComesAgainStandsBehindTheOthers) {
  fair_line<int> line;
  line.push("a", 1);
  line.push("b", 10);
  EXPECT_EQ(line.take(anybody), 1);
  line.push("a", 2);
  EXPECT_THAT(all_of(line), ElementsAre(10, 2));
}

TEST(FairLine, WhoIsNotAdmittedKeepsItsPlace) {
  fair_line<int> line;
  line.push("a", 1);
  line.push("b", 10);
  const auto but_a = [](const std::string& owner) { return owner != "a"; };
  EXPECT_TRUE(line.any(but_a));
  EXPECT_EQ(line.take(but_a), 10);
  EXPECT_FALSE(line.any(but_a));
  EXPECT_EQ(line.take(but_a), std::nullopt);
  line.push("b", 11);
  EXPECT_THAT(all_of(line), ElementsAre(1, 11));
}

TEST(FairLine, WhoHasMostGivesWayAndItsLast) {
  fair_line<int> line;
  line.push("b", 10);
  for (const int item : {1, 2, 3}) line.push("a", item);
  EXPECT_EQ(line.take_of_largest(), 3);
  EXPECT_EQ(line.size(), 3U);
  fair_line<int> one;
  one.push("a", 1);
  EXPECT_EQ(one.take_of_largest(), 1);
  EXPECT_FALSE(one.any(anybody));
}

TEST(FairLine, ThoseThatAreDueLeaveInTheirOrder) {
  fair_line<int> line;
  for (const int item : {1, 2, 3, 4}) line.push("a", item);
  for (const int item : {12, 14}) line.push("b", item);
  EXPECT_THAT(line.take_all([](int item) { return item % 2 == 0; }), ElementsAre(2, 4, 12, 14));
  EXPECT_EQ(line.size(), 2U);
  EXPECT_THAT(all_of(line), ElementsAre(1, 3));
}

}  // namespace
}  // namespace fencegate::backend
