// The section `gates`: every key of a redis gate, and what must hold between gates.
#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(ConfigTest, GateDefaultsAreThoseOfTheStructs) {
  const auto gate = gate_of(gate_with(""));
  const settings::redis_gate defaults;
  EXPECT_EQ(gate.name, "cache");
  EXPECT_EQ(gate.listen, (settings::address{"127.0.0.1", 6380, ""}));
  EXPECT_EQ(gate.upstream, (settings::address{"127.0.0.1", 6379, ""}));
  EXPECT_EQ(gate.control.user, "");
  EXPECT_EQ(gate.control.password.text(), "");
  EXPECT_EQ(gate.policy, defaults.policy);
  EXPECT_THAT(gate.resources, IsEmpty());
  EXPECT_EQ(gate.unmatched, fence::unmatched::tag);
  EXPECT_THAT(gate.allow_commands, IsEmpty());
  EXPECT_EQ(gate.connections_max, defaults.connections_max);
}

TEST_F(ConfigTest, ReadsEveryPolicyAndTimeout) {
  const auto gate =
      gate_of(gate_with("policy: { mode: monitor, missing_token: read_only, equal_token: reject, reads: fence, "
                        "max_step: 9223372036854775807 }\n"
                        "    timeouts: { connect: 1ms, head: 2s, idle: 3m, write: 4h }\n    connections_max: 1\n"
                        "    share_writes: off"));
  const fence::policy expected{fence::enforcement::monitor, fence::missing_token::read_only, fence::equal_token::reject,
                               fence::reads::fence, INT64_MAX};
  EXPECT_EQ(gate.policy, expected);
  EXPECT_EQ(gate.limits_time.connect, 1ms);
  EXPECT_EQ(gate.limits_time.head, 2s);
  EXPECT_EQ(gate.limits_time.idle, 3min);
  EXPECT_EQ(gate.limits_time.write, 4h);
  EXPECT_EQ(gate.connections_max, 1u);
  EXPECT_EQ(gate.share_writes, settings::sharing::off);
}

TEST_F(ConfigTest, AListenerMayHaveATag) {
  variables["FENCING_TOKEN"] = "34";
  constexpr auto tag = "tag_from: listen\n    tag: \"orders=${FENCING_TOKEN}\"";
  const std::vector<fence::claim> expected{{"orders", fence::token(34)}};
  EXPECT_EQ(gate_of(gate_with(tag)).tag, expected);
  EXPECT_EQ(postgres_of(postgres_with(tag)).tag, expected);
  EXPECT_THAT(gate_of(gate_with("")).tag, IsEmpty());
}

TEST_F(ConfigTest, ATagOfAListenerThatIsNoneIsAnError) {
  EXPECT_THAT(errors_of(gate_with("tag_from: listen")), ElementsAre("6:15: tag_from: listen needs the key tag"));
  EXPECT_THAT(errors_of(gate_with("tag: orders=34")), ElementsAre("6:10: tag needs the key tag_from: listen"));
  EXPECT_THAT(errors_of(gate_with("tag_from: listn\n    tag: orders=34")), ElementsAre(HasSubstr("listen")));
  EXPECT_THAT(errors_of(gate_with("tag_from: listen\n    tag: orders")), ElementsAre(HasSubstr("7:10: tag: ")));
  EXPECT_THAT(errors_of(gate_with("tag_from: listen\n    tag: \"orders=${FENCING_TOKEN}\"")),
              ElementsAre(HasSubstr("FENCING_TOKEN")));
  variables["FENCING_TOKEN"] = "";
  EXPECT_THAT(errors_of(gate_with("tag_from: listen\n    tag: \"orders=${FENCING_TOKEN}\"")),
              ElementsAre(HasSubstr("7:10: tag: ")));
}

TEST_F(ConfigTest, RejectsNumbersAndTimesOutOfRange) {
  EXPECT_THAT(errors_of(gate_with("policy: { max_step: 9223372036854775808 }\n    timeouts: { connect: 0, idle: -1s }\n"
                                  "    connections_max: 0")),
              ElementsAre("6:25: max_step must be a whole number from 0 to 9223372036854775807",
                          "7:26: connect must be 1ms or longer", HasSubstr("7:35: idle: not a duration"),
                          "8:22: connections_max must be a whole number from 1 to 1000000"));
}

TEST_F(ConfigTest, ARulesPolicyInheritsTheGatesWhereverThatStands) {
  const auto gate =
      gate_of(gate_with("resources:\n      - { keys: \"a:*\", resource: a }\n"
                        "      - { keys: \"b:*\", resource: b, policy: { equal_token: reject } }\n"
                        "    policy: { mode: monitor, max_step: 7 }"));
  ASSERT_THAT(gate.resources, SizeIs(2));
  EXPECT_EQ(gate.resources[0].rules(), gate.policy);
  auto expected = gate.policy;
  expected.equal = fence::equal_token::reject;
  EXPECT_EQ(gate.resources[1].rules(), expected);
  EXPECT_EQ(gate.resources[1].match("b:1"), "b");
}

TEST_F(ConfigTest, RejectsBadRulesAtTheirPlace) {
  EXPECT_THAT(
      errors_of(gate_with("resources:\n      - { keys: \"a:{id\", resource: a }\n      - { keys: \"b:*\" }\n"
                          "      - { keys: \"c:*\", resource: \"{id}\" }\n      - d\n"
                          "      - { keys: [e], resource: e, polcy: {} }")),
      ElementsAre(HasSubstr("7:17: bad rule: "), "8:9: rule needs the key \"resource\"", HasSubstr("9:17: bad rule: "),
                  "10:9: rule must be a map of keys and values, not text", "10:9: rule needs the key \"keys\"",
                  "10:9: rule needs the key \"resource\"", "11:17: keys must be text or a number, not a list",
                  "11:35: unknown key \"polcy\" in rule (did you mean \"policy\"?)"));
}

TEST_F(ConfigTest, RejectsRulesThatAreNeverReached) {
  EXPECT_THAT(
      errors_of(gate_with("resources:\n      - { keys: \"a:*\", resource: a }\n      - { keys: \"a:*\", resource: b }\n"
                          "      - { keys: \"*\", resource: c }\n      - { keys: \"d:*\", resource: d }\n"
                          "    unmatched: reject")),
      ElementsAre(HasSubstr("8:17: this rule is never reached"), HasSubstr("10:17: this rule is never reached"),
                  "11:16: unmatched has no effect: a rule matches every key"));
}

TEST_F(ConfigTest, RejectsUnmatchedThatLeavesNothingToFence) {
  EXPECT_THAT(errors_of(gate_with("unmatched: pass")),
              ElementsAre(HasSubstr("6:16: unmatched: pass without resources")));
  EXPECT_THAT(errors_of(gate_with("resources: []\n    unmatched: reject")),
              ElementsAre(HasSubstr("7:16: unmatched: reject without resources")));
  EXPECT_THAT(errors_of(gate_with("unmatched: tag")), IsEmpty());
}

TEST_F(ConfigTest, AResourceHasOnePolicy) {
  const auto rules = [](const std::string& first, const std::string& second) {
    return gate_with("resources:\n      - " + first + "\n      - " + second);
  };
  EXPECT_THAT(
      errors_of(rules("{ keys: \"a:*\", resource: r }", "{ keys: \"b:*\", resource: r, policy: { max_step: 1 } }")),
      ElementsAre("8:34: the rule on line 7 names this resource, with another policy: give both the same policy"));
  EXPECT_THAT(errors_of(rules("{ keys: \"a:{x}\", resource: \"r:{x}\" }",
                              "{ keys: \"b:{y}\", resource: \"r:{y}\", policy: { mode: monitor } }")),
              ElementsAre(HasSubstr("8:36: the rule on line 7 names this resource, with another policy")));
  EXPECT_THAT(errors_of(rules("{ keys: \"a:{x}\", resource: \"r:{x}\" }",
                              "{ keys: \"b:*\", resource: \"r:7\", policy: { mode: monitor } }")),
              ElementsAre(HasSubstr("8:34: the rule on line 7 can name this resource too, with another policy: put")));
  EXPECT_THAT(errors_of(rules("{ keys: \"b:*\", resource: \"r:7\", policy: { mode: monitor } }",
                              "{ keys: \"a:{x}\", resource: \"r:{x}\" }")),
              IsEmpty());
  EXPECT_THAT(errors_of(rules("{ keys: \"a:*\", resource: r, policy: { max_step: 1 } }",
                              "{ keys: \"b:*\", resource: r, policy: { max_step: 1 } }")),
              IsEmpty());
}

TEST_F(ConfigTest, OnlyWhatIsRefusedCanBeAllowed) {
  EXPECT_THAT(errors_of(gate_with("allow_commands: [get, flushal, config|sett, config, \"script|flush\"]")),
              ElementsAre("6:22: not a command that is refused",
                          "6:27: not a command that is refused (did you mean \"flushall\"?)",
                          "6:36: not a command that is refused (did you mean \"config|set\"?)",
                          "6:49: not a command that is refused: name the subcommand, such as \"config|rewrite\""));
  EXPECT_THAT(errors_of(gate_with("allow_commands: [flushall, PSYNC]")),
              ElementsAre(HasSubstr("6:32: replication does not go through fencegate")));
}

TEST_F(ConfigTest, LowersAllowedCommandsAndRejectsWhatIsNone) {
  EXPECT_THAT(gate_of(gate_with("allow_commands: [FLUSHALL, Config|Set]")).allow_commands,
              ElementsAre("flushall", "config|set"));
  EXPECT_THAT(errors_of(gate_with("allow_commands: [config set, \"\", a|b|c, flushall, FLUSHALL, [x]]")),
              ElementsAre(HasSubstr("6:22: not the name of a command"), HasSubstr("6:34: not the name of a command"),
                          HasSubstr("6:38: not the name of a command"), "6:55: this command is in the list already",
                          "6:65: a command must be text or a number, not a list"));
  EXPECT_THAT(errors_of(gate_with("allow_commands: flushall")), ElementsAre("6:21: allow_commands must be a list"));
}

TEST_F(ConfigTest, ReadsEveryFormOfUpstream) {
  const auto gate = gate_of(gate_at("redis://us%65r:p%40ss@redis.internal:7000/"));
  EXPECT_EQ(gate.upstream, (settings::address{"redis.internal", 7000, ""}));
  EXPECT_EQ(gate.control.user, "user");
  EXPECT_EQ(gate.control.password.text(), "p@ss");
  EXPECT_EQ(gate_of(gate_at("redis://:p@[::1]")).upstream, (settings::address{"::1", 6379, ""}));
  EXPECT_EQ(gate_of(gate_at("redis://:p@h")).control.user, "");
  EXPECT_EQ(gate_of(gate_at("unix:///run/redis.sock")).upstream, (settings::address{"", 0, "/run/redis.sock"}));
}

TEST_F(ConfigTest, APasswordFromAVariableCannotReachTheHost) {
  variables = {{"PW", "x@evil:1/"}};
  const auto gate = gate_of(gate_at("\"redis://u:${PW}@good:2\""));
  EXPECT_EQ(gate.upstream, (settings::address{"good", 2, ""}));
  EXPECT_EQ(gate.control.password.text(), "x@evil:1/");
}

TEST_F(ConfigTest, RejectsUpstreamsItCannotServe) {
  const auto error_at = [this](std::string_view upstream) {
    const auto errors = errors_of(gate_at(upstream));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  EXPECT_THAT(error_at("redis://h/1"), HasSubstr("a database number has no meaning here"));
  EXPECT_THAT(error_at("redis://u@h"), HasSubstr("a user without a password"));
  EXPECT_THAT(error_at("\"unix://run/redis.sock\""), HasSubstr("three slashes"));
  EXPECT_THAT(error_at("unix://"), HasSubstr("must be absolute"));
  EXPECT_THAT(error_at("redis://"), HasSubstr("the host is missing"));
  EXPECT_THAT(error_at("\"redis://h:0\""), HasSubstr("the port must be"));
  EXPECT_THAT(error_at("\"redis://h:65536\""), HasSubstr("the port must be"));
  for (const auto* text :
       {"127.0.0.1:6379", "h", "redis:h", "http://h", "redis://h?db=1", "\"redis://h#x\"", "redis://h%00x",
        "redis://a_b%2fc", "redis://1.2.3.256", "\"redis://[::1\"", "redis://h:x", "unix:/run/x", "[h]"})
    EXPECT_THAT(error_at(text), HasSubstr("5:15: upstream")) << text;
}

TEST_F(ConfigTest, RedisReadsTlsToItsServer) {
  using check = settings::tls::check;
  files = {{"/ca", "-"}, {"/gate.crt", "-"}, {"/gate.key", "-"}};
  const auto plain = gate_of(gate_at("redis://h"));
  EXPECT_FALSE(plain.secured.wanted());
  const auto usual = gate_of(gate_at("\"rediss://u:p@h?cafile=/ca&cert=/gate.crt&key=/gate.key\""));
  EXPECT_EQ(usual.upstream, (settings::address{"h", 6379, ""}));
  EXPECT_EQ(usual.control.password.text(), "p");
  EXPECT_EQ(usual.secured.checks, check::name);
  EXPECT_EQ(usual.secured.authorities, "/ca");
  EXPECT_EQ(usual.secured.certificate, "/gate.crt");
  EXPECT_EQ(usual.secured.key, "/gate.key");
  EXPECT_EQ(gate_of(gate_at("rediss://h:1?sslmode=require")).secured.checks, check::nothing);
  EXPECT_EQ(gate_of(gate_at("\"rediss://h?sslmode=verify-ca&cafile=/ca\"")).secured.checks, check::authority);
}

TEST_F(ConfigTest, RedisRejectsTlsThatWouldNotHold) {
  files = {{"/ca", "-"}};
  const auto error_at = [this](std::string_view upstream) {
    const auto errors = errors_of(gate_at("\"" + std::string(upstream) + "\""));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  EXPECT_THAT(error_at("rediss://h"), HasSubstr("5:15: upstream: sslmode=verify-full needs cafile, such as /etc"));
  EXPECT_THAT(error_at("rediss://h?sslmode=disable"), HasSubstr("rediss:// is TLS: sslmode=disable has no meaning"));
  EXPECT_THAT(error_at("rediss://h?sslmode=prefer"), HasSubstr("may end in plain text"));
  EXPECT_THAT(error_at("rediss://h?host=/x"), HasSubstr("only sslmode, cafile, cert, key and crlfile may stand"));
  EXPECT_THAT(error_at("redis://h?cafile=/ca"), HasSubstr("there is no TLS in redis://: write rediss://"));
  EXPECT_THAT(error_at("unix:///x?sslmode=require"), HasSubstr("there is no TLS on a unix socket"));
  EXPECT_THAT(error_at("rediss://h?cafile=/none"), HasSubstr("cannot read cafile: "));
  EXPECT_THAT(error_at("rediss:///x?cafile=/ca"), HasSubstr("no meaning here"));
}

TEST_F(ConfigTest, ReadsTlsOfAListener) {
  files = {{"/crt", "-"}, {"/key", "-"}, {"/ca", "-"}};
  EXPECT_FALSE(gate_of(gate_with("")).shown.wanted());
  const auto simple = gate_of(gate_with("tls: { cert: /crt, key: /key }")).shown;
  EXPECT_EQ(simple.certificate, "/crt");
  EXPECT_EQ(simple.key, "/key");
  EXPECT_EQ(simple.client_ca, "");
  const auto named =
      gate_of(gate_with("tls: { cert: /crt, key: /key, client_ca: /ca, client_name: [a.b, 'spiffe://c'] }")).shown;
  EXPECT_THAT(gate_of(gate_with("tls: { cert: /crt, key: /key, client_ca: /ca, client_name: a.b }")).shown.client_name,
              ElementsAre("a.b"));
  EXPECT_TRUE(named.client_required);
  EXPECT_THAT(named.client_name, ElementsAre("a.b", "spiffe://c"));
  const auto optional =
      gate_of(gate_with("tls: { cert: /crt, key: /key, client_ca: /ca, client_certificate: optional }"));
  EXPECT_FALSE(optional.shown.client_required);
}

TEST_F(ConfigTest, RejectsTlsOfAListenerThatWouldNotHold) {
  files = {{"/crt", "-"}, {"/key", "-"}, {"/ca", "-"}};
  const auto error_at = [this](std::string_view tls) {
    const auto errors = errors_of(gate_with("tls: { " + std::string(tls) + " }"));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  EXPECT_THAT(error_at("cert: /crt"), HasSubstr("tls needs the key \"key\""));
  EXPECT_THAT(error_at("key: /key"), HasSubstr("tls needs the key \"cert\""));
  EXPECT_THAT(error_at("cert: crt, key: /key"), HasSubstr("cert is the absolute path of a PEM file"));
  EXPECT_THAT(error_at("cert: /none, key: /key"), HasSubstr("cert: cannot read the file: No such file"));
  EXPECT_THAT(error_at("cert: /crt, key: /key, client_name: [a]"), HasSubstr("client_name needs client_ca"));
  EXPECT_THAT(error_at("cert: /crt, key: /key, client_ca: /ca, client_name: []"),
              HasSubstr("client_name is empty: no client would be let in"));
  EXPECT_THAT(error_at("cert: /crt, key: /key, client_ca: /ca, client_name: [a], "
                       "client_certificate: optional"),
              HasSubstr("client_name needs client_certificate: required"));
  EXPECT_THAT(errors_of("gates:\n  - { name: a, protocol: redis, listen: 'unix:/x', upstream: 'redis://h', "
                        "tls: { cert: /crt, key: /key } }\n"),
              ElementsAre(HasSubstr("there is no TLS on a unix socket")));
}

TEST_F(ConfigTest, TakesThePasswordFromAFile) {
  files = {{"/pw", "s3cret\r\n"}, {"/empty", "\n"}, {"/spaces", " a\n\n"}};
  const auto with_file = [](const std::string& path) {
    return gate_at("redis://app@h") + "    password_file: " + path + "\n";
  };
  const auto gate = gate_of(with_file("/pw"));
  EXPECT_EQ(gate.control.user, "app");
  EXPECT_EQ(gate.control.password.text(), "s3cret");
  EXPECT_EQ(gate_of(with_file("/spaces")).control.password.text(), " a\n");
  EXPECT_THAT(errors_of(with_file("/empty")), ElementsAre("6:20: password_file: the file is empty"));
  EXPECT_THAT(errors_of(with_file("/nope")),
              ElementsAre("6:20: password_file: cannot read the file: No such file or directory"));
  EXPECT_THAT(errors_of(gate_at("redis://:x@h") + "    password_file: /pw\n"),
              ElementsAre("6:20: upstream has a password already: give one of them"));
}

TEST_F(ConfigTest, RequiresTheKeysThatHaveNoDefault) {
  EXPECT_THAT(
      errors_of("gates:\n  - { unmatched: tag }\n"),
      testing::UnorderedElementsAre("2:5: gate needs the key \"listen\"", "2:5: gate needs the key \"upstream\"",
                                    "2:5: gate needs the key \"name\"", "2:5: gate needs the key \"protocol\""));
}

TEST_F(ConfigTest, KnowsItsProtocols) {
  EXPECT_THAT(
      errors_of("gates:\n"
                "  - { protocol: reds, name: y, listen: \":2\", upstream: \"redis://h\", connections_max: 0 }\n"),
      ElementsAre("2:17: protocol must be one of redis, postgres, http (did you mean \"redis\"?)",
                  HasSubstr("2:86: connections_max must be")));
}

TEST_F(ConfigTest, SaysToWhichProtocolAKeyBelongs) {
  EXPECT_THAT(errors_of(gate_with("guard: session\n    cut_timeout: 5s\n    routes: []")),
              ElementsAre("6:5: a redis gate has no key \"guard\": it belongs to postgres gates",
                          "7:5: a redis gate has no key \"cut_timeout\": it belongs to postgres gates",
                          "8:5: a redis gate has no key \"routes\": it belongs to http gates"));
  EXPECT_THAT(
      errors_of(postgres_with("resources: []\n    unmatched: x\n    allow_commands: x\n    routes: []\n    guards: x")),
      ElementsAre("6:5: a postgres gate has no key \"resources\": it belongs to redis gates",
                  "7:5: a postgres gate has no key \"unmatched\": it belongs to redis gates",
                  "8:5: a postgres gate has no key \"allow_commands\": it belongs to redis gates",
                  "9:5: a postgres gate has no key \"routes\": it belongs to http gates",
                  "10:5: unknown key \"guards\" in gate (did you mean \"guard\"?)"));
}

TEST_F(ConfigTest, RejectsGatesThatGetIntoEachOthersWay) {
  EXPECT_THAT(
      errors_of("admin: { listen: \"127.0.0.1:1\" }\ngates:\n"
                "  - { name: a, protocol: redis, listen: \"localhost:1\", upstream: \"redis://h\" }\n"
                "  - { name: a, protocol: redis, listen: \":2\", upstream: \"redis://h\" }\n"
                "  - { name: \"b b\", protocol: redis, listen: \"127.0.0.1:2\", upstream: \"redis://h\" }\n"),
      ElementsAre("3:41: listen: admin listens on this address already", "4:13: another gate has this name already",
                  "5:13: a gate's name has 1 to 64 letters, digits, _ . and -",
                  "5:45: listen: gate \"a\" listens on this address already"));
}

TEST_F(ConfigTest, RejectsAGateInFrontOfAGate) {
  EXPECT_THAT(errors_of("gates:\n"
                        "  - { name: a, protocol: redis, listen: \"127.0.0.1:1\", upstream: \"redis://localhost:2\" }\n"
                        "  - { name: b, protocol: redis, listen: \"127.0.0.1:2\", upstream: \"redis://127.0.0.1:3\" }\n"
                        "  - { name: c, protocol: redis, listen: \"unix:/c\", upstream: \"unix:///c\" }\n"),
              ElementsAre(HasSubstr("2:66: upstream is where gate \"b\" listens"),
                          HasSubstr("4:62: upstream is where gate \"c\" listens")));
}

}  // namespace
}  // namespace fencegate::cli
