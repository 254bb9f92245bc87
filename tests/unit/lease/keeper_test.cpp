// The keeper of one lease, with an issuer that answers when the test says so.
#include "lease/keeper.hpp"

#include "lease/release_listeners.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
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

// Never answers a seal.
class silent_place final : public seal_place {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const answer<std::string>&)> done) override {
    done({boost::system::in_place_value, "place"});
  }
  void look(const std::vector<std::string>&,
            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) override {
    done(std::vector<backend::looked_mark>());
  }
  void seal(const term&, const std::string&, std::function<void(const backend::store_result<void>&)>) override {}
  void move(const std::string&, const std::string&, const std::string&,
            std::function<void(const result<std::string>&)>) override {}

 private:
  const std::string name_ = "store:silent";
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
  // A question keeps who has asked, and he keeps the issuer.
  void TearDown() override { by_->unanswered = nullptr; }
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

// As when this process stood still: by then it may be the lease of somebody else, who is not to lose it.
TEST_F(Keeper, TakesByForceOnceOnly) {
  keeper_request wanted;
  wanted.resources = {"orders"};
  wanted.times = {milliseconds(300), milliseconds(20), milliseconds(20), milliseconds(5), milliseconds(5)};
  wanted.wait = milliseconds(0);
  wanted.how = taking::by_force;
  std::optional<keeper_failure> failed;
  keeper_owner owner;
  owner.not_acquired = [&](const keeper_failure& why) { failed = why; };
  const auto operators = std::make_shared<keeper>(
      io_, by_, std::vector<std::shared_ptr<seal_place>>{std::make_shared<silent_place>()}, wanted, std::move(owner));
  operators->start();
  run();
  ASSERT_EQ(by_->asked, 1);
  std::exchange(by_->unanswered, nullptr)({grant_answer::kind::granted, {{"orders", fence::token(7)}}});
  io_.restart();
  while (!failed && by_->asked == 1) io_.run_one();
  EXPECT_EQ(by_->asked, 1);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->what, keeper_failure::kind::unreachable);
}

}  // namespace
}  // namespace fencegate::lease
