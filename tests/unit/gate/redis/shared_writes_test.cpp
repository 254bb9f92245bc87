// Writes of many writers over one link: batches, whose answers go where, and what comes back when nothing was applied.
#include "gate/redis/shared_writes.hpp"

#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::gate {
namespace {

using test::command;
using test::marks;
using test::mget;
using test::readable;
using test::watch;
using testing::ElementsAre;
using testing::IsEmpty;

struct writer final : shared_writer {
  void on_shared(std::optional<std::string_view> answer) override {
    told.push_back(answer ? readable(*answer) : "back");
  }
  void on_shared_lost() override { told.emplace_back("lost"); }
  [[nodiscard]] bool gone() const override { return has_gone; }

  std::vector<std::string> told;
  bool has_gone = false;
};

class SharedWrites : public testing::Test {
 protected:
  SharedWrites() {
    host.marks["orders"] = fence::token(34);
    for (auto& one : writers) one = std::make_shared<writer>();
  }

  std::vector<std::string> sent() {
    link.invariants(true);
    commands.take(link.to_backend());
    commands.compare(link.commands_expected());
    std::vector<std::string> out;
    std::string_view left = link.to_backend();
    wire::request_decoder decoder;
    wire::request one;
    while (decoder.decode(left, left.size(), one).status == wire::request_status::complete && !left.empty()) {
      std::string line;
      for (const auto word : one.arguments) line += (line.empty() ? "" : " ") + std::string(word);
      out.push_back(line);
      left.remove_prefix(one.raw.size());
    }
    link.to_backend().clear();
    return out;
  }
  template <class... Lines>
  void backend(const Lines&... lines) {
    link.on_backend_bytes((test::reply(lines) + ...));
    link.feed();
    link.hand_out();
  }
  [[nodiscard]] bool is_taken(std::size_t by, std::string_view words, const fence::claims_list& tag) {
    const auto bytes = command(words);
    batched as{bytes.size(), true, false, words.starts_with("SET")};
    as.plain_set = words.starts_with("SET");
    return link.add(bytes, as, writers[by], tag);
  }
  void add(std::size_t by, std::string_view words) { ASSERT_TRUE(is_taken(by, words, orders)); }
  void open_bare(std::string_view server = "r1") {
    link.on_backend_bytes(test::info_of_server(server));
    link.hand_out();
    sent();
  }
  // Open, bound, armed; the first writer's write is answered.
  void open() {
    open_bare();
    ASSERT_TRUE(link.ready());
    add(0, "SET first 1");
    link.feed();
    EXPECT_THAT(sent(), ElementsAre(name, watch, mget, "MULTI"));
    backend("+OK", "+OK", marks("34"), "+OK");
    backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_THAT(std::exchange(writers[0]->told, {}), ElementsAre("+OK|"));
    sent();
  }

  test::fake_host host;
  settings::redis_gate gate;
  backend::mark_memory memory;
  metrics::gate stats{"shared"};
  static constexpr auto name = "CLIENT SETNAME fencegate-shared;fence:orders=34";
  const fence::claims_list orders{{"orders", fence::token(34)}};
  session_profile like{command("INFO server"), 1, "r1", {}, 0};
  shared_writes link{host, gate, memory, stats, like};
  test::sent_commands commands;
  std::array<std::shared_ptr<writer>, 5> writers;
};

TEST_F(SharedWrites, WhatArrivesWhileOneIsInFlightIsTheNextBatch) {
  open();
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("INCR a", "EXEC", watch, mget, "MULTI"));
  add(1, "INCR b");
  add(2, "RPUSH c x");
  link.feed();
  EXPECT_THAT(sent(), IsEmpty());
  backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR b", "RPUSH c x", "EXEC", watch, mget, "MULTI"));
  backend("+QUEUED", "+QUEUED", "*2|:2|-WRONGTYPE no", "+OK", marks("34"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  EXPECT_THAT(writers[1]->told, ElementsAre(":2|"));
  EXPECT_THAT(writers[2]->told, ElementsAre("-WRONGTYPE no|"));
  EXPECT_EQ(stats.checks(metrics::check_outcome::admitted).value(), 4u);
  EXPECT_EQ(stats.requests(metrics::request_class::write).value(), 0u) << "the writers have counted them";
}

TEST_F(SharedWrites, ALinkThatIsNotReadyOrWhoseServerIsUnfitSendsNothing) {
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("INFO server"));
  open_bare();
  host.snapshot_now.ready = false;
  link.feed();
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, WhatTheUserMayNotIsRefusedForGoodAndWhatPassesIsNot) {
  const auto refusal = [this](const std::string& answer) {
    shared_writes fresh{host, gate, memory, stats, like};
    fresh.on_backend_bytes(answer);
    EXPECT_TRUE(fresh.broken()) << answer;
    return fresh.refusal();
  };
  EXPECT_EQ(refusal("-NOPERM this user\r\n"), "NOPERM this user");
  EXPECT_EQ(refusal("-WRONGPASS no\r\n"), "WRONGPASS no");
  EXPECT_EQ(refusal("-ERR unknown command 'CLIENT'\r\n"), "ERR unknown command 'CLIENT'");
  for (const auto* passing : {"-ERR max number of clients reached\r\n", "-LOADING\r\n", "-BUSY\r\n", "-DENIED\r\n"})
    EXPECT_EQ(refusal(passing), "") << passing;
}

TEST_F(SharedWrites, SetsOfManyWritersGoAsOneMset) {
  open();
  for (std::size_t by = 0; by < 5; ++by) add(by, "SET k" + std::to_string(by) + " v");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("SET k0 v", "MSET k1 v k2 v k3 v k4 v", "EXEC", watch, mget, "MULTI"));
  backend("+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK", marks("34"), "+OK");
  for (const auto& one : writers) EXPECT_THAT(one->told, ElementsAre("+OK|"));
}

TEST_F(SharedWrites, WhatAMovedMarkHasStoppedGoesBack) {
  open();
  add(0, "INCR a");
  add(1, "INCR b");
  link.feed();
  sent();
  backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD"));
  backend("+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, WhatRedisRefusesIsAnsweredAndItsNeighboursGoBack) {
  open();
  add(0, "INCR a");
  add(1, "INCR");
  add(2, "INCR c");
  link.feed();
  sent();
  backend("+QUEUED", "-ERR arity", "+QUEUED", "-EXECABORT no", "+OK", marks("34"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("-ERR arity|"));
  EXPECT_THAT(writers[2]->told, ElementsAre("back"));
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(SharedWrites, WhatWasNotSentGoesBackWhenTheLinkEnds) {
  open();
  add(0, "INCR a");
  add(1, "INCR bb");
  link.feed();
  add(2, "INCR ccc");
  sent();
  backend("+QUEUED", "+QUEUED");
  link.on_backend_end();
  link.hand_out();
  EXPECT_TRUE(link.broken());
  link.end();
  EXPECT_THAT(writers[0]->told, ElementsAre("lost"));
  EXPECT_THAT(writers[1]->told, ElementsAre("lost"));
  EXPECT_THAT(writers[2]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, WhatWaitedForAnArmGoesBackWhenTheLinkEnds) {
  open_bare();
  add(0, "INCR a");
  add(1, "INCR b");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(name, watch, mget, "MULTI"));
  link.on_backend_end();
  link.hand_out();
  link.end();
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, WhatRedisHasNotAppliedGoesBackWhenTheLinkEnds) {
  open();
  add(0, "INCR a");
  add(1, "INCR bb");
  link.feed();
  host.hold_answers = true;  // of the control link, which is to put the mark right
  backend("+QUEUED", "+QUEUED", "*-1", "+OK", test::bulks("nil", "nil"), "+OK");
  backend("+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  link.on_backend_end();
  link.hand_out();
  link.end();
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, AnsweredIsWhatWasAnsweredWholeBeforeTheLinkEnded) {
  open();
  for (std::size_t by = 0; by < 3; ++by) add(by, "APPEND a b");
  link.feed();
  link.on_backend_bytes("+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n:");
  link.on_backend_end();
  link.hand_out();
  link.end();
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  EXPECT_THAT(writers[1]->told, ElementsAre("lost"));
  EXPECT_THAT(writers[2]->told, ElementsAre("lost"));
}

TEST_F(SharedWrites, AnAttributeBelongsToTheAnswerBehindIt) {
  open();
  add(0, "INCR a");
  add(1, "INCR b");
  link.feed();
  sent();
  link.on_backend_bytes("+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n|1\r\n+k\r\n+v\r\n:2\r\n");
  backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  EXPECT_THAT(writers[1]->told, ElementsAre("|1|+k|+v|:2|"));
  EXPECT_FALSE(link.broken());
}

TEST_F(SharedWrites, WhatRedisDoesNotSayEndsTheLinkAndNothingElse) {
  for (const auto* odd : {"*1|>1|:1", "*2|:1|:2", "*1|?", "+OK", "*1|*2|:1|:2|:3"}) {
    shared_writes other(host, gate, memory, stats, like);
    const auto one = std::make_shared<writer>();
    other.on_backend_bytes(test::info_of_server("r1"));
    const auto bytes = command("INCR a");
    const batched as{bytes.size(), true, false, false};
    ASSERT_TRUE(other.add(bytes, as, one, orders));
    other.feed();
    other.on_backend_bytes(test::reply("+OK") + test::reply("+OK") + test::reply(marks("34")) + test::reply("+OK"));
    other.feed();
    other.on_backend_bytes(test::reply("+QUEUED") + test::reply(odd) + test::reply("+OK") + test::reply(marks("34")) +
                           test::reply("+OK"));
    other.hand_out();
    EXPECT_TRUE(other.broken()) << odd;
    other.end();
    EXPECT_EQ(one->told.size(), 1U) << odd;
  }
}

TEST_F(SharedWrites, WhoHasGoneWritesNothingAnyMore) {
  open();
  add(0, "INCR a");
  link.feed();
  sent();
  add(1, "INCR b");
  add(2, "INCR c");
  add(3, "INCR d");
  writers[1]->has_gone = true;
  writers[2].reset();
  backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR d", "EXEC", watch, mget, "MULTI"));
  backend("+QUEUED", "*1|:4", "+OK", marks("34"), "+OK");
  EXPECT_THAT(writers[3]->told, ElementsAre(":4|"));
}

TEST_F(SharedWrites, NothingIsOutOfReachBeforeTheMarksAreProven) {
  open_bare();
  add(0, "INCR a");
  add(1, "INCR b");
  add(2, "INCR c");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(name, watch, mget, "MULTI"));
  writers[0]->has_gone = true;
  EXPECT_TRUE(link.take_back(*writers[2]));
  backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR b", "EXEC", watch, mget, "MULTI"));
}

TEST_F(SharedWrites, ATakeoverIsToldToAllWhoWait) {
  open();
  add(0, "INCR a");
  link.feed();
  for (std::size_t by = 1; by < 5; ++by) add(by, "INCR b");
  backend("+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  backend("+OK");
  for (const auto& one : writers) EXPECT_THAT(one->told, ElementsAre("back"));
  EXPECT_TRUE(link.idle());
}

TEST_F(SharedWrites, WhatWaitsCanBeTakenBackAndGivenBack) {
  open();
  add(0, "INCR a");
  link.feed();
  for (std::size_t by = 1; by < 4; ++by) add(by, "INCR b");
  EXPECT_FALSE(link.take_back(*writers[0])) << "it was sent";
  EXPECT_TRUE(link.take_back(*writers[2]));
  EXPECT_FALSE(link.take_back(*writers[2]));
  link.give_back();
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
  EXPECT_THAT(writers[2]->told, IsEmpty());
  EXPECT_THAT(writers[3]->told, ElementsAre("back"));
  sent();
  backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(SharedWrites, ALinkThatIsNotLikeItsWritersIsOfNoUse) {
  for (const auto* refusal : {"-NOPERM no", "-NOAUTH no"}) {
    shared_writes other(host, gate, memory, stats, like);
    other.on_backend_bytes(test::reply(refusal));
    other.hand_out();
    EXPECT_FALSE(other.ready());
    EXPECT_TRUE(other.broken());
  }
}

TEST_F(SharedWrites, WhatIsKnownAsOvertakenGoesBackAtOnce) {
  memory.cell("orders")->saw(fence::token(35));
  open_bare();
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(name));
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
}

TEST_F(SharedWrites, ALinkToAnotherServerIsOfNoUse) {
  open_bare("r2");
  EXPECT_TRUE(link.broken());
}

TEST_F(SharedWrites, AnArmInVainIsNotRepeated) {
  open_bare();
  add(0, "INCR a");
  add(1, "INCR b");
  link.feed();
  backend("+OK", "-NOPERM no", "-NOPERM no", "+OK");
  EXPECT_THAT(sent(), ElementsAre(name, watch, mget, "MULTI", "DISCARD"));
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
  backend("+OK");
  add(2, "INCR c");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
}

// ── several tags ────────────────────────────────────────────────────────────────────────────────────────────────────

class SharedWritesOfTags : public SharedWrites {
 protected:
  static constexpr auto both_names = "CLIENT SETNAME fencegate-shared;fence:orders=34,stock=7";
  static constexpr auto watch_both = "WATCH fencegate:mark:{orders} fencegate:mark:{stock}";
  static constexpr auto mget_both = "MGET fencegate:mark:{orders} fencegate:mark:{stock} fencegate:epoch";
  static fence::claims_list tag(const std::string& resource, std::int64_t token) {
    return {{resource, fence::token(token)}};
  }
  // Bound to both; nobody waits.
  void open_both() {
    host.marks["stock"] = fence::token(7);
    open();
    ASSERT_TRUE(is_taken(1, "INCR s", stock));
    link.feed();
    EXPECT_THAT(sent(), ElementsAre("DISCARD", both_names, watch_both, mget_both, "MULTI"));
    backend("+OK", "+OK", "+OK", test::bulks("34", "7", "e1"), "+OK");
    EXPECT_THAT(sent(), ElementsAre("INCR s", "EXEC", watch_both, mget_both, "MULTI"));
    backend("+QUEUED", "*1|:1", "+OK", test::bulks("34", "7", "e1"), "+OK");
    EXPECT_THAT(std::exchange(writers[1]->told, {}), ElementsAre(":1|"));
  }
  const fence::claims_list stock{{"stock", fence::token(7)}};
};

TEST_F(SharedWritesOfTags, GoInOneBatchBehindTheProofOfAll) {
  open_both();
  add(0, "INCR a");
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  EXPECT_TRUE(is_taken(2, "SET both 1", {orders[0], stock[0]}));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("DISCARD", both_names, watch_both, mget_both, "MULTI"));
  backend("+OK", "+OK", "+OK", test::bulks("34", "7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR a", "INCR s", "SET both 1", "EXEC", watch_both, mget_both, "MULTI"));
  backend("+QUEUED", "+QUEUED", "+QUEUED", "*3|:1|:2|+OK", "+OK", test::bulks("34", "7", "e1"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  EXPECT_THAT(writers[1]->told, ElementsAre(":2|"));
  EXPECT_THAT(writers[2]->told, ElementsAre("+OK|"));
}

TEST_F(SharedWritesOfTags, ATakeoverOfOneStopsTheBatchAndThenOnlyItsOwn) {
  open_both();
  add(0, "INCR a");
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  sent();
  EXPECT_TRUE(is_taken(2, "INCR t", stock));
  add(3, "INCR b");
  backend("+QUEUED", "+QUEUED", "*-1", "+OK", test::bulks("35", "7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD", "WATCH fencegate:mark:{stock}",
                                  "MGET fencegate:mark:{stock} fencegate:epoch", "MULTI"));
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
  EXPECT_THAT(writers[3]->told, ElementsAre("back"));
  backend("+OK", "+OK", test::bulks("7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR t", "EXEC", testing::_, testing::_, "MULTI"));
  add(4, "INCR c");
  backend("+QUEUED", "*1|:3", "+OK", test::bulks("7", "e1"), "+OK");
  EXPECT_THAT(writers[2]->told, ElementsAre(":3|"));
  EXPECT_THAT(writers[4]->told, ElementsAre("back")) << "nothing leaves without its tag's proof";
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(SharedWritesOfTags, AnArmIsRepeatedWithoutTheMarkInItsWayAndNotAgain) {
  open_bare();
  host.marks["stock"] = fence::token(7);
  add(0, "INCR a");
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(both_names, watch_both, mget_both, "MULTI"));
  backend("+OK", "+OK", test::bulks("35", "7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD", "WATCH fencegate:mark:{stock}",
                                  "MGET fencegate:mark:{stock} fencegate:epoch", "MULTI"));
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, IsEmpty());
  backend("+OK", "-NOPERM no", "-NOPERM no", "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
}

TEST_F(SharedWritesOfTags, AHigherTokenTakesThePlaceOfALowerOneAndNotTheOtherWayRound) {
  open();
  host.marks["orders"] = fence::token(35);
  EXPECT_TRUE(is_taken(1, "INCR s", tag("orders", 35)));
  EXPECT_FALSE(is_taken(0, "INCR a", orders));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("DISCARD", "CLIENT SETNAME fencegate-shared;fence:orders=35", watch, mget, "MULTI"));
  backend("+OK", "+OK", "+OK", marks("35"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR s", "EXEC", watch, mget, "MULTI"));
}

TEST_F(SharedWritesOfTags, WhatWaitsUnderALowerTokenGoesBack) {
  open();
  add(0, "INCR a");
  host.marks["orders"] = fence::token(35);
  EXPECT_TRUE(is_taken(1, "INCR s", tag("orders", 35)));
  link.feed();
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  sent();
  backend("+OK", "+OK", "+OK", marks("35"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR s", "EXEC", watch, mget, "MULTI"));
}

TEST_F(SharedWritesOfTags, ThereIsRoomForSoManyResourcesUntilTheyAreNotUsedAnyMore) {
  open();
  for (std::size_t i = 1; i < limits::tag_resources_max; ++i) {
    EXPECT_TRUE(is_taken(1, "INCR s", tag("r" + std::to_string(i), 1))) << i;
    EXPECT_TRUE(link.take_back(*writers[1]));
  }
  EXPECT_FALSE(is_taken(1, "INCR s", stock));
  add(0, "INCR a");
  EXPECT_TRUE(link.take_back(*writers[0]));
  host.clock += limits::shared_tag_kept_min + std::chrono::milliseconds(1);
  add(0, "INCR a");
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("DISCARD", both_names, watch_both, mget_both, "MULTI"));
}

TEST_F(SharedWritesOfTags, WhatMakesRoomIsNotCountedAsIfItWasStillThere) {
  open_bare();
  fence::claims_list half, other_half;
  for (std::size_t i = 0; i < limits::tag_resources_max / 2; ++i) {
    half.push_back({"a" + std::to_string(i), fence::token(1)});
    other_half.push_back({"b" + std::to_string(i), fence::token(1)});
  }
  auto more = half;
  more.push_back({"c", fence::token(1)});
  EXPECT_TRUE(is_taken(0, "INCR a", half));
  host.clock += limits::shared_tag_kept_min + std::chrono::milliseconds(1);
  EXPECT_TRUE(is_taken(1, "INCR b", other_half));
  EXPECT_FALSE(is_taken(2, "INCR c", more));
  EXPECT_TRUE(is_taken(2, "INCR c", half));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(testing::_, testing::_, testing::_, "MULTI"));
  EXPECT_THAT(writers[0]->told, ElementsAre("back")) << "its tag was forgotten, and has come anew behind it";
}

TEST_F(SharedWritesOfTags, ThereIsRoomForSoManyTags) {
  open();
  std::size_t taken = 1;
  for (std::size_t i = 0; i < limits::tag_resources_max; ++i)
    taken += is_taken(1, "INCR s",
                      {{"r" + std::to_string(i % 8), fence::token(1)}, {"s" + std::to_string(i / 8), fence::token(1)}});
  EXPECT_EQ(taken, limits::tag_resources_max);
}

TEST_F(SharedWritesOfTags, ALowerTokenIsTakenAgainWhenNobodyHasWrittenUnderTheHigherOne) {
  open();
  host.marks["orders"] = fence::token(35);
  EXPECT_TRUE(is_taken(1, "INCR s", tag("orders", 35)));
  EXPECT_TRUE(link.take_back(*writers[1]));
  EXPECT_FALSE(is_taken(0, "INCR a", orders));
  host.clock += limits::shared_tag_kept_min + std::chrono::milliseconds(1);
  EXPECT_TRUE(is_taken(0, "INCR a", orders)) << "an operator has lowered the mark: its engine holds the claim";
}

TEST_F(SharedWritesOfTags, ATagIsBoundThoughNobodyWaitsForWhatWasProven) {
  open_bare();
  host.marks["stock"] = fence::token(7);
  add(0, "INCR a");
  link.feed();
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  writers[0]->has_gone = true;
  sent();
  backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD", both_names, watch_both, mget_both, "MULTI"));
}

TEST_F(SharedWritesOfTags, OneThatIsNotUsedAnyMoreIsNotWatchedForLong) {
  open_both();
  host.clock += limits::shared_tag_kept_min + std::chrono::milliseconds(1);
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("INCR a", "EXEC", watch_both, mget_both, "MULTI")) << "nobody needs its room";
  backend("+QUEUED", "*1|:1", "+OK", test::bulks("34", "7", "e1"), "+OK");
  host.clock += limits::shared_tag_kept_max;
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("DISCARD", name, watch, mget, "MULTI"));
  backend("+OK", "+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR a", "EXEC", watch, mget, "MULTI"));
}

TEST_F(SharedWritesOfTags, ATagThatComesDuringAnArmWaitsForTheBatchBehindIt) {
  open_bare();
  host.marks["stock"] = fence::token(7);
  add(0, "INCR a");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(name, watch, mget, "MULTI"));
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR a", "EXEC", watch, mget, "MULTI"));
  add(2, "INCR b");
  EXPECT_TRUE(is_taken(3, "INCR t", stock));
  backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("DISCARD", both_names, watch_both, mget_both, "MULTI"));
  backend("+OK", "+OK", "+OK", test::bulks("34", "7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR s", "INCR b", "INCR t", "EXEC", watch_both, mget_both, "MULTI"));
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  for (std::size_t by = 1; by < 4; ++by) EXPECT_THAT(writers[by]->told, IsEmpty());
}

TEST_F(SharedWritesOfTags, ATagThatComesBehindAnArmNobodyWaitsForIsBound) {
  open_bare();
  host.marks["stock"] = fence::token(7);
  add(0, "INCR a");
  link.feed();
  link.give_back();
  backend("+OK", "-NOPERM no", "-NOPERM no", "+OK");
  backend("+OK");
  sent();
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(both_names, watch_both, mget_both, "MULTI"));
}

TEST_F(SharedWritesOfTags, AMarkThatIsKnownToHaveMovedEndsNoBatchOfOthers) {
  open_both();
  memory.cell("orders")->saw(fence::token(35));
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre("DISCARD", "WATCH fencegate:mark:{stock}",
                                  "MGET fencegate:mark:{stock} fencegate:epoch", "MULTI"));
  backend("+OK", "+OK", test::bulks("7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR s", "EXEC", testing::_, testing::_, "MULTI"));
}

TEST_F(SharedWritesOfTags, WhatIsOnlyWatchedIsNotProven) {
  auto only_watched = gate.policy;
  only_watched.mode = fence::enforcement::monitor;
  gate.resources.push_back(*fence::key_rule::compile("stock:*", "stock", only_watched));
  open_bare();
  host.marks["stock"] = fence::token(7);
  EXPECT_TRUE(is_taken(0, "INCR a", {orders[0], stock[0]}));
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(both_names, watch, mget_both, "MULTI"));
  backend("+OK", "+OK", test::bulks("34", "7", "e1"), "+OK");
  EXPECT_THAT(sent(), ElementsAre("INCR a", "EXEC", watch, mget_both, "MULTI"));
  backend("+QUEUED", "*1|:1", "+OK", test::bulks("34", "8", "e1"), "+OK");
  EXPECT_THAT(writers[0]->told, ElementsAre(":1|"));
  sent();
  EXPECT_TRUE(is_taken(1, "INCR b", {orders[0], stock[0]}));
  link.feed();
  EXPECT_THAT(writers[1]->told, ElementsAre("back")) << "its own link tells and counts that it is stale";
}

TEST_F(SharedWritesOfTags, ALaterNameMayFailForAMoment) {
  open();
  EXPECT_TRUE(is_taken(1, "INCR s", stock));
  link.feed();
  backend("+OK", "-BUSY a script", "-BUSY a script", "-BUSY a script", "-BUSY a script");
  EXPECT_FALSE(link.broken());
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
}

TEST_F(SharedWritesOfTags, AServerThatRefusesTheNameIsNotAskedAgain) {
  open_bare();
  add(0, "INCR a");
  link.feed();
  backend("-NOPERM this user", "+OK", marks("34"), "+OK");
  EXPECT_TRUE(link.broken());
  EXPECT_EQ(link.refusal(), "NOPERM this user");
  link.end();
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
}

}  // namespace
}  // namespace fencegate::gate
