#include "cli/secrets_in_use.hpp"

#include "config_fixture.hpp"

#include <optional>
#include <string>

namespace fencegate::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SecretsInUse : public ConfigTest {
 protected:
  // A gate and a store, each with a password in a file of its own.
  settings::process read(const std::string& gate, const std::string& store,
                         const std::string& upstream = "redis://me@127.0.0.1") {
    files = {{"/gate", gate}, {"/store", store}};
    return settings_of(
        "stores:\n  ledger: { url: postgres://me@127.0.0.1/app, password_file: /store }\n"
        "gates:\n  - { name: cache, protocol: redis, listen: \"127.0.0.1:6380\", upstream: \"" +
        upstream + "\", password_file: /gate }\n");
  }
  static std::string of_gate(const settings::process& config) {
    return config.redis_gates.at(0).control.password.text();
  }
};

TEST_F(SecretsInUse, WhatBeganWithTheFormerOnesHasTheNewOnes) {
  const auto began = read("one", "uno");
  const auto copy = began.redis_gates.at(0);
  secrets_in_use used(began);
  EXPECT_THAT(used.different_in(read("one", "uno")), IsEmpty());
  const auto next = read("two", "uno");
  EXPECT_THAT(used.different_in(next), ElementsAre("gate:cache"));
  EXPECT_EQ(copy.control.password.text(), "one");
  EXPECT_EQ(copy, next.redis_gates.at(0));  // no gate is exchanged for it
  used.take_over(next);
  EXPECT_EQ(copy.control.password.text(), "two");
  EXPECT_EQ(began.stores.at(0).password.text(), "uno");

  const auto last = read("three", "tres");
  EXPECT_THAT(used.different_in(last), ElementsAre("store:ledger", "gate:cache"));
  used.take_over(last);
  for (const auto& each : {began, next, last}) EXPECT_EQ(of_gate(each), "three");
  EXPECT_EQ(began.stores.at(0).password.text(), "tres");
  EXPECT_THAT(used.different_in(last), IsEmpty());
}

TEST_F(SecretsInUse, AnotherServerIsNotToldThePasswordOfTheFormerOne) {
  const auto began = read("one", "uno");
  secrets_in_use used(began);
  for (const auto* elsewhere : {"redis://me@127.0.0.1:7000", "redis://another@127.0.0.1"}) {
    const auto next = read("two", "uno", elsewhere);
    EXPECT_THAT(used.different_in(next), IsEmpty());
    used.take_over(next);
    EXPECT_EQ(of_gate(began), "one");
    EXPECT_EQ(of_gate(next), "two");
  }
}

TEST_F(SecretsInUse, WhoComesInPlainTextIsNotToldThePasswordOfWhoComesByTls) {
  const auto began = read("one", "uno");
  secrets_in_use used(began);
  used.take_over(read("two", "uno", "rediss://me@127.0.0.1:6379?sslmode=require"));
  EXPECT_EQ(of_gate(began), "one");
}

TEST_F(SecretsInUse, OneThatNobodyHasIsForgotten) {
  std::optional<settings::process> began = read("one", "uno");
  secrets_in_use used(*began);
  const auto next = read("two", "uno", "redis://me@127.0.0.1:7000");
  began.reset();
  used.take_over(next);
  EXPECT_THAT(used.different_in(read("one", "uno")), IsEmpty());
}

TEST_F(SecretsInUse, OneThatStandsInNoFileIsAnother) {
  const settings::credentials one{"me", "one"}, two{"me", "two"};
  EXPECT_NE(one, two);
  EXPECT_EQ(one, (settings::credentials{"me", "one"}));
  EXPECT_NE(one, (settings::credentials{"me", secret::of_file("one")}));  // or else it were the same as any of a file
  EXPECT_EQ((settings::credentials{"me", {}}), (settings::credentials{"me", ""}));
}

}  // namespace
}  // namespace fencegate::cli
