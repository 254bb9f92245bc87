// Clients that do not read, clients that wait, and listeners with a tag.
#include "base/limits.hpp"
#include "gate/relay/unread_bytes.hpp"
#include "unit/gate/redis/engine_rig.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace fencegate::test {
namespace {

using gate::unread_bytes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::string_view turned_away = "-FENCEDOWN ";

TEST(RedisEngineUnread, WhatIsInFlightIsAnsweredFirstAndNothingMoreIsSent) {
  engine_rig rig;
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a"));
  rig.host.unread = true;
  rig.client("GET b", "SELECT 1", "GET c");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.turned_away());
  EXPECT_EQ(rig.answers(), "");
  rig.backend("$1|v");
  const std::string answers = rig.answers();
  EXPECT_THAT(answers, StartsWith("$1|v|"));
  std::size_t times = 0;
  for (auto at = answers.find(turned_away); at != std::string::npos; at = answers.find(turned_away, at + 1)) ++times;
  EXPECT_EQ(times, 3u);
  EXPECT_TRUE(rig.engine.has_said_all());
  rig.host.unread = false;
  rig.client("GET d");
  EXPECT_THAT(rig.sent(), IsEmpty()) << "behind a SELECT that was rejected it would mean something else";
}

TEST(RedisEngineUnread, ABatchIsEndedFirst) {
  engine_rig rig;
  rig.arm();
  rig.client("SET a 1");
  static_cast<void>(rig.sent());
  rig.host.unread = true;
  rig.client("SET b 2");
  EXPECT_TRUE(rig.engine.blocked());
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-FENCEDOWN"));
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(RedisEngineUnread, RejectionsTakeNoRoomBeforeTheyAreRead) {
  for (const bool behind_a_reply : {false, true}) {
    engine_rig rig;
    if (behind_a_reply) rig.client("GET a");
    rig.host.unread = true;
    std::string many;
    for (int i = 0; i < 100'000; ++i) many += command("GET a");
    rig.client_bytes(many);
    if (behind_a_reply) {
      EXPECT_EQ(rig.engine.replies_awaited(), 2u);
      rig.backend("$1|v");
    }
    EXPECT_LT(rig.engine.to_client.size(), 2 * limits::output_high_water_bytes);
    EXPECT_FALSE(rig.engine.has_said_all());
    std::size_t lines = 0;
    do {
      lines += static_cast<std::size_t>(std::count(rig.engine.to_client.begin(), rig.engine.to_client.end(), '\n'));
      rig.engine.to_client.clear();
    } while (rig.engine.say_more());
    EXPECT_EQ(lines, 100'000u + (behind_a_reply ? 2 : 0));
    EXPECT_TRUE(rig.engine.has_said_all());
  }
}

// Without a token; each answer takes more room than its command.
std::string refused_writes(int n) {
  std::string many;
  for (int i = 0; i < n; ++i) many += "SET a 1\r\n";
  return many;
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(RedisEngineUnread, WhoIsToReadFirstIsHeldBackAndThenServedToTheLast) {
  engine_rig rig;
  rig.host.full = true;
  rig.client_bytes(refused_writes(1000) + "GET b\r\n");
  EXPECT_TRUE(rig.engine.held_back());
  EXPECT_TRUE(rig.engine.blocked());
  EXPECT_LT(rig.engine.answers_held(), 2 * limits::unread_step_bytes);
  rig.engine.resume();
  EXPECT_LT(rig.engine.answers_held(), 2 * limits::unread_step_bytes) << "nothing was read";
  std::size_t lines = 0;
  do {
    lines += lines_of(rig.engine.to_client);
    rig.engine.to_client.clear();
  } while (rig.engine.say_more());
  EXPECT_EQ(lines, 1000u);
  EXPECT_THAT(rig.sent(), ElementsAre("GET b"));
  EXPECT_FALSE(rig.engine.held_back());
}

TEST(RedisEngineUnread, AnswersThatWaitForTheirTurnCountToo) {
  engine_rig rig;
  rig.host.full = true;
  rig.client("GET b");
  static_cast<void>(rig.sent());
  rig.client_bytes(refused_writes(1000));
  EXPECT_TRUE(rig.engine.held_back());
  EXPECT_EQ(rig.engine.to_client, "");
  EXPECT_LT(rig.engine.answers_held(), 2 * limits::unread_step_bytes);
  rig.backend("$1|v");
  EXPECT_THAT(rig.answers(), StartsWith("$1|v|-FENCEMISSING "));
  EXPECT_EQ(rig.engine.answers_held(), 0u);
}

TEST(RedisEngineUnread, WhoHasSentNothingMoreIsNotTurnedAway) {
  engine_rig rig;
  rig.client("GET a");
  static_cast<void>(rig.sent());
  rig.host.unread = true;
  rig.backend("$1|v");
  EXPECT_FALSE(rig.engine.turned_away());
}

TEST(UnreadBytes, TheAllowanceShrinksToNothing) {
  constexpr std::size_t max = limits::unread_of_process_bytes_max, full = limits::unread_of_process_bytes_full;
  EXPECT_EQ(unread_bytes::allowance(max), std::numeric_limits<std::size_t>::max());
  EXPECT_LE(unread_bytes::allowance(max + 1), limits::unread_of_client_bytes);
  EXPECT_GT(unread_bytes::allowance(max + 1), limits::unread_of_client_bytes - 2);
  EXPECT_EQ(unread_bytes::allowance((max + full) / 2), limits::unread_of_client_bytes / 2);
  EXPECT_EQ(unread_bytes::allowance(full), 0u);
  EXPECT_EQ(unread_bytes::allowance(2 * full), 0u);
  EXPECT_EQ(unread_bytes::read_at_once(full - 1), limits::read_buffer_bytes_max);
  EXPECT_EQ(unread_bytes::read_at_once(full), limits::unread_step_bytes);
}

// However many there are: each takes what it may, and one read more.
TEST(UnreadBytes, ManyClientsTogetherHoldNoMoreThanThatAndAStepEach) {
  for (const std::size_t clients : {100u, 1'000u, 10'000u}) {
    std::vector<std::size_t> held(clients);
    std::size_t all = 0;
    for (int round = 0; round < 20; ++round) {
      for (auto& one : held) {
        if (one > std::min(limits::output_high_water_bytes, unread_bytes::allowance(all))) continue;
        const std::size_t read = unread_bytes::read_at_once(all);
        one += read;
        all += read;
      }
    }
    EXPECT_LE(all, limits::unread_of_process_bytes_full + limits::read_buffer_bytes_max +
                       clients * limits::unread_step_bytes);
    EXPECT_TRUE(clients != 100 || all >= clients * limits::output_high_water_bytes) << "few are not held back";
  }
}

TEST(RedisEngineWaits, LessOftenWhereSomebodyWakesIt) {
  engine_rig rig;
  rig.arm();
  rig.host.watches = true;
  rig.client("BLPOP queue 0");
  static_cast<void>(rig.sent());
  rig.host.seen.clear();
  rig.backend("+QUEUED", "*1|*-1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.host.seen, ElementsAre("watch 0 queue", "timer 2000"));
  EXPECT_TRUE(rig.engine.may_end());
  rig.engine.on_key();
  EXPECT_THAT(rig.sent(), testing::Contains("BLPOP queue 0"));
  rig.engine.on_key();
  rig.engine.on_timer();
  EXPECT_THAT(rig.sent(), IsEmpty()) << "it is not asleep";
  rig.backend("+QUEUED", "*1|*2|$5|queue|$1|x", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "*2|$5|queue|$1|x|");
  EXPECT_FALSE(rig.engine.waits_for_keys());
}

const fence::claims_list tag_of_listener{{"orders", fence::token(34)}};

TEST(RedisEngineListener, BindsBeforeTheFirstCommand) {
  engine_rig rig;
  rig.host.hold_answers = true;
  rig.engine.bind_to_listener(tag_of_listener);
  rig.client("GET a");
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.host.answer_next();
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34"));
  EXPECT_THAT(rig.sent(), ElementsAre("GET a"));
}

TEST(RedisEngineListener, AnotherTagIsRefusedAndBindsAsUnusable) {
  engine_rig rig;
  rig.engine.bind_to_listener(tag_of_listener);
  rig.client("CLIENT SETNAME fence:orders=35");
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), HasSubstr("-FENCEBAD"));
  rig.client("SET a 1");
  EXPECT_THAT(rig.answers(), HasSubstr("-FENCEBAD"));
  rig.client("FENCE CLEAR", "FENCE GET");
  EXPECT_EQ(rig.answers(), "+OK|*2|$6|orders|$2|34|");
  EXPECT_EQ(rig.host.marks["orders"], fence::token(34));
}

}  // namespace
}  // namespace fencegate::test
