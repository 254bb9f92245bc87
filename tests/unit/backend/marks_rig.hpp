// A server of marks, processes in front of it, and time, for tests.
#pragma once

#include "marks_server.hpp"

#include <gtest/gtest.h>

namespace fencegate::test {

// A resource whose mark no look sees among the first: the last one in the order of the memory.
inline std::string last_of(const keeper_process& process) {
  backend::mark_memory::walk walk(process.state.marks);
  std::string last;
  for (auto some = walk.next(1000); !some.empty(); some = walk.next(1000)) last = some.back()->resource;
  return last;
}

class MarksTest : public ::testing::Test {
 protected:
  using kind = backend::raise_outcome::kind;
  static constexpr milliseconds tick{250};

  // A process with one connection; or one more connection of it.
  keeper_rig& connection_of(keeper_process& of) {
    rigs.push_back(std::make_unique<keeper_rig>(server, of, clock));
    rigs.back()->connect();
    return *rigs.back();
  }
  // One that has served, and knows the mark.
  keeper_rig& served(keeper_process& of, const std::string& resource, std::int64_t token) {
    auto& rig = connection_of(of);
    rig.answer();
    EXPECT_EQ(rig.raise(resource, token).what, kind::held);
    return rig;
  }

  // Ticks, and everything is answered at once.
  void pass(milliseconds time, const std::vector<keeper_rig*>& who) {
    for (milliseconds gone{0}; gone < time; gone += tick) {
      clock += tick;
      for (auto* one : who) {
        one->keeper.on_tick();
        for (; one->asks_something(); check()) one->answer_one();
      }
    }
  }
  // How long it takes until it is so; at most a minute.
  template <class Condition>
  milliseconds time_until(Condition holds, const std::vector<keeper_rig*>& who) {
    milliseconds gone{0};
    for (; !holds() && gone < seconds(60); gone += tick) pass(tick, who);
    EXPECT_LT(gone, seconds(60));
    return gone;
  }
  // All data is lost, as by FLUSHALL.
  void lose_all() { server.keys.clear(); }

  // At each moment: where there is an epoch, this mark is there, too.
  std::optional<std::pair<std::string, std::string>> must_be_there;
  void check() {
    if (!must_be_there || server.epoch().empty()) return;
    EXPECT_EQ(server.mark(must_be_there->first), must_be_there->second);
  }

  marks_server server;
  backend::control_link::time_point clock{std::chrono::hours(1)};
  keeper_process process;
  std::vector<std::unique_ptr<keeper_rig>> rigs;
};

}  // namespace fencegate::test
