#include "gate/redis/key_waiters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::gate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct fake_waiter final : key_waiter {
  void on_key() override {}
};

class KeyWaiters : public testing::Test {
 protected:
  KeyWaiters() { keys.on_up(); }

  std::vector<std::string> questions() {
    std::vector<std::string> out;
    for (const auto& one : keys.take_questions()) out.push_back(one.key);
    return out;
  }
  std::vector<key_waiter*> woken() {
    std::vector<key_waiter*> out;
    while (auto* who = keys.next_woken()) out.push_back(who);
    return out;
  }
  bool wait(fake_waiter& who, const std::vector<std::string>& names = {"queue"}) { return keys.wait(who, 0, names); }

  key_waiters keys;
  fake_waiter a, b, c;
};

TEST_F(KeyWaiters, OneQuestionForAllThatWait) {
  EXPECT_FALSE(wait(a));
  EXPECT_FALSE(wait(b));
  EXPECT_THAT(questions(), ElementsAre("queue"));
  keys.on_answer(false);
  EXPECT_TRUE(wait(a));
  EXPECT_TRUE(wait(b));
  EXPECT_THAT(questions(), IsEmpty());
  EXPECT_THAT(woken(), IsEmpty());
}

TEST_F(KeyWaiters, WhoCameFirstIsWokenAndThenTheNext) {
  static_cast<void>(wait(a));
  static_cast<void>(wait(b));
  static_cast<void>(questions());
  keys.on_answer(false);
  keys.on_touched("queue");
  EXPECT_THAT(questions(), ElementsAre("queue"));
  keys.on_answer(true);
  EXPECT_THAT(woken(), ElementsAre(&a));
  keys.leave(a);  // it has found something; there may be more
  EXPECT_THAT(woken(), ElementsAre(&b));
  EXPECT_TRUE(wait(b));  // nothing more
  EXPECT_THAT(woken(), IsEmpty());
}

TEST_F(KeyWaiters, WhoFindsNothingIsNotWokenAgainBeforeSomethingMoves) {
  static_cast<void>(wait(a));
  static_cast<void>(questions());
  keys.on_answer(true);  // a stream: it is there, with nothing new
  EXPECT_THAT(woken(), ElementsAre(&a));
  EXPECT_TRUE(wait(a));
  EXPECT_THAT(woken(), IsEmpty());
  keys.on_touched("queue");
  keys.on_answer(true);
  EXPECT_THAT(woken(), ElementsAre(&a));
}

// It may have looked before the key was watched.
TEST_F(KeyWaiters, WhoComesLaterLooksOnceMoreWhereThereIsSomething) {
  static_cast<void>(wait(a));
  keys.on_answer(true);
  static_cast<void>(woken());
  static_cast<void>(wait(a));
  static_cast<void>(wait(b));
  EXPECT_THAT(woken(), ElementsAre(&b));
}

TEST_F(KeyWaiters, ATouchBehindTheAnswerIsAskedFor) {
  static_cast<void>(wait(a));
  keys.on_touched("queue");  // before its answer: that is younger
  EXPECT_THAT(questions(), ElementsAre("queue"));
  keys.on_answer(false);
  EXPECT_THAT(questions(), IsEmpty());
  keys.on_touched("queue");
  keys.on_touched("other");
  EXPECT_THAT(questions(), ElementsAre("queue"));
  EXPECT_FALSE(wait(a));
}

TEST_F(KeyWaiters, SeveralKeysAndAllOfThemTouched) {
  EXPECT_FALSE(wait(a, {"one", "two"}));
  EXPECT_THAT(questions(), ElementsAre("one", "two"));
  keys.on_answer(false);
  EXPECT_FALSE(wait(a, {"one", "two"}));
  keys.on_answer(false);
  EXPECT_TRUE(wait(a, {"one", "two"}));
  keys.on_all_touched();
  EXPECT_THAT(questions(), ElementsAre("one", "two"));
  keys.leave(a);
  keys.on_answer(true);
  keys.on_answer(true);
  EXPECT_THAT(woken(), IsEmpty());
  EXPECT_TRUE(keys.empty());
}

TEST_F(KeyWaiters, ARefusedKeyIsNotWatched) {
  static_cast<void>(wait(a));
  keys.on_refusal();
  EXPECT_FALSE(wait(a));
  EXPECT_THAT(woken(), IsEmpty());
}

TEST_F(KeyWaiters, ALostLinkWakesEverybody) {
  static_cast<void>(wait(a));
  static_cast<void>(wait(b, {"other"}));
  keys.on_lost();
  EXPECT_THAT(woken(), testing::UnorderedElementsAre(&a, &b));
  keys.leave(a);
  keys.leave(b);
  EXPECT_TRUE(keys.empty());
}

TEST_F(KeyWaiters, TheOrderStandsWhileTheServerCannotBeAsked) {
  keys.on_lost();
  EXPECT_FALSE(wait(b));  // b and a come before the link is up
  EXPECT_FALSE(wait(a));
  EXPECT_THAT(questions(), IsEmpty());
  keys.on_up();
  EXPECT_FALSE(wait(c));
  EXPECT_THAT(questions(), ElementsAre("queue"));
  keys.on_answer(true);
  EXPECT_THAT(woken(), ElementsAre(&b));
  keys.on_lost();
  EXPECT_THAT(woken(), ElementsAre(&b, &a, &c));
  EXPECT_FALSE(wait(c));  // it looks first, and is still the last
  EXPECT_FALSE(wait(b));
  keys.on_up();
  EXPECT_THAT(questions(), ElementsAre("queue"));
  keys.on_answer(true);
  EXPECT_THAT(woken(), ElementsAre(&b));
}

TEST_F(KeyWaiters, WhoHasGoneIsNotWoken) {
  static_cast<void>(wait(a));
  static_cast<void>(wait(b));
  keys.on_answer(true);
  keys.leave(a);
  EXPECT_THAT(woken(), ElementsAre(&b));
  keys.leave(b);
  EXPECT_THAT(woken(), IsEmpty());
  keys.leave(c);
}

}  // namespace
}  // namespace fencegate::gate
