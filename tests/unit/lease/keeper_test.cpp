// The keeper of one lease, with an issuer that answers when the test says so.
#include "lease/keeper.hpp"

#include "lease/release_listeners.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps the questions for a lease.
class slow_issuer final : public issuer {
 public:
  void identify(std::function<void(const answer<std::string>&)> done) override {
    done({boost::system::in_place_value, "me"});
  }
  void acquire(const grant_request&, std::function<void(const grant_answer&)> done) override {
    ++asked;
    unanswered = std::move(done);
  }
  void renew(const term&, std::function<void(const result<renewal>&)>) override {}
  void release(const term&, bool, std::function<void(const result<void>&)> done) override { done({}); }
  void forget_store(const std::string&, const std::string&, std::function<void(const result<bool>&)>) override {}
  [[nodiscard]] std::shared_ptr<void> on_release(std::function<void(const std::string&)> tell) override {
    return listeners.add(std::move(tell));
  }
  void list(std::function<void(const result<std::vector<lease_entry>>&)>) override {}

  void answer_held() { std::exchange(unanswered, nullptr)({grant_answer::kind::held, {}, "orders", "b", seconds(20)}); }

  release_listeners listeners;
  int asked = 0;
  std::function<void(const grant_answer&)> unanswered;
};

class Keeper : public testing::Test {
 protected:
  // It waits for ever.
  std::shared_ptr<keeper> made() {
    keeper_request wanted;
    wanted.resources = {"orders"};
    wanted.times = timing::of(seconds(30));
    return std::make_shared<keeper>(io_, by_, std::vector<std::shared_ptr<seal_place>>(), wanted, keeper_owner{});
  }
  // All that is due by now, of which each may make more due.
  void run() {
    for (int i = 0; i < 20; ++i) {
      io_.restart();
      io_.poll();
    }
  }

  boost::asio::io_context io_{1};
  const std::shared_ptr<slow_issuer> by_ = std::make_shared<slow_issuer>();
};

// Else who waits would pause once more, although it is free.
TEST_F(Keeper, AsksAgainAtOnceWhenAReleaseIsToldWhileAQuestionIsUnderWay) {
  const auto waiting = made();
  waiting->start();
  run();
  ASSERT_EQ(by_->asked, 1);
  by_->answer_held();
  by_->listeners.tell("orders");
  run();
  ASSERT_EQ(by_->asked, 2);
  by_->listeners.tell("orders");
  by_->answer_held();
  run();
  EXPECT_EQ(by_->asked, 3);
}

TEST_F(Keeper, PausesWhenWhatWasReleasedMeanwhileIsNotWhatItWaitsFor) {
  const auto waiting = made();
  waiting->start();
  run();
  by_->answer_held();
  by_->listeners.tell("orders");
  run();
  by_->listeners.tell("others");
  by_->answer_held();
  run();
  EXPECT_EQ(by_->asked, 2);
}

}  // namespace
}  // namespace fencegate::lease
