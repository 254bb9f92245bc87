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
  void add(std::size_t by, std::string_view words) {
    const auto bytes = command(words);
    batched as{bytes.size(), true, false, words.starts_with("SET")};
    as.plain_set = words.starts_with("SET");
    link.add(bytes, as, writers[by]);
  }
  void open_bare(std::string_view server = "r1") {
    backend("+OK");
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
    backend("+OK", marks("34"), "+OK");
    backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_THAT(std::exchange(writers[0]->told, {}), ElementsAre("+OK|"));
    sent();
  }

  test::fake_host host;
  settings::redis_gate gate;
  backend::mark_memory memory;
  metrics::gate stats{"shared"};
  session_profile like{
      command("CLIENT SETNAME fence:orders=34") + command("INFO server"), 2, "r1", {{"orders", fence::token(34)}}, 0};
  shared_writes link{host, gate, memory, stats, like};
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
  EXPECT_THAT(sent(), ElementsAre("CLIENT SETNAME fence:orders=34", "INFO server"));
  open_bare();
  host.now_picture.ready = false;
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
  EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
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
    other.on_backend_bytes(test::reply("+OK") + test::info_of_server("r1"));
    const auto bytes = command("INCR a");
    const batched as{bytes.size(), true, false, false};
    other.add(bytes, as, one);
    other.feed();
    other.on_backend_bytes(test::reply("+OK") + test::reply(marks("34")) + test::reply("+OK"));
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
  EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
  writers[0]->has_gone = true;
  EXPECT_TRUE(link.take_back(*writers[2]));
  backend("+OK", marks("34"), "+OK");
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

TEST_F(SharedWrites, ALinkWhoseTagWasOvertakenIsOfNoUse) {
  memory.cell("orders")->saw(fence::token(35));
  open_bare();
  EXPECT_TRUE(link.broken());
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
  backend("-NOPERM no", "-NOPERM no", "+OK");
  EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI", "DISCARD"));
  EXPECT_THAT(writers[0]->told, ElementsAre("back"));
  EXPECT_THAT(writers[1]->told, ElementsAre("back"));
  backend("+OK");
  add(2, "INCR c");
  link.feed();
  EXPECT_THAT(sent(), ElementsAre(watch, mget, "MULTI"));
}

}  // namespace
}  // namespace fencegate::gate
