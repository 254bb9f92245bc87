#include "lease/let_go_ids.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace fencegate::lease {
namespace {

TEST(LetGoIds, AreKeptAsLongAsTheWorkLivesAndAWhileBehindThat) {
  using std::chrono::minutes;
  let_go_ids ids;
  const auto start = let_go_ids::clock::now();
  auto work = std::make_shared<int>();
  EXPECT_FALSE(ids.contains("a", start));
  ids.note("a", work, start);
  EXPECT_TRUE(ids.contains("a", start + minutes(10)));  // this process stood still
  work.reset();
  EXPECT_TRUE(ids.contains("a", start + minutes(10)));
  ids.note("b", std::weak_ptr<int>(), start + minutes(10));
  EXPECT_FALSE(ids.contains("a", start + minutes(12)));
  EXPECT_TRUE(ids.contains("b", start + minutes(12)));
}

}  // namespace
}  // namespace fencegate::lease
