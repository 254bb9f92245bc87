// One mark: compared and set until it is settled.
#include "marks_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::test {
namespace {

using testing::HasSubstr;

class MarkRaising : public MarksTest {
 protected:
  MarkRaising() { gate.answer(); }

  // What is answered to the scripts from here on, in place of running them.
  void scripts_answer(const std::string& bytes) {
    server.spoil = [bytes](const words& command) { return command[0] == "EVAL" ? std::optional(bytes) : std::nullopt; };
  }
  backend::mark_reading read(const std::string& resource) {
    std::optional<backend::mark_reading> out;
    gate.keeper.read(process.state.marks.cell(resource), [&out](const auto& reading) { out = reading; });
    gate.answer();
    return out.value();
  }

  keeper_rig& gate = connection_of(process);
};

TEST_F(MarkRaising, RaisesALowerMarkAndOneThatIsNotThere) {
  const auto first = gate.raise("orders", 33);
  EXPECT_EQ(first.what, kind::held);
  EXPECT_TRUE(first.raised);
  server.keys[mark_key("stock")] = "5";
  const auto lower = gate.raise("stock", 7);
  EXPECT_EQ(lower.what, kind::held);
  EXPECT_TRUE(lower.raised);
  EXPECT_EQ(server.mark("orders"), "33");
  EXPECT_EQ(server.mark("stock"), "7");
  EXPECT_EQ(process.stats.raises_total.value(), 2u);
}

TEST_F(MarkRaising, AnEqualMarkIsHeldAndNotRaised) {
  server.keys[mark_key("orders")] = "34";
  const auto outcome = gate.raise("orders", 34);
  EXPECT_EQ(outcome.what, kind::held);
  EXPECT_FALSE(outcome.raised);
  EXPECT_EQ(process.stats.raises_total.value(), 0u);
}

TEST_F(MarkRaising, AHigherMarkIsStaleAndRemembered) {
  server.keys[mark_key("orders")] = "9223372036854775807";
  const auto outcome = gate.raise("orders", 9223372036854775806);
  EXPECT_EQ(outcome.what, kind::stale);
  EXPECT_EQ(outcome.mark, fence::token(9223372036854775807));
  std::optional<backend::raise_outcome> again;
  gate.begin_raise("orders", 34, again);
  ASSERT_TRUE(again) << "memory rejects";
  EXPECT_EQ(again->what, kind::stale);
}

TEST_F(MarkRaising, NothingIsHeldBeforeItsReply) {
  std::optional<backend::raise_outcome> outcome;
  gate.begin_raise("orders", 34, outcome);
  gate.run_all();
  gate.answer(1);
  gate.run_all();
  EXPECT_EQ(server.mark("orders"), "34");
  EXPECT_FALSE(outcome);
  gate.lose();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->what, kind::unavailable);
}

TEST_F(MarkRaising, WhatIsNoAnswerHoldsNothing) {
  for (const std::string said : {"-ERR no\r\n", "+set\r\n", "$3\r\nset\r\n", "*0\r\n", "*-1\r\n", "*1\r\n$2\r\nis\r\n",
                                 "*1\r\n$3\r\nsat\r\n", "*1\r\n$6\r\nleased\r\n", ":1\r\n", "-OOM full\r\n"}) {
    scripts_answer(said);
    EXPECT_EQ(gate.raise("orders", 34).what, kind::unavailable) << said;
  }
}

TEST_F(MarkRaising, AStepIsMeasuredFromWhatTheServerHasOrHad) {
  server.keys[mark_key("orders")] = "30";
  EXPECT_EQ(gate.raise("orders", 41, 10).what, kind::jump);
  EXPECT_EQ(server.mark("orders"), "30");
  EXPECT_EQ(gate.raise("orders", 40, 10).what, kind::held);
  EXPECT_EQ(gate.raise("orders", 51, 10).what, kind::jump) << "from what was seen, too";
  EXPECT_EQ(gate.raise("stock", 1'000, 10).what, kind::held) << "there is no mark to measure from";
  server.keys[mark_key("orders")] = "1";  // it went back
  EXPECT_EQ(gate.raise("orders", 50, 10).what, kind::held);
}

TEST_F(MarkRaising, AMarkOfLeasesRisesBySealsOnly) {
  server.keys[mark_key("orders")] = "34";
  server.keys["fencegate:grant:{orders}"] = "34 issuer grant";
  const auto outcome = gate.raise("orders", 35);
  EXPECT_EQ(outcome.what, kind::jump);
  EXPECT_EQ(outcome.mark, fence::token(34));
  EXPECT_NE(outcome.detail, "");
  EXPECT_EQ(gate.raise("orders", 34).what, kind::held);
  server.keys[mark_key("orders")] = "33";  // what was seen is put back, whoever raised it
  EXPECT_EQ(gate.raise("orders", 34).what, kind::held);
  EXPECT_EQ(server.mark("orders"), "34");
}

TEST_F(MarkRaising, WhatIsNoNumberIsLeftAlone) {
  for (const std::string text : {"034", "-1", "34 ", "9223372036854775808"}) {
    server.keys[mark_key("orders")] = text;
    const auto outcome = gate.raise("orders", 35);
    EXPECT_EQ(outcome.what, kind::unavailable) << text;
    EXPECT_THAT(outcome.detail, HasSubstr("not a canonical integer"));
    EXPECT_EQ(server.mark("orders"), text);
  }
  scripts_answer("-WRONGTYPE Operation against a key\r\n");
  EXPECT_THAT(gate.raise("orders", 35).detail, HasSubstr("not a canonical integer"));
}

TEST_F(MarkRaising, WhoIsOvertakenTriesAgainAFewTimes) {
  int moved = 0;
  server.spoil = [&](const words& command) -> std::optional<std::string> {
    if (command[0] == "EVAL" && moved < 3) server.keys[mark_key("orders")] = std::to_string(++moved);
    return std::nullopt;
  };
  EXPECT_EQ(gate.raise("orders", 34).what, kind::held);
  server.spoil = [&](const words&) -> std::optional<std::string> {
    server.keys[mark_key("stock")] = std::to_string(++moved);
    return std::nullopt;
  };
  EXPECT_EQ(gate.raise("stock", 1'000).what, kind::unavailable);
}

TEST_F(MarkRaising, AMarkThatIsThereRisesThoughRedisIsFull) {
  const auto is_full = [](const words& command) {
    return command[0] == "EVAL" && command[1] == backend::compare_and_set_mark
               ? std::optional<std::string>("-OOM command not allowed\r\n")
               : std::nullopt;
  };
  gate.raise("orders", 34);
  server.spoil = is_full;
  EXPECT_EQ(gate.raise("orders", 35).what, kind::held);
  EXPECT_THAT(gate.raise("stock", 7).detail, HasSubstr("OOM")) << "one that is not takes room";
}

TEST_F(MarkRaising, AMarkThatWentBackIsPutBackBeforeAnythingElse) {
  gate.raise("orders", 34);
  for (const std::string found : {"", "33"}) {
    const auto noticed = process.stats.regressions_total.value();
    if (found.empty())
      server.keys.erase(mark_key("orders"));
    else
      server.keys[mark_key("orders")] = found;
    EXPECT_EQ(gate.raise("orders", 34).what, kind::held);
    EXPECT_EQ(server.mark("orders"), "34");
    EXPECT_EQ(process.stats.regressions_total.value(), noticed + 1);
  }
}

TEST_F(MarkRaising, AResourceThatIsNotRememberedIsNotRaised) {
  std::optional<backend::raise_outcome> outcome;
  const auto forgotten = std::make_shared<backend::mark_cell>("orders", false);
  gate.keeper.raise(forgotten, fence::token(34), 0, [&](const auto& is) { outcome = is; });
  gate.answer();
  EXPECT_EQ(outcome->what, kind::unavailable);
  std::optional<backend::mark_reading> reading;
  gate.keeper.read(forgotten, [&](const auto& is) { reading = is; });
  EXPECT_NE(reading->detail, "");
}

// ── reading

TEST_F(MarkRaising, AReadPutsRightWhatWentBack) {
  EXPECT_EQ(read("orders").mark, std::nullopt);
  gate.raise("orders", 34);
  EXPECT_EQ(read("orders").mark, fence::token(34));
  server.keys.erase(mark_key("orders"));
  EXPECT_EQ(read("orders").mark, fence::token(34));
  EXPECT_EQ(server.mark("orders"), "34");
  server.keys[mark_key("orders")] = "40";
  EXPECT_EQ(read("orders").mark, fence::token(40));
  EXPECT_FALSE(read("orders").leased);
  server.keys["fencegate:grant:{orders}"] = "40 issuer grant";
  EXPECT_TRUE(read("orders").leased);
}

TEST_F(MarkRaising, AReadThatFailsSaysWhy) {
  server.keys[mark_key("orders")] = "034";
  EXPECT_NE(read("orders").detail, "");
  server.spoil = [](const words&) { return std::optional<std::string>("-NOPERM no\r\n"); };
  EXPECT_THAT(read("stock").detail, HasSubstr("NOPERM"));
  server.spoil = nullptr;
  server.policy = "allkeys-lru";
  pass(seconds(3), {&gate});
  EXPECT_THAT(read("stock").detail, HasSubstr("evict"));
  gate.lose();
  EXPECT_NE(read("stock").detail, "");
}

}  // namespace
}  // namespace fencegate::test
