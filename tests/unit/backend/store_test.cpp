// What the stores of HTTP gates know without asking, and what rows of a raise prove.
#include "backend/store.hpp"

#include "backend/pg_store_parts.hpp"

#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using fence::reason;
using fence::token;

presented_claims wanted(std::vector<fence::claim> claims, bool spends) { return {std::move(claims), 0, false, spends}; }

TEST(KnownRejected, WhatWasSeenRejectsAndNeverMore) {
  mark_memory marks;
  marks.cell("orders")->saw(token(34));
  for (const bool spends : {false, true}) {
    const auto stale = known_rejected(marks, wanted({{"orders", token(33)}}, spends));
    ASSERT_TRUE(stale.has_value());
    EXPECT_EQ(stale->why, reason::stale);
    EXPECT_EQ(stale->mark, token(34));
    EXPECT_FALSE(known_rejected(marks, wanted({{"orders", token(35)}}, spends)));
    EXPECT_FALSE(known_rejected(marks, wanted({{"new", token(0)}}, spends)));
    EXPECT_FALSE(known_rejected(marks, wanted({}, spends)));
  }
}

TEST(KnownRejected, ATokenThatWasAMarkIsUsedWhereTokensAreSpent) {
  mark_memory marks;
  marks.cell("orders")->saw(token(34));
  EXPECT_FALSE(known_rejected(marks, wanted({{"orders", token(34)}}, false)));
  const auto used = known_rejected(marks, wanted({{"new", token(1)}, {"orders", token(34)}}, true));
  ASSERT_TRUE(used.has_value());
  EXPECT_EQ(used->why, reason::equal);
  EXPECT_EQ(used->resource, "orders");
  EXPECT_EQ(used->presented, token(34));
  EXPECT_EQ(used->mark, token(34));
}

TEST(KnownRejected, AStaleTokenOfSeveralCountsBeforeAUsedOne) {
  mark_memory marks;
  marks.cell("orders")->saw(token(34));
  marks.cell("payments")->saw(token(12));
  const auto why = known_rejected(marks, wanted({{"orders", token(34)}, {"payments", token(11)}}, true));
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->why, reason::stale);
  EXPECT_EQ(why->resource, "payments");
}

TEST(RaisedMarks, EveryClaimNeedsItsRow) {
  const std::vector<fence::claim> both{{"orders", token(34)}, {"payments", token(12)}};
  const pg_rows all{{"payments", "12", "t"}, {"orders", "34", "t"}};
  for (const bool spends : {false, true}) {
    const auto marks = raised_marks(wanted(both, spends), all);
    ASSERT_TRUE(marks.has_value());
    EXPECT_EQ((*marks)[0].at.resource, "orders");
    EXPECT_TRUE((*marks)[0].raised && (*marks)[1].raised);
    for (const pg_rows& rows :
         {pg_rows{}, pg_rows{{"orders", "34", "t"}}, pg_rows{{"orders", "34", "t"}, {"payments", "13", "t"}},
          pg_rows{{"orders", "34", "t"}, {"payments", "12"}}, pg_rows{{"orders", "34", "t"}, {"payments", {}, "t"}},
          pg_rows{{"orders", "34", "t"}, {{}, "12", "t"}}})
      EXPECT_FALSE(raised_marks(wanted(both, spends), rows));
  }
}

TEST(RaisedMarks, WhatIsSpentMustHaveBeenLower) {
  for (const auto& raised : {std::optional<std::string>("f"), std::optional<std::string>()}) {
    const pg_rows rows{{"orders", "34", raised}};
    const auto accepted = raised_marks(wanted({{"orders", token(34)}}, false), rows);
    ASSERT_TRUE(accepted.has_value());
    EXPECT_FALSE(accepted->front().raised);
    EXPECT_FALSE(raised_marks(wanted({{"orders", token(34)}}, true), rows));
  }
}

}  // namespace
}  // namespace fencegate::backend
