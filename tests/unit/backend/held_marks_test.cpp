// Is the session that holds the marks still there? Asked of the kernel.
#include "backend/held_marks.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <unistd.h>

#include <atomic>
#include <thread>

namespace fencegate::backend {
namespace {

class HeldMarksTest : public testing::Test {
 protected:
  HeldMarksTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
    state_ = std::make_shared<held_marks::session_state>(ends_[0]);
  }
  ~HeldMarksTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }

  held_marks hold() {
    return {state_, [this] { ++let_go_; }, [this] { ++aside_; }};
  }

  int ends_[2]{};
  int let_go_ = 0, aside_ = 0;
  std::shared_ptr<held_marks::session_state> state_;
};

TEST_F(HeldMarksTest, AreAliveWhileTheServerIsSilent) {
  const auto marks = hold();
  EXPECT_TRUE(marks.alive());
  EXPECT_TRUE(marks.alive());
}

TEST_F(HeldMarksTest, AreNotWhenTheServerSaidSomethingThatNobodyHasReadYet) {
  const auto marks = hold();
  ASSERT_EQ(write(ends_[1], "E", 1), 1);
  EXPECT_FALSE(marks.alive());
}

TEST_F(HeldMarksTest, AreSetAsideOnceAndNotBehindTheirEnd) {
  auto marks = hold();
  marks.set_aside();
  marks.set_aside();
  EXPECT_EQ(aside_, 1);
  EXPECT_TRUE(marks.alive());
  auto ended = hold();
  ended.release();
  ended.set_aside();
  EXPECT_EQ(aside_, 1);
}

TEST_F(HeldMarksTest, AreNotWhenTheConnectionHasEnded) {
  const auto marks = hold();
  shutdown(ends_[1], SHUT_WR);
  EXPECT_FALSE(marks.alive());
}

TEST_F(HeldMarksTest, AreNotWhileWhatWasReadIsNotUnderstood) {
  const auto marks = hold();
  *state_->in_doubt = true;
  EXPECT_FALSE(marks.alive());
  *state_->in_doubt = false;
  EXPECT_TRUE(marks.alive());
}

// What the server has said is either still in the kernel or in doubt, whenever one asks.
TEST_F(HeldMarksTest, AreNotWhileAnotherThreadReads) {
  const auto marks = hold();
  const auto doubt = state_->in_doubt;
  std::atomic<int> said = 0, read = 0;
  constexpr int rounds = 20'000;
  std::thread reader([&] {
    for (int i = 1; i <= rounds; ++i) {
      while (said < i) std::this_thread::yield();
      *doubt = true;
      char one = 0;
      EXPECT_EQ(::read(ends_[0], &one, 1), 1);
      read = i;
    }
  });
  int wrong = 0;
  for (int i = 1; i <= rounds; ++i) {
    EXPECT_EQ(write(ends_[1], "E", 1), 1);
    said = i;
    while (read < i) wrong += marks.alive();
    wrong += marks.alive();
    *doubt = false;
  }
  reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HeldMarksTest, AreLetGoOnce) {
  {
    auto marks = hold();
    auto moved = std::move(marks);
    EXPECT_FALSE(marks.alive());  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(moved.alive());
    EXPECT_EQ(let_go_, 0);
  }
  EXPECT_EQ(let_go_, 1);
  auto marks = hold();
  marks.release();
  marks.release();
  EXPECT_EQ(let_go_, 2);
  EXPECT_FALSE(marks.alive());
}

}  // namespace
}  // namespace fencegate::backend
