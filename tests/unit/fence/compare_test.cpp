#include "fence/compare.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace fencegate::fence {
namespace {

constexpr token t34{34};
constexpr policy once{.equal = equal_token::reject}, in_steps{.max_step = 10};

static_assert(compare(t34, std::nullopt) == comparison::lower);
static_assert(compare(t34, token{33}) == comparison::lower);
static_assert(compare(t34, t34) == comparison::equal);
static_assert(compare(t34, token{35}) == comparison::stale);

static_assert(compare(t34, t34, once) == comparison::used);
static_assert(compare(t34, token{33}, once) == comparison::lower);
static_assert(compare(t34, token{35}, once) == comparison::stale);

static_assert(compare(t34, token{24}, in_steps) == comparison::lower);
static_assert(compare(t34, token{23}, in_steps) == comparison::jump);
static_assert(compare(t34, std::nullopt, in_steps) == comparison::lower, "a first mark has no step");
static_assert(compare(t34, token{500}, in_steps) == comparison::stale);

TEST(Compare, AMarkBelowTheLowestForATokenMakesItAJump) {
  for (const std::int64_t presented : {0, 1, 9, 10, 11, 34})
    for (std::int64_t mark = 0; mark < presented; ++mark) {
      const bool jumps = compare(token{presented}, token{mark}, in_steps) == comparison::jump;
      EXPECT_EQ(jumps, mark < lowest_mark_for(token{presented}, in_steps.max_step)) << presented << " over " << mark;
    }
  EXPECT_EQ(lowest_mark_for(token{34}, 0), 0) << "no limit";
}

// At both ends nothing overflows.
TEST(Compare, HoldsForTheLeastAndTheLargest) {
  constexpr token largest{std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(compare(largest, token{0}), comparison::lower);
  EXPECT_EQ(compare(largest, token{0}, in_steps), comparison::jump);
  EXPECT_EQ(compare(token{0}, largest, in_steps), comparison::stale);
  EXPECT_EQ(compare(largest, largest), comparison::equal);
  EXPECT_EQ(compare(token{0}, token{0}, once), comparison::used);
}

}  // namespace
}  // namespace fencegate::fence
