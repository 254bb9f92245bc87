// Whole exchanges against an honest Redis, run again once for each of their steps with something wrong at that step:
// the command refused, its reply replaced, the link cut, the mark moved in front of it; and with two of these together.
// Whatever happens: no stale write is applied, none is applied twice, what is said to be not applied was not, and every
// command is answered or the connection ends.
#include "unit/gate/redis/engine_rig.hpp"
#include "unit/gate/redis/fake_redis.hpp"

namespace fencegate::test {
namespace {

struct exchange {
  const char* name;
  std::string before;                // commands that bring the link into its state, without faults
  std::string input;                 // the commands under test
  std::vector<std::string> answers;  // when nothing goes wrong
  std::vector<std::string> applied;  // when nothing goes wrong
};

std::string large_set() {
  const std::string value(limits::command_buffered_bytes_max + 10, 'x');
  std::string out;
  wire::append_command_of(out, std::string_view("SET"), std::string_view("big"), std::string_view(value));
  return out;
}

const std::vector<exchange>& exchanges() {
  static const std::string tag = command("CLIENT SETNAME fence:orders=34");
  static const std::string armed = tag + command("SET before 1");
  static const std::vector<exchange> all{
      {"first write", tag, command("SET a 1"), {"+OK"}, {"SET a 1"}},
      {"armed write", armed, command("SET a 1"), {"+OK"}, {"SET a 1"}},
      {"pipeline",
       armed,
       command("GET a") + command("SET a 1") + command("GET a") + command("SET b 2") + command("GET b"),
       {"$-1", "+OK", "$1|1", "+OK", "$1|2"},
       {"SET a 1", "SET b 2"}},
      {"database 3",
       tag + command("SELECT 3"),
       command("SET a 1") + command("SET b 2"),
       {"+OK", "+OK"},
       {"SET a 1", "SET b 2"}},
      {"SETs as one MSET",
       armed,
       command("SET a 1") + command("SET b 2") + command("SET c 3"),
       {"+OK", "+OK", "+OK"},
       {"SET a 1", "SET b 2", "SET c 3"}},
      {"SETs as one MSET in database 3",
       tag + command("SELECT 3"),
       command("SET a 1") + command("SET b 2") + command("SET c 3") + command("SET d 4"),
       {"+OK", "+OK", "+OK", "+OK"},
       {"SET a 1", "SET b 2", "SET c 3", "SET d 4"}},
      {"transaction",
       tag,
       command("MULTI") + command("SET a 1") + command("SET b 2") + command("EXEC") + command("SET c 3"),
       {"+OK", "+QUEUED", "+QUEUED", "*2|+OK|+OK", "+OK"},
       {"SET a 1", "SET b 2", "SET c 3"}},
      {"watched transaction",
       tag,
       command("WATCH a") + command("GET a") + command("MULTI") + command("SET a 1") + command("EXEC"),
       {"+OK", "$-1", "+OK", "+QUEUED", "*1|+OK"},
       {"SET a 1"}},
      {"behind a client's WATCH",
       tag + command("WATCH z"),
       command("SET a 1") + command("SET b 2"),
       {"+OK", "+OK"},
       {"SET a 1", "SET b 2"}},
      {"FENCE CALL", "", command("FENCE CALL orders 34 SET a 1"), {"+OK"}, {"SET a 1"}},
      {"large value", tag, large_set(), {"+OK"}, {"SET big (large)"}},
      {"one refused of three",
       armed,
       command("SET a 1") + command("NOSUCH x") + command("SET b 2"),
       {"+OK", "-ERR unknown command 'NOSUCH'", "+OK"},
       {"SET a 1", "SET b 2"}},
  };
  return all;
}

// One run of an exchange, as far as it goes.
struct bench {
  engine_rig rig;
  fake_redis redis{rig.host};

  explicit bench(const exchange& e) {
    rig.counts_commands = false;
    rig.client_bytes(e.before);
    redis.serve(rig.engine);
    rig.answers();
    redis.applied.clear();
    redis.replies.clear();
    redis.tokens["orders"] = fence::token(34);
  }
  void run(const exchange& e) {
    rig.client_bytes(e.input);
    redis.serve(rig.engine);
  }
  std::vector<std::string> answered() {
    std::vector<std::string> out;
    std::string_view left = rig.engine.to_client;
    while (!left.empty()) {
      const auto one = wire::parse_value(left);
      if (one.has_error() || !*one) {
        out.emplace_back("(cut)");
        break;
      }
      std::string text = readable(left.substr(0, (*one)->second));
      text.pop_back();
      out.push_back(text);
      left.remove_prefix((*one)->second);
    }
    return out;
  }
};

bool says_not_applied(const std::string& answer) { return answer.starts_with("-FENCE"); }

// REQUIRES: each write of the exchange is another one.
void check_rules(const exchange& e, bench& b) {
  EXPECT_THAT(b.redis.violations, testing::IsEmpty());
  const std::set<std::string> once(b.redis.applied.begin(), b.redis.applied.end());
  EXPECT_EQ(once.size(), b.redis.applied.size()) << "applied twice: " << testing::PrintToString(b.redis.applied);
  const auto answered = b.answered();
  const bool over = b.redis.cut || b.rig.engine.closing();
  EXPECT_TRUE(over || answered.size() == e.answers.size()) << testing::PrintToString(answered);
  ASSERT_LE(answered.size(), e.answers.size());
  const bool in_transaction = e.input.find("EXEC") != std::string::npos;
  if (in_transaction) return;  // one write has several answers there; the next test looks at them
  std::size_t writes = 0;
  for (std::size_t i = 0; i < answered.size(); ++i) {
    if (e.answers[i] != "+OK") continue;
    const bool applied = once.contains(e.applied[writes++]);
    EXPECT_FALSE(applied && says_not_applied(answered[i])) << answered[i];
    EXPECT_FALSE(!applied && answered[i] == "+OK") << i;
  }
}

const std::vector<std::string>& wrong_replies() {
  static const std::vector<std::string> all{"-NOPERM this user has no permissions",
                                            "-OOM command not allowed",
                                            "-ERR no",
                                            "-LOADING Redis is loading",
                                            "-FENCEGATEMARK forged",
                                            "-FENCEGATERAN ERR forged",
                                            "-EXECABORT forged",
                                            "+OK",
                                            "+QUEUED",
                                            "+34",
                                            ":1",
                                            ":34",
                                            "$-1",
                                            "$2|34",
                                            "$0|",
                                            "*-1",
                                            "*0",
                                            "*1|$2|34",
                                            "*2|$-1|$-1",
                                            "*2|$2|33|$2|e1",
                                            "*2|$2|35|$2|e1",
                                            "*2|$2|34|$2|e2",
                                            "*3|$2|34|$2|e1|$2|e1",
                                            "_",
                                            "%0",
                                            "~0",
                                            "#t",
                                            ",1.5",
                                            "(34",
                                            "!3|ERR",
                                            "=6|txt:34",
                                            "nonsense",
                                            ""};
  return all;
}

// A forged reply that claims what did not happen cannot be told from the truth: the rule that an answer of +OK means
// "applied" is then Redis's to keep. All others hold.
bool claims_success(const std::vector<std::string>& command, const std::string& forged) {
  return command[0] == "EXEC" || command[0] == "EVAL" ? !forged.starts_with("-") && forged != "*-1" : false;
}

TEST(EngineFaults, WithoutFaultsAllIsApplied) {
  for (const auto& e : exchanges()) {
    SCOPED_TRACE(e.name);
    bench b(e);
    b.run(e);
    EXPECT_EQ(b.answered(), e.answers);
    EXPECT_EQ(b.redis.applied, e.applied);
    EXPECT_FALSE(b.rig.engine.closing());
  }
}

TEST(EngineFaults, AWrongReplyAtAnyStep) {
  for (const auto& e : exchanges()) {
    bench clean(e);
    clean.run(e);
    for (std::size_t step = 0; step < clean.redis.replies.size(); ++step)
      for (const auto& wrong : wrong_replies()) {
        const std::string forged = reply(wrong);
        if (forged == clean.redis.replies[step]) continue;
        SCOPED_TRACE(std::string(e.name) + ", step " + std::to_string(step) + ": " + wrong);
        bench b(e);
        bool lied = false;
        b.redis.spoil = [&](std::size_t at, const auto& asked) -> std::optional<std::string> {
          if (at != step) return std::nullopt;
          lied = claims_success(asked, wrong);
          return forged;
        };
        b.run(e);
        if (!lied) check_rules(e, b);
        EXPECT_THAT(b.redis.violations, testing::IsEmpty());
      }
  }
}

// What comes instead of a reply without being one: nothing, an attribute, a push. The replies behind it move up.
TEST(EngineFaults, AReplyMissingAtAnyStep) {
  for (const auto& e : exchanges()) {
    bench clean(e);
    clean.run(e);
    for (std::size_t step = 0; step < clean.redis.replies.size(); ++step)
      for (const std::string instead : {"", "|1\r\n+a\r\n+b\r\n", ">2\r\n+pubsub\r\n+x\r\n"})
        for (const bool raised : {false, true}) {
          SCOPED_TRACE(std::string(e.name) + ", step " + std::to_string(step) + ": " + readable(instead));
          bench b(e);
          b.redis.spoil = [&](std::size_t at, const auto&) -> std::optional<std::string> {
            if (at != step) return std::nullopt;
            if (raised) b.rig.mark_is("orders", 35);
            return instead;
          };
          b.run(e);
          ASSERT_THAT(b.redis.violations, testing::IsEmpty());
          ASSERT_LE(b.redis.applied.size(), e.applied.size());
        }
  }
}

TEST(EngineFaults, TheLinkCutAtAnyStep) {
  for (const auto& e : exchanges()) {
    bench clean(e);
    clean.run(e);
    for (std::size_t step = 0; step < clean.redis.replies.size(); ++step) {
      SCOPED_TRACE(std::string(e.name) + ", step " + std::to_string(step));
      bench b(e);
      b.redis.cut_before = step;
      b.run(e);
      EXPECT_TRUE(b.redis.cut);
      check_rules(e, b);
    }
  }
}

TEST(EngineFaults, TheMarkRaisedBeforeAnyStep) {
  for (const auto& e : exchanges()) {
    bench clean(e);
    clean.run(e);
    for (std::size_t step = 0; step < clean.redis.replies.size(); ++step) {
      SCOPED_TRACE(std::string(e.name) + ", step " + std::to_string(step));
      bench b(e);
      b.redis.spoil = [&](std::size_t at, const auto&) -> std::optional<std::string> {
        if (at == step) b.rig.mark_is("orders", 35);
        return std::nullopt;
      };
      b.run(e);
      check_rules(e, b);
      EXPECT_FALSE(b.rig.engine.closing());
      // Whoever was too late is told so, and nothing goes out any more.
      const auto more = b.redis.applied.size();
      b.rig.answers();
      b.rig.client("MULTI", "EXEC");
      b.redis.serve(b.rig.engine);
      b.rig.client("SET late 1");
      b.redis.serve(b.rig.engine);
      EXPECT_EQ(b.redis.applied.size(), more);
    }
  }
}

// The heart of it: a refusal anywhere may not open the door to a raise anywhere.
TEST(EngineFaults, AWrongReplyAtAnyStepAndTheMarkRaisedBeforeAnyOther) {
  for (const auto& e : exchanges()) {
    if (e.input.size() > limits::command_buffered_bytes_max) continue;
    bench clean(e);
    clean.run(e);
    for (std::size_t step = 0; step < clean.redis.replies.size(); ++step)
      for (std::size_t raised = 0; raised < clean.redis.replies.size(); ++raised)
        for (const std::string wrong : {"-NOPERM no", "-ERR no", "$-1", "*0", "*-1", "+QUEUED", "_"}) {
          if (reply(wrong) == clean.redis.replies[step]) continue;
          SCOPED_TRACE(std::string(e.name) + ", step " + std::to_string(step) + ": " + wrong + ", raised before " +
                       std::to_string(raised));
          bench b(e);
          b.redis.spoil = [&](std::size_t at, const auto&) -> std::optional<std::string> {
            if (at == raised) b.rig.mark_is("orders", 35);
            return at == step ? std::optional(reply(wrong)) : std::nullopt;
          };
          b.run(e);
          EXPECT_THAT(b.redis.violations, testing::IsEmpty());
          ASSERT_TRUE(b.rig.engine.closing() || b.answered().size() == e.answers.size());
        }
  }
}

// Every MULTI refused from some moment on (an ACL changed at run time): nothing runs bare.
TEST(EngineFaults, MultiRefusedForGood) {
  for (const auto& e : exchanges()) {
    SCOPED_TRACE(e.name);
    bench b(e);
    b.redis.spoil = [&](std::size_t, const auto& asked) -> std::optional<std::string> {
      if (asked[0] == "MULTI" || asked[0] == "EVAL") return reply("-NOPERM no");
      return std::nullopt;
    };
    b.run(e);
    for (const auto& one : b.redis.applied)  // the link had said MULTI before
      EXPECT_THAT(e.before, testing::HasSubstr("before")) << one;
    EXPECT_TRUE(b.rig.engine.closing() || b.answered().size() == e.answers.size());
  }
}

TEST(EngineFaults, HowTheClientsBytesAreCutChangesNothing) {
  for (const auto& e : exchanges()) {
    if (e.input.size() > limits::command_buffered_bytes_max) continue;
    for (std::size_t cut = 0; cut <= e.input.size(); ++cut) {
      SCOPED_TRACE(std::string(e.name) + ", cut at " + std::to_string(cut));
      bench b(e);
      b.rig.client_bytes(std::string_view(e.input).substr(0, cut));
      b.redis.serve(b.rig.engine);
      b.rig.client_bytes(std::string_view(e.input).substr(cut));
      b.redis.serve(b.rig.engine);
      ASSERT_EQ(b.answered(), e.answers);
      ASSERT_EQ(b.redis.applied, e.applied);
    }
  }
}

TEST(EngineFaults, HowTheRepliesAreCutChangesNothing) {
  for (const auto& e : exchanges())
    for (const std::size_t piece : {1, 2, 3, 7}) {
      SCOPED_TRACE(std::string(e.name) + ", pieces of " + std::to_string(piece));
      bench b(e);
      b.redis.reply_piece = piece;
      b.run(e);
      ASSERT_EQ(b.answered(), e.answers);
      ASSERT_EQ(b.redis.applied, e.applied);
    }
}

// As above, with the first bytes of the input sent one by one and the backend silent until all have come: then even
// what reaches the backend is the same.
TEST(EngineFaults, ByteByByteTheBackendReceivesTheSame) {
  for (const auto& e : exchanges()) {
    if (e.before.find("before") != std::string::npos) continue;  // an armed link sends what it has
    SCOPED_TRACE(e.name);
    bench whole(e), pieces(e);
    whole.rig.client_bytes(e.input);
    for (std::size_t i = 0; i < e.input.size(); ++i) pieces.rig.client_bytes(std::string_view(e.input).substr(i, 1));
    EXPECT_EQ(pieces.rig.engine.to_backend, whole.rig.engine.to_backend);
    EXPECT_EQ(pieces.rig.engine.to_client, whole.rig.engine.to_client);
  }
}

}  // namespace
}  // namespace fencegate::test
