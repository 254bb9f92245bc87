// Commands that change the connection, what answers more or less than once, and broken input.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// ── CLIENT REPLY ────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineConnection, ClientReplyNeverReachesTheBackend) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY ON", "CLIENT REPLY X");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.answers(), "+OK|-ERR syntax error|");
}

TEST(EngineConnection, ReplyOffSilencesAllUntilOn) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT REPLY OFF", "SET a 1", "GET a", "FLUSHALL", "CLIENT REPLY ON", "GET a");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|$1|1", "+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "*1|$1|1", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|$1|1|");
}

TEST(EngineConnection, ReplySkipSilencesTheNextCommandAlone) {
  engine_rig rig;
  rig.client("CLIENT REPLY SKIP", "GET a", "GET b");
  rig.backend("$1|a", "$1|b");
  EXPECT_EQ(rig.answers(), "$1|b|");
  rig.client("CLIENT REPLY SKIP", "SET k v", "SET k v");
  EXPECT_THAT(rig.answers(), AllOf(StartsWith("-FENCEMISSING "), Not(HasSubstr("|-"))));
}

TEST(EngineConnection, ASkippedWriteThatIsSentAgainStaysSilent) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT REPLY SKIP", "SET a 1", "SET b 2");
  rig.backend("+QUEUED", "+QUEUED", "*-1", "+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "+QUEUED", "*2|+OK|:2", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), ":2|");
}

// ── HELLO, RESET, AUTH, QUIT ────────────────────────────────────────────────────────────────────────────────────────

TEST(EngineConnection, HelloWithANameBindsItsTag) {
  engine_rig rig;
  rig.client("HELLO 3 AUTH user fence:orders=1 SETNAME fence:orders=34");
  EXPECT_THAT(rig.host.seen, IsEmpty());
  rig.backend("%1|$5|proto|:3");
  EXPECT_THAT(rig.host.seen, ElementsAre("raise orders 34"));
  EXPECT_EQ(rig.answers(), "%1|$5|proto|:3|");
}

// A client takes an error of HELLO for "nothing has changed".
TEST(EngineConnection, HelloWithAStaleTokenRestoresTheProtocol) {
  engine_rig rig;
  rig.mark_is("orders", 35);
  rig.client("HELLO 3 SETNAME fence:orders=34");
  rig.sent();
  rig.backend("%1|$5|proto|:3");
  EXPECT_THAT(rig.sent(), ElementsAre("HELLO 2"));
  rig.backend("*2|$5|proto|:2");
  EXPECT_EQ(rig.answers(), "-FENCED token 34 of orders is below mark 35; not applied|");
  rig.client("FENCE GET nosuch");
  EXPECT_EQ(rig.answers(), "$-1|");  // RESP2's null
}

TEST(EngineConnection, AHelloThatFailedChangesNothing) {
  engine_rig rig;
  rig.client("HELLO 4");
  rig.backend("-NOPROTO unsupported protocol version");
  rig.client("FENCE GET nosuch");
  EXPECT_EQ(rig.answers(), "-NOPROTO unsupported protocol version|$-1|");
}

TEST(EngineConnection, ResetEndsBindingDatabaseAndProtocol) {
  engine_rig rig;
  rig.client("HELLO 3");
  rig.backend("%0");
  rig.bind("orders=34");
  rig.client("SELECT 3");
  rig.backend("+OK");
  rig.client("RESET");
  rig.backend("+RESET");
  rig.answers();
  rig.sent();
  rig.client("FENCE GET nosuch", "FENCE GET", "SET k v");
  EXPECT_THAT(rig.answers(), StartsWith("$-1|*0|-FENCEMISSING "));
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));  // database 0
}

TEST(EngineConnection, ResetInsideATransactionEndsIt) {
  engine_rig rig;
  rig.arm();
  rig.client("MULTI", "SET a 1", "RESET");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "RESET"));
  rig.backend("+QUEUED", "+RESET");
  EXPECT_EQ(rig.answers(), "+OK|+QUEUED|+RESET|");
  rig.client("EXEC");
  EXPECT_EQ(rig.answers(), "-ERR EXEC without MULTI|");
}

TEST(EngineConnection, ANewUserIsAskedAnewBeforeItMayRaise) {
  engine_rig rig;
  rig.client("FENCE SET orders 34");
  rig.backend("+PONG");
  rig.client("AUTH other secret");
  rig.backend("+OK");
  rig.sent();
  rig.client("FENCE SET orders 35");
  EXPECT_THAT(rig.sent(), ElementsAre("PING"));
}

TEST(EngineConnection, WhatChangesTheConnectionWaitsForAQuietLink) {
  engine_rig rig;
  rig.arm();
  rig.client("GET a", "SELECT 1", "GET b");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|$1|x", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SELECT 1"));
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("GET b"));
}

// Redis refuses them inside MULTI, or saves after EXEC only.
TEST(EngineConnection, WhatSavesIsSentOutsideOfMulti) {
  for (const std::string line : {"SAVE", "BGSAVE", "BGSAVE SCHEDULE", "BGREWRITEAOF", "bgsave"}) {
    SCOPED_TRACE(line);
    engine_rig rig;
    rig.arm();
    rig.client(line);
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", line));
    rig.backend("+OK", "+Background saving started");
    EXPECT_EQ(rig.answers(), "+Background saving started|");
    rig.client("SET a 1");
    EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  }
}

TEST(EngineConnection, WhatSavesWaitsForTheBatchInFrontOfIt) {
  for (const std::string line : {"SAVE", "BGSAVE", "BGREWRITEAOF"}) {
    SCOPED_TRACE(line);
    engine_rig rig;
    rig.arm();
    rig.client("SET a 1", line, "SET b 2");
    EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
    rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", line, watch, mget, "MULTI"));
  }
}

TEST(EngineConnection, QuitIsAnsweredBehindWhatWasAskedBefore) {
  engine_rig rig;
  rig.client("GET a", "QUIT", "GET b");
  EXPECT_THAT(rig.sent(), Not(testing::Contains("QUIT")));
  EXPECT_FALSE(rig.engine.closing());
  rig.backend("$1|a");
  EXPECT_EQ(rig.answers(), "$1|a|+OK|");
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineConnection, ClientCachingStaysNextToItsRead) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT CACHING YES", "GET a");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "CLIENT CACHING YES", "GET a"));
}

// A proof in between would use it up, and the client never hear that what it was shown has changed.
TEST(EngineConnection, ClientCachingIsInFrontOfNothingThatIsFenced) {
  for (const char* script : {"EVAL script 1 k", "EVALSHA sha 1 k", "FCALL f 1 k"}) {
    engine_rig rig;
    rig.arm();
    rig.client("CLIENT CACHING YES", script);
    EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "CLIENT CACHING YES"));
    rig.backend("+OK", "+OK");
    EXPECT_EQ(rig.answers(),
              "+OK|-FENCEDENY CLIENT CACHING does not reach this command; put both behind MULTI; not applied|");
    rig.client(script);
    EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI")) << script;
  }
}

TEST(EngineConnection, ClientCachingIsUsedUpByAWrite) {
  engine_rig rig;
  rig.arm();
  rig.client("CLIENT CACHING YES", "SET k v", "EVAL script 1 k");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "CLIENT CACHING YES", watch, mget, "MULTI"));
  rig.backend("+OK", "+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EVAL script 1 k", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineConnection, MonitorPassesLinesAndNothingElse) {
  engine_rig rig;
  rig.client("MONITOR");
  rig.backend("+OK", "+1 [0 x] \"GET\"");
  EXPECT_EQ(rig.answers(), "+OK|+1 [0 x] \"GET\"|");
  rig.sent();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(EngineConnection, WhatStandsBehindTheResetOfAMonitorWaitsForIt) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("MONITOR");
  rig.backend("+OK");
  rig.sent();
  rig.answers();
  rig.client("PING", "RESET", "GET k", "SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("PING"));
  rig.backend("+2 [0 x] \"RESET\"", "+PONG");
  EXPECT_THAT(rig.sent(), ElementsAre("RESET"));
  rig.backend("+3 [0 x] \"RESET\"");
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.backend("+RESET");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k"));
  rig.backend("$1|v");
  EXPECT_THAT(rig.answers(),
              testing::StartsWith("+2 [0 x] \"RESET\"|+PONG|+3 [0 x] \"RESET\"|+RESET|$1|v|-FENCEMISSING "));
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineConnection, AnswersDuringMonitorKeepTheirOrder) {
  engine_rig rig;
  rig.client("MONITOR");
  rig.backend("+OK");
  rig.answers();
  rig.client("PING", "GET k", "RESET x", "QUIT");
  EXPECT_EQ(rig.answers(), "");
  rig.backend("+PONG");
  const std::string no = "-ERR only PING, RESET and QUIT are allowed while MONITOR runs|";
  EXPECT_EQ(rig.answers(), "+PONG|" + no + no + "+OK|");
  EXPECT_TRUE(rig.engine.closing());
}

// ── before authentication ───────────────────────────────────────────────────────────────────────────────────────────

constexpr const char* eleven = "DEL 1 2 3 4 5 6 7 8 9 10";

struct stranger : engine_rig {
  stranger() { host.snapshot_now.wants_auth = true; }
};

TEST(EngineConnection, AStrangerMaySendLittle) {
  const std::vector<std::pair<std::string, std::string>> too_much{
      {command(eleven), "multibulk"}, {command("GET " + std::string(16 * 1024 + 1, 'x')), "bulk"}};
  for (const auto& [bytes, which] : too_much) {
    stranger rig;
    rig.client_bytes(bytes.substr(0, 40));
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_EQ(rig.answers(), "-ERR Protocol error: unauthenticated " + which + " length|");
    EXPECT_THAT(rig.sent(), IsEmpty());
  }
  engine_rig without_password;
  without_password.client(eleven);
  EXPECT_FALSE(without_password.engine.closing());
}

TEST(EngineConnection, WhoHasSignedInMaySendMore) {
  for (const auto& [line, answer] : std::map<std::string, std::string>{
           {"AUTH user secret", "+OK"}, {"HELLO 3 AUTH user secret", "%0"}, {"PING", "+PONG"}}) {
    SCOPED_TRACE(line);
    stranger rig;
    rig.client(line);
    rig.backend(answer);
    rig.client(eleven);
    EXPECT_FALSE(rig.engine.closing());
  }
}

TEST(EngineConnection, WhomTheServerHasShownTheMarksIsNoStrangerWhenItWantsAPassword) {
  engine_rig rig;
  rig.arm();
  rig.host.snapshot_now.wants_auth = true;
  rig.client(eleven);
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineConnection, WhoWasRefusedOrHasLeftIsAStranger) {
  for (const auto& [line, answer] : std::map<std::string, std::string>{
           {"AUTH user wrong", "-WRONGPASS no"}, {"PING", "-NOAUTH no"}, {"HELLO 3", "-NOAUTH no"}}) {
    SCOPED_TRACE(line);
    stranger rig;
    rig.client(line);
    rig.backend(answer);
    rig.client(eleven);
    EXPECT_TRUE(rig.engine.closing());
  }
  stranger rig;
  rig.client("AUTH user secret");
  rig.backend("+OK");
  rig.client("RESET");
  rig.backend("+RESET");
  rig.client(eleven);
  EXPECT_TRUE(rig.engine.closing());
}

// ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────────

std::string confirm(std::string_view kind, std::string_view channel, int count) {
  return "*3|" + bulk(kind) + "|" + bulk(channel) + "|:" + std::to_string(count);
}

TEST(EngineConnection, ASubscriptionHasAsManyAnswersAsChannels) {
  engine_rig rig;
  rig.client("SUBSCRIBE a b");
  rig.client("PING");
  EXPECT_THAT(rig.sent(), ElementsAre("SUBSCRIBE a b"));
  rig.backend(confirm("subscribe", "a", 1), confirm("subscribe", "b", 2));
  EXPECT_THAT(rig.sent(), ElementsAre("PING"));
  rig.backend("*3|$7|message|$1|a|$1|m", "*2|$4|pong|$0|");
  EXPECT_THAT(rig.answers(), testing::EndsWith("|*3|$7|message|$1|a|$1|m|*2|$4|pong|$0||"));
  EXPECT_FALSE(rig.engine.closing());
}

TEST(EngineConnection, InResp2ASubscribedClientMayNotWrite) {
  engine_rig rig;
  rig.client("SUBSCRIBE a");
  rig.backend(confirm("subscribe", "a", 1));
  rig.answers();
  rig.sent();
  rig.client("SET k v", "GET k", "MULTI");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.answers(), StartsWith("-ERR Can't execute 'set'"));
}

TEST(EngineConnection, AWatchWithoutAKeyWatchesNothing) {
  engine_rig rig;
  rig.arm();
  rig.client("WATCH");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "WATCH"));
  rig.backend("+OK", "-ERR arity");
  EXPECT_EQ(rig.answers(), "-ERR arity|");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI")) << "it is armed, not wrapped";
}

TEST(EngineConnection, WhoHasGoneLeavesNothingToFinishInATransactionOrBehindAWatch) {
  engine_rig rig;
  rig.arm();
  rig.client("INCR a");
  EXPECT_FALSE(rig.engine.has_finished()) << "its write is in flight";
  rig.backend("+QUEUED", "*1|:1", "+OK", marks("34"), "+OK");
  EXPECT_FALSE(rig.engine.has_finished()) << "its answer was not sent";
  rig.answers();
  EXPECT_TRUE(rig.engine.has_finished());
  rig.client("MULTI", "SET k v");
  rig.backend("+QUEUED");
  rig.answers();
  EXPECT_TRUE(rig.engine.has_finished());
  EXPECT_FALSE(rig.engine.at_rest());
  rig.client("EXEC");
  EXPECT_FALSE(rig.engine.has_finished());
  rig.backend("*1|+OK", "+OK", marks("34"), "+OK");
  rig.answers();
  rig.client("WATCH k");
  rig.backend("+OK", "+OK");
  rig.answers();
  EXPECT_TRUE(rig.engine.has_finished());
  EXPECT_FALSE(rig.engine.at_rest());
}

TEST(EngineConnection, UnsubscribeWithoutChannelsAnswersOncePerChannel) {
  engine_rig rig;
  rig.client("SUBSCRIBE a b");
  rig.backend(confirm("subscribe", "a", 1), confirm("subscribe", "b", 2));
  rig.client("UNSUBSCRIBE", "GET k");
  rig.sent();
  rig.backend(confirm("unsubscribe", "a", 1));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.backend(confirm("unsubscribe", "b", 0));
  EXPECT_THAT(rig.sent(), ElementsAre("GET k"));
}

TEST(EngineConnection, InResp3WritesGoOnBesideSubscriptions) {
  engine_rig rig;
  rig.client("HELLO 3");
  rig.backend("%0");
  rig.bind("orders=34");
  rig.client("SUBSCRIBE a");
  rig.backend(">3|$9|subscribe|$1|a|:1");
  rig.sent();
  rig.answers();
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", ">3|$7|message|$1|a|$1|m", marks("34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), ">3|$7|message|$1|a|$1|m|+OK|");
}

TEST(EngineConnection, InvalidationsOfMarksAreTheGatesOwn) {
  engine_rig rig;
  rig.client("HELLO 3");
  rig.backend("%0");
  rig.answers();
  rig.backend(">2|$10|invalidate|*1|" + bulk("fencegate:mark:{orders}"));
  EXPECT_EQ(rig.answers(), "");
  rig.backend(">2|$10|invalidate|*2|" + bulk("fencegate:mark:{orders}") + "|$1|k");
  EXPECT_EQ(rig.answers(), ">2|$10|invalidate|*1|$1|k|");
}

// ── what a client may send that is no command ───────────────────────────────────────────────────────────────────────

TEST(EngineConnection, ProtocolErrorsAreAnsweredAndEnd) {
  for (const std::string bytes : {"*1\r\n$abc\r\n", "*x\r\n", "*1\r\n:3\r\n", "POST / HTTP/1.1\r\n", "GET \"a\r\n",
                                  "*1\r\n$3\r\nGETxx", "*1\r\n$-1\r\n"}) {
    SCOPED_TRACE(readable(bytes));
    engine_rig rig;
    rig.client_bytes(bytes);
    EXPECT_THAT(rig.answers(), StartsWith("-ERR Protocol error"));
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_THAT(rig.sent(), IsEmpty());
    EXPECT_EQ(rig.stats.protocol_errors(metrics::side::client).value(), 1u);
  }
}

TEST(EngineConnection, AProtocolErrorWaitsForTheAnswersBeforeIt) {
  engine_rig rig;
  rig.arm();
  rig.client_bytes(command("SET a 1") + "*x\r\n");
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.answers(), StartsWith("+OK|-ERR Protocol error"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineConnection, NothingIsReadBehindAProtocolError) {
  engine_rig rig;
  rig.client_bytes(command("GET a") + "*x\r\n");
  rig.client("GET b");
  EXPECT_THAT(rig.sent(), ElementsAre("GET a"));
}

TEST(EngineConnection, EmptyCommandsHaveNoAnswer) {
  engine_rig rig;
  rig.client_bytes("*0\r\n\r\n*-1\r\n");
  EXPECT_EQ(rig.answers(), "");
  EXPECT_TRUE(rig.engine.at_rest());
}

TEST(EngineConnection, InlineCommandsAreForwardedAsTheyWereUnderstood) {
  engine_rig rig;
  rig.arm();
  rig.client_bytes("set  k \"a\\x41\"\r\n");
  EXPECT_THAT(rig.sent(), ElementsAre("set k aA", "EXEC", watch, mget, "MULTI"));
}

TEST(EngineConnection, ABackendThatIsAwayIsSaidToEveryCommand) {
  engine_rig rig;
  rig.engine.from_client.append(command("GET a") + command("SET k v"));
  rig.engine.fail_all("connection refused");
  const auto answers = rig.answers();
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '|'), 2);
  EXPECT_THAT(answers, AllOf(StartsWith("-FENCEDOWN "), HasSubstr("connection refused")));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(EngineConnection, RestIsWhenNothingIsHalfSaid) {
  engine_rig rig;
  EXPECT_TRUE(rig.engine.at_rest());
  rig.client("GET a");
  EXPECT_FALSE(rig.engine.at_rest());
  rig.backend("$1|a");
  rig.answers();
  EXPECT_TRUE(rig.engine.at_rest());
  rig.client("WATCH k");
  rig.backend("+OK");
  rig.answers();
  EXPECT_FALSE(rig.engine.at_rest());  // a transaction is about to come
}

}  // namespace
}  // namespace fencegate::test
