#include "backend/lost_marks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using fence::token;
using testing::ElementsAre;
using testing::IsEmpty;

class LostMarks : public testing::Test {
 protected:
  LostMarks() { marks_.cell("orders")->saw(token(34)); }

  // "orders 33 -> 34 news"
  std::vector<std::string> compare(const lost_marks::seen_marks& before, std::optional<token> found,
                                   std::uint64_t lowering = 0) {
    std::vector<std::string> out;
    for (const auto& one : lost_.compare(marks_, before, {{"orders", found, lowering}}, [] { return log::event(); }))
      out.push_back(one.to.resource + " " + (one.found ? one.found->to_string() : "none") + " -> " +
                    one.to.presented.to_string() + (one.lowering != 0 ? " under " + std::to_string(one.lowering) : "") +
                    (one.news ? " news" : ""));
    return out;
  }
  std::vector<std::string> look(std::optional<token> found, std::uint64_t lowering = 0) {
    return compare(lost_marks::some_of(walk_), found, lowering);
  }
  void saw(std::int64_t mark, std::uint64_t lowering) { marks_.saw(*marks_.cell("orders"), token(mark), lowering); }

  mark_memory marks_;
  mark_memory::walk walk_{marks_};
  lost_marks lost_;
};

TEST_F(LostMarks, WhatIsLowerOrMissingIsLostAndNewsOnce) {
  EXPECT_THAT(look(token(34)), IsEmpty());
  EXPECT_THAT(look(token(33)), ElementsAre("orders 33 -> 34 news"));
  EXPECT_THAT(look(std::nullopt), ElementsAre("orders none -> 34"));
}

TEST_F(LostMarks, ALossBehindAnotherIsNewsAgain) {
  EXPECT_THAT(look(token(33)), ElementsAre("orders 33 -> 34 news"));
  EXPECT_THAT(look(token(34)), IsEmpty());
  EXPECT_THAT(look(token(33)), ElementsAre("orders 33 -> 34 news"));
  lost_.is_back("orders");
  EXPECT_THAT(look(token(33)), ElementsAre("orders 33 -> 34 news"));
}

TEST_F(LostMarks, AMarkThatRisesBehindTheQuestionIsNotLost) {
  const auto before = lost_marks::some_of(walk_);
  marks_.cell("orders")->saw(token(35));
  EXPECT_THAT(compare(before, token(34)), IsEmpty());
  EXPECT_THAT(compare(before, token(33)), ElementsAre("orders 33 -> 35 news"));
}

TEST_F(LostMarks, WhatWasNotedOtherwiseIsNoNewsToALook) {
  EXPECT_TRUE(lost_.note("orders"));
  EXPECT_FALSE(lost_.note("orders"));
  EXPECT_THAT(look(token(33)), ElementsAre("orders 33 -> 34"));
}

TEST_F(LostMarks, UnderALaterLoweringItIsWhatItIsFoundToBe) {
  EXPECT_THAT(look(token(20), 7), IsEmpty());
  EXPECT_EQ(marks_.seen("orders"), token(20));
  EXPECT_THAT(look(token(34), 0), ElementsAre("orders 34 -> 20 under 7 news")) << "of before the lowering";
  EXPECT_THAT(look(token(20), 7), IsEmpty());
}

TEST_F(LostMarks, WhatRoseBehindALoweringAndIsGoneIsLost) {
  saw(20, 7);
  saw(22, 7);
  EXPECT_THAT(look(token(20), 7), ElementsAre("orders 20 -> 22 under 7 news"));
  EXPECT_THAT(look(std::nullopt), ElementsAre("orders none -> 22 under 7"));
  EXPECT_THAT(look(token(34), 6), ElementsAre("orders 34 -> 22 under 7"));
}

TEST_F(LostMarks, WhatComesLateOfBeforeALoweringSaysNothing) {
  saw(20, 7);
  saw(40, 0);
  EXPECT_EQ(marks_.seen("orders"), token(20));
  EXPECT_THAT(look(token(20), 7), IsEmpty());
}

TEST_F(LostMarks, ALoweringThatIsLearnedBehindTheQuestionIsWhatIsPutBack) {
  const auto before = lost_marks::some_of(walk_);
  saw(20, 7);
  EXPECT_THAT(compare(before, token(33)), ElementsAre("orders 33 -> 20 under 7 news"));
}

TEST_F(LostMarks, WhatIsFoundHigherIsLearned) {
  EXPECT_THAT(look(token(40)), IsEmpty());
  EXPECT_EQ(marks_.seen("orders"), token(40));
}

}  // namespace
}  // namespace fencegate::backend
