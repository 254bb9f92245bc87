// The first commands on a connection of the gate's own.
#include "backend/redis_greeting.hpp"

#include "backend/command_roles.hpp"
#include "recorded_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RedisGreeting : public ::testing::Test, public control_link {
 protected:
  void send(const std::vector<std::string_view>& command, reply_callback done) override {
    std::string line;
    for (const auto word : command) line += (line.empty() ? "" : " ") + std::string(word);
    sent.push_back({std::move(line), std::move(done)});
  }
  void drop(const std::string& why) override {
    drops.push_back(why);
    auto orphans = std::exchange(sent, {});
    for (auto& one : orphans) one.done(nullptr);
  }
  [[nodiscard]] time_point now() const override { return {}; }

  // Greets, and answers each command by its beginning; "+OK" where there is nothing for it.
  void greet_with(std::map<std::string, std::string> replies) {
    replies.try_emplace("COMMAND INFO", named(critical_commands().size() + 1));
    replies.try_emplace("COMMAND", test::command_reply());
    greet(*state, *this);
    while (!sent.empty()) {
      const auto one = std::move(sent.front());
      sent.erase(sent.begin());
      asked.push_back(one.line.substr(0, one.line.starts_with("COMMAND INFO") ? 12 : std::string::npos));
      const auto said = replies.find(asked.back());
      const auto bytes = said == replies.end() ? "+OK\r\n" : said->second;
      const auto parsed = wire::parse_value(bytes);
      one.done(&(*parsed)->first);
    }
  }
  // COMMAND INFO's answer for so many of the names; `unknown`: this one of them has another name now.
  static std::string named(std::size_t count, std::string_view unknown = {}) {
    auto names = critical_commands();
    names.emplace_back("mset");
    std::string out = "*" + std::to_string(count) + "\r\n";
    for (std::size_t i = 0; i < count; ++i)
      out += names[i] == unknown
                 ? "*-1\r\n"
                 : "*1\r\n$" + std::to_string(names[i].size()) + "\r\n" + std::string(names[i]) + "\r\n";
    return out;
  }
  [[nodiscard]] bool has_table() const { return state->look().commands != command_table::empty(); }

  // As another gate.
  void sign_in_as(settings::credentials own) {
    gate.control = std::move(own);
    state.emplace(gate, stats);
  }

  struct asked_for {
    std::string line;
    reply_callback done;
  };
  settings::redis_gate gate;
  metrics::gate stats{"greeting"};
  std::optional<redis_state> state{std::in_place, gate, stats};
  std::vector<asked_for> sent;
  std::vector<std::string> asked, drops;
};

TEST_F(RedisGreeting, ReadsTheCommands) {
  greet_with({});
  EXPECT_THAT(asked, ElementsAre("PING", "COMMAND INFO", "COMMAND"));
  EXPECT_THAT(drops, IsEmpty());
  EXPECT_TRUE(has_table());
  EXPECT_EQ(state->look().commands->find("get", {}).role, command_role::read);
  EXPECT_FALSE(state->look().wants_auth);
}

TEST_F(RedisGreeting, SignsInBehindThePing) {
  sign_in_as({"gate", "secret"});
  greet_with({{"PING", "-NOAUTH Authentication required.\r\n"}});
  EXPECT_THAT(asked, ElementsAre("PING", "AUTH gate secret", "COMMAND INFO", "COMMAND"));
  EXPECT_TRUE(state->look().wants_auth) << "as a client would be asked for it";
  EXPECT_TRUE(has_table());
  sign_in_as({"", "secret"});
  asked.clear();
  greet_with({});
  EXPECT_EQ(asked.at(1), "AUTH secret");
  EXPECT_FALSE(state->look().wants_auth);
}

TEST_F(RedisGreeting, WhatFailsDropsTheConnection) {
  const std::vector<std::tuple<std::string, std::string, std::string>> faults{
      {"AUTH gate secret", "-WRONGPASS invalid\r\n", "refused the gate's own user: WRONGPASS"},
      {"COMMAND INFO", "-NOPERM no\r\n", "COMMAND INFO failed: NOPERM"},
      {"COMMAND INFO", named(3), "COMMAND INFO failed"},
      {"COMMAND", "-NOPERM no\r\n", "COMMAND failed: NOPERM"},
      {"COMMAND", "*0\r\n", "not a list"}};
  sign_in_as({"gate", "secret"});
  for (const auto& [command, reply, said] : faults) {
    drops.clear();
    greet_with({{command, reply}});
    EXPECT_THAT(drops, ElementsAre(HasSubstr(said))) << command;
    EXPECT_FALSE(has_table());
  }
}

TEST_F(RedisGreeting, APasswordThatTheGateDoesNotHaveIsSaidAtOnce) {
  greet_with({{"PING", "-NOAUTH Authentication required.\r\n"}});
  EXPECT_THAT(drops, ElementsAre(HasSubstr("the gate was given none")));
  EXPECT_THAT(asked, ElementsAre("PING"));
}

TEST_F(RedisGreeting, ACommandUnderAnotherNameMakesUnknownOnesRefused) {
  greet_with({{"COMMAND INFO", named(critical_commands().size() + 1, "flushall")}});
  EXPECT_EQ(state->look().commands->find("x", {}).role, command_role::refused);
  EXPECT_TRUE(state->look().commands->has_mset());
  greet_with({{"COMMAND INFO", named(critical_commands().size() + 1, "mset")}});
  EXPECT_FALSE(state->look().commands->has_mset());
}

}  // namespace
}  // namespace fencegate::backend
