// What the stores of HTTP gates know without asking, and what rows of a raise prove.
#include "backend/store.hpp"

#include "backend/pg_store_common.hpp"

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

// ── what the outcome of steps without a BEGIN proves ────────────────────────────────────────────────────────────────

using block = pg_outcome::block;

pg_step answer() { return pg_table{}; }

pg_step refusal(const char* severity, const char* sqlstate) { return wire::pg_error{severity, sqlstate, "no", {}, {}}; }

pg_outcome outcome(std::vector<pg_step> steps, block behind = block::none, std::string lost = {}) {
  pg_outcome out;
  out.steps = std::move(steps);
  out.behind = behind;
  out.lost = std::move(lost);
  return out;
}

TEST(AtSync, OnlyAServerThatIsReadyHasCommitted) {
  EXPECT_TRUE(has_committed_at_sync(outcome({answer(), answer()}), 2));
  EXPECT_FALSE(has_committed_at_sync(outcome({answer()}), 2));
  EXPECT_FALSE(has_committed_at_sync(outcome({answer(), answer()}, block::none, "lost"), 2));
  EXPECT_FALSE(has_committed_at_sync(outcome({answer(), refusal("ERROR", "23505")}), 2));
  EXPECT_FALSE(has_committed_at_sync(outcome({answer(), answer(), refusal("ERROR", "23505")}), 2));
  for (const auto behind : {block::unknown, block::open, block::failed})
    EXPECT_FALSE(has_committed_at_sync(outcome({answer(), answer()}, behind), 2));
}

TEST(AtSync, AnErrorInPlaceOfAnAnswerProvesARollback) {
  for (const char* sqlstate : {"ZF001", "23505", "57014", "53200", "XX000"}) {
    EXPECT_TRUE(proves_rollback_at_sync(outcome({refusal("ERROR", sqlstate)}), 2)) << sqlstate;
    EXPECT_TRUE(proves_rollback_at_sync(outcome({answer(), refusal("ERROR", sqlstate)}), 2)) << sqlstate;
  }
  EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), answer()}), 2));
  EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), refusal("", "23505")}), 2));  // of a pooler
  EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), refusal("ERROR", "")}), 2));  // of the library
  EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), refusal("ERROR", "23505")}, block::none, "lost"), 2));
  for (const auto behind : {block::unknown, block::open, block::failed})
    EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), refusal("ERROR", "23505")}, behind), 2));
}

TEST(AtSync, AnErrorBehindTheLastAnswerProvesItOnlyWhereItIsTheCommits) {
  for (const char* sqlstate : {"23505", "40001", "P0001", "ZF002"})
    EXPECT_TRUE(proves_rollback_at_sync(outcome({answer(), answer(), refusal("ERROR", sqlstate)}), 2)) << sqlstate;
  for (const char* sqlstate : {"57014", "57P01", "53200", "54001", "58030", "08006", "XX000", "22P05", "42501"})
    EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), answer(), refusal("ERROR", sqlstate)}), 2)) << sqlstate;
}

TEST(AtSync, TheServersLastWordsProveItInPlaceOfAnAnswer) {
  for (const char* sqlstate : {"57P01", "25P03"}) {
    const auto last = refusal("FATAL", sqlstate);
    EXPECT_TRUE(proves_rollback_at_sync(outcome({answer(), last}, block::unknown, "lost"), 2));
    EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), answer(), last}, block::unknown, "lost"), 2));
    EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), last}), 2));
  }
  EXPECT_FALSE(proves_rollback_at_sync(outcome({answer(), refusal("FATAL", "XX000")}, block::unknown, "lost"), 2));
}

}  // namespace
}  // namespace fencegate::backend
