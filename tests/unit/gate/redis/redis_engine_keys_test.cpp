// Commands whose keys only the server can tell: it is asked (COMMAND GETKEYS) on the gate's own link, and nothing of
// the command is sent before the answer.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* migrate = "MIGRATE host 1 acct:1 0 10";

// MIGRATE is such a command. Keys acct:* belong to orders, others to nothing.
struct asking_rig : engine_rig {
  asking_rig()
      : engine_rig([] {
          settings::redis_gate with_a_rule;
          with_a_rule.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
          with_a_rule.unmatched = fence::unmatched::pass;
          return with_a_rule;
        }()) {
    host.snapshot_now.commands = commands_of_redis_7({"migrate"});
    host.hold_answers = true;
  }
};

TEST(EngineKeys, NothingIsSentBeforeTheAnswer) {
  asking_rig rig;
  rig.client(migrate, "GET k");
  EXPECT_THAT(rig.host.seen, ElementsAre("keys " + std::string(migrate)));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.blocked());
  rig.host.server_keys = {"elsewhere"};  // of no resource
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), ElementsAre(migrate, "GET k"));
  EXPECT_THAT(rig.host.seen, testing::SizeIs(1));  // asked once
}

TEST(EngineKeys, TheAnswerDecidesWhichTokenIsNeeded) {
  asking_rig rig;
  rig.client(migrate);
  rig.host.server_keys = {"acct:1"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEMISSING "));
}

TEST(EngineKeys, EachCommandIsAskedForAnew) {
  asking_rig rig;
  rig.client(migrate, migrate);
  rig.host.server_keys = {"elsewhere"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), ElementsAre(migrate));
  ASSERT_TRUE(rig.host.holds_answers());
  rig.host.server_keys = {"acct:1"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-FENCEMISSING "));
}

TEST(EngineKeys, AReservedKeyInTheAnswerIsRefused) {
  asking_rig rig;
  rig.client("MIGRATE host 1 fencegate:epoch 0 10");
  rig.host.server_keys = {"fencegate:epoch"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-FENCEDENY "));
}

// The server could not tell, or its link was lost meanwhile: each argument may be a key.
TEST(EngineKeys, WithoutAnAnswerEveryArgumentIsAKey) {
  for (const auto& [line, code] : std::map<std::string, std::string>{
           {migrate, "-FENCEMISSING "}, {"MIGRATE host 1 k 0 10 COPY fencegate:epoch", "-FENCEDENY "}}) {
    SCOPED_TRACE(line);
    asking_rig rig;
    rig.client(line);
    rig.host.server_keys = std::nullopt;
    rig.host.answer_next();
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_THAT(rig.answers(), StartsWith(code));
  }
}

TEST(EngineKeys, TheBatchInFrontGoesFirst) {
  asking_rig rig;
  rig.host.hold_answers = false;
  rig.bind("orders=34");
  rig.client("SET acct:1 v");
  rig.backend("+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  rig.sent();
  rig.answers();
  rig.host.seen.clear();
  rig.host.hold_answers = true;
  rig.client("SET acct:1 w", migrate);
  EXPECT_THAT(rig.sent(), ElementsAre("SET acct:1 w", "EXEC", watch, mget, "MULTI"));
  EXPECT_THAT(rig.host.seen, IsEmpty());
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.host.server_keys = {"acct:1"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), ElementsAre(migrate, "EXEC", watch, mget, "MULTI"));
}

TEST(EngineKeys, InsideATransactionItIsAskedForAsWell) {
  asking_rig rig;
  rig.client("MULTI");
  rig.backend("+OK");
  rig.sent();
  rig.client(migrate, "EXEC");
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.host.server_keys = {"acct:1"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));  // what is known to be refused stays here
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|+QUEUED|-FENCEMISSING "));
}

TEST(EngineKeys, WhenTheBackendClosesMeanwhileNothingIsSent) {
  asking_rig rig;
  rig.client(migrate, "SET k v");
  rig.engine.end();
  rig.host.server_keys = {"elsewhere"};
  rig.host.answer_next();
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_FALSE(rig.engine.write_in_flight());
}

// It may only have said that it sends no more: its answer is on the way.
TEST(EngineKeys, AClientThatSendsNoMoreMeanwhileIsStillAnswered) {
  asking_rig rig;
  rig.client(migrate);
  EXPECT_FALSE(rig.engine.at_rest());
  EXPECT_FALSE(rig.engine.may_block());
  EXPECT_FALSE(rig.engine.write_in_flight());
  EXPECT_THAT(rig.sent(), IsEmpty());
}

}  // namespace
}  // namespace fencegate::test
