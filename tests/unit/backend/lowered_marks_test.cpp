// Marks that an operator has lowered: what this process forgets, and puts back all the same.
#include "backend/lowered_marks.hpp"

#include "backend/lost_marks.hpp"
#include "marks_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::test {
namespace {

using backend::lowering;
using fence::token;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t most = 9223372036854775807;

class LoweredMarks : public testing::Test {
 protected:
  std::vector<lowering> apply(const std::vector<lowering>& found, seconds after = {}) {
    return lowered_.apply(marks_, found, backend::lowered_marks::time_point{} + after);
  }
  void saw(std::int64_t mark) { marks_.cell("orders")->saw(token(mark)); }
  std::optional<token> seen() { return marks_.seen("orders"); }

  backend::mark_memory marks_;
  backend::lowered_marks lowered_;
  const std::shared_ptr<backend::mark_cell> kept_ = marks_.cell("orders");
};

TEST_F(LoweredMarks, WhatWasSeenBeforeIsForgottenOnce) {
  saw(most);
  EXPECT_THAT(apply({{7, "orders", token(most), token(41)}}), SizeIs(1));
  EXPECT_EQ(seen(), token(41));
  EXPECT_EQ(lowered_.known(), 7u);
  saw(60);
  EXPECT_THAT(apply({{7, "orders", token(most), token(41)}}), IsEmpty());
  EXPECT_EQ(seen(), token(60)) << "it was seen behind the lowering";
}

TEST_F(LoweredMarks, WhatIsNotAboveItStays) {
  saw(30);
  EXPECT_THAT(apply({{7, "orders", token(most), token(41)}}), IsEmpty());
  EXPECT_EQ(seen(), token(30));
}

TEST_F(LoweredMarks, WhatIsAboveWhatItWasLoweredFromIsNewer) {
  saw(99);
  EXPECT_THAT(apply({{7, "orders", token(50), token(41)}}), IsEmpty());
  EXPECT_EQ(seen(), token(99));
}

TEST_F(LoweredMarks, AnAnswerFromBeforeThatComesLateIsForgotten) {
  saw(most);
  apply({{7, "orders", token(most), token(41)}});
  saw(most);
  EXPECT_THAT(apply({}, seconds(9)), IsEmpty());
  EXPECT_EQ(seen(), token(41));
  saw(most);
  apply({}, seconds(11));
  EXPECT_EQ(seen(), token(most)) << "somebody has raised it again";
}

TEST_F(LoweredMarks, OneThatWasLoweredTwice) {
  saw(most);
  apply({{7, "orders", token(most), token(41)}, {8, "orders", token(41), token(20)}});
  EXPECT_EQ(seen(), token(20));
  EXPECT_EQ(lowered_.known(), 8u);
}

TEST_F(LoweredMarks, WhatIsComparedIsNotLost) {
  saw(most);
  backend::lost_marks lost;
  const backend::lost_marks::seen_marks before{{"orders", token(most)}};
  apply({{7, "orders", token(most), token(41)}});
  EXPECT_THAT(lost.compare(marks_, before, {{"orders", token(41)}}), IsEmpty());
  const auto found = lost.compare(marks_, before, {{"orders", token(40)}});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].to.presented, token(41));
}

TEST(Lowerings, LinesThatAreNoneAreLeftOut) {
  using backend::detail::read_lowerings;
  const auto found =
      read_lowerings("7\torders\t9\t8\tmia\twhy\nx\n\n6\ta b\t9\t8\tmia\twhy\n5\tstock\t9\t-8\n4\tstock\t3\t2");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].resource, "stock");
  EXPECT_EQ(found[1].number, 7u);
  EXPECT_EQ(found[1].resource, "orders");
  EXPECT_EQ(found[1].from, token(9));
  EXPECT_EQ(found[1].to, token(8));
  EXPECT_THAT(read_lowerings(""), IsEmpty());
}

// ── at a Redis

class LoweredInRedis : public MarksTest {
 protected:
  void lower(std::int64_t to) {
    server.keys["fencegate:lowered"] = std::to_string(++number) + "\torders\t" + server.mark("orders") + "\t" +
                                       std::to_string(to) + "\tmia\twhy\n" + server.keys["fencegate:lowered"];
    server.keys[mark_key("orders")] = std::to_string(to);
  }
  std::optional<token> seen() { return process.state.marks.seen("orders"); }

  int number = 0;
};

TEST_F(LoweredInRedis, ALookForgets) {
  auto& gate = served(process, "orders", most);
  lower(41);
  pass(seconds(3), {&gate});
  EXPECT_EQ(seen(), token(41));
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_TRUE(gate.ready());
  EXPECT_EQ(process.figures.regressions_total.value(), 0u);
  EXPECT_EQ(gate.raise("orders", 42).what, kind::held);
}

TEST_F(LoweredInRedis, WhoeverComesInFrontOfTheLookDoesNotPutItBack) {
  auto& gate = served(process, "orders", most);
  lower(41);
  std::optional<backend::mark_reading> read;
  gate.keeper.read(process.state.marks.cell("orders"), [&read](const auto& reading) { read = reading; });
  gate.answer();
  ASSERT_TRUE(read);
  EXPECT_THAT(read->detail, HasSubstr("an operator lowered it just now"));
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_EQ(seen(), token(41)) << "it has made the gate look";
  EXPECT_EQ(gate.raise("orders", 42).what, kind::held);
}

TEST_F(LoweredInRedis, WhoeverHasForgottenPutsBackWhatWasSeenSince) {
  auto& gate = served(process, "orders", most);
  lower(41);
  pass(seconds(3), {&gate});
  gate.raise("orders", 60);
  server.keys[mark_key("orders")] = "50";
  pass(seconds(6), {&gate});
  EXPECT_EQ(server.mark("orders"), "60");
}

TEST_F(LoweredInRedis, BetweenTheLookAndTheComparisonItIsNotPutBack) {
  auto& gate = served(process, "orders", most);
  gate.keeper.recheck([] {});
  gate.answer(2);  // INFO, and the epoch: nothing was lowered
  lower(41);
  gate.answer();
  pass(seconds(6), {&gate});
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_EQ(seen(), token(41));
}

TEST_F(LoweredInRedis, AProcessThatStartsLaterPutsBackAsAnyOther) {
  server.keys[mark_key("orders")] = std::to_string(most);
  served(process, "stock", 1);
  lower(41);
  keeper_process other;
  auto& late = served(other, "orders", 60);
  server.keys[mark_key("orders")] = "50";
  late.look();
  pass(seconds(6), {&late});
  EXPECT_EQ(server.mark("orders"), "60");
}

TEST_F(LoweredInRedis, ARaiseThatWasUnderWayCountsAsAnyOther) {
  auto& gate = served(process, "orders", 40);
  std::optional<backend::raise_outcome> out;
  gate.begin_raise("orders", 50, out);
  gate.run_all();
  lower(41);
  gate.answer();
  EXPECT_EQ(out->what, kind::held);
  pass(seconds(3), {&gate});
  EXPECT_EQ(server.mark("orders"), "41");
  EXPECT_EQ(seen(), token(41));
}

}  // namespace
}  // namespace fencegate::test
