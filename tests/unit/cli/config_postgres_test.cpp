// A postgres gate's keys, its upstream's URL, and the policies that it cannot keep.
#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ConfigTest, PostgresDefaultsAreThoseOfTheStructs) {
  const auto gate = postgres_of(postgres_with(""));
  const settings::postgres_gate defaults;
  EXPECT_EQ(gate.name, "db");
  EXPECT_EQ(gate.listen, (settings::address{"127.0.0.1", 6432, ""}));
  EXPECT_EQ(gate.upstream, (settings::address{"127.0.0.1", 5432, ""}));
  EXPECT_EQ(gate.control.user, "");
  EXPECT_EQ(gate.control.password.text(), "");
  EXPECT_EQ(gate.control_database, "postgres");
  EXPECT_EQ(gate.policy, defaults.policy);
  EXPECT_EQ(gate.kept_by, settings::guard::session);
  EXPECT_EQ(gate.tags_in_sql, settings::comment_tags::off);
  EXPECT_EQ(gate.cut_timeout, defaults.cut_timeout);
  EXPECT_EQ(gate.connections_max, defaults.connections_max);
}

TEST_F(ConfigTest, PostgresReadsEveryKey) {
  const auto gate = postgres_of(
      postgres_with("policy: { mode: monitor, missing_token: allow, equal_token: accept, reads: pass, max_step: 7 }\n"
                    "    guard: transaction\n    cut_timeout: 10m\n"
                    "    timeouts: { connect: 1ms, head: 2s, idle: 3m, write: 4h }\n    connections_max: 1"));
  const fence::policy expected{fence::enforcement::monitor, fence::missing_token::allow, fence::equal_token::accept,
                               fence::reads::pass, 7};
  EXPECT_EQ(gate.policy, expected);
  EXPECT_EQ(gate.kept_by, settings::guard::transaction);
  EXPECT_EQ(gate.cut_timeout, 10min);
  EXPECT_EQ(gate.limits_time.connect, 1ms);
  EXPECT_EQ(gate.limits_time.head, 2s);
  EXPECT_EQ(gate.limits_time.idle, 3min);
  EXPECT_EQ(gate.limits_time.write, 4h);
  EXPECT_EQ(gate.connections_max, 1u);
  EXPECT_EQ(postgres_of(postgres_with("policy: { missing_token: read_only }")).policy.missing,
            fence::missing_token::read_only);
}

TEST_F(ConfigTest, PostgresRejectsPoliciesItCannotKeepWithTheReason) {
  EXPECT_THAT(errors_of(postgres_with("policy: { equal_token: reject, reads: fence }")),
              ElementsAre("6:28: equal_token: reject is not served by postgres gates: the server does not count what a "
                          "session writes, so a token could only be good for one connection, not for one write",
                          "6:43: reads: fence is not served by postgres gates: armed sessions make no difference "
                          "between reads and writes; one whose token became stale is ended"));
  EXPECT_THAT(
      errors_of(postgres_with("policy: { equal_token: reject, reads: fence, missing_token: read_only }\n"
                              "    guard: transaction")),
      ElementsAre(HasSubstr("6:28: equal_token: reject is not served"), HasSubstr("6:43: reads: fence is not served"),
                  HasSubstr("6:65: missing_token: read_only needs guard: session: behind a transaction pooler")));
}

TEST_F(ConfigTest, PostgresReadsWhereTagsMayStand) {
  EXPECT_EQ(postgres_of(postgres_with("comment_tags: lead")).tags_in_sql, settings::comment_tags::lead);
  EXPECT_EQ(postgres_of(postgres_with("comment_tags: off")).tags_in_sql, settings::comment_tags::off);
  EXPECT_THAT(errors_of(postgres_with("guard: transaction\n    comment_tags: lead")),
              ElementsAre(HasSubstr("comment_tags: lead needs guard: session")));
}

TEST_F(ConfigTest, PostgresReadsWhetherAPoolerMayBeInBetween) {
  EXPECT_TRUE(postgres_of(postgres_with("guard: transaction")).pooled);
  EXPECT_TRUE(postgres_of(postgres_with("guard: transaction\n    pooled: true")).pooled);
  EXPECT_FALSE(postgres_of(postgres_with("guard: transaction\n    pooled: false")).pooled);
  EXPECT_THAT(errors_of(postgres_with("pooled: true")), IsEmpty());
  EXPECT_THAT(errors_of(postgres_with("guard: transaction\n    pooled: perhaps")),
              ElementsAre(HasSubstr("pooled must be")));
}

TEST_F(ConfigTest, PostgresRejectsTimesOutOfRange) {
  EXPECT_THAT(errors_of(postgres_with("cut_timeout: 0")), ElementsAre("6:18: cut_timeout must be 1ms or longer"));
  EXPECT_THAT(errors_of(postgres_with("cut_timeout: 601s")), ElementsAre("6:18: cut_timeout must be 10m or shorter"));
  EXPECT_THAT(errors_of(postgres_with("guard: sesion")),
              ElementsAre("6:12: guard must be one of session, transaction (did you mean \"session\"?)"));
}

TEST_F(ConfigTest, PostgresReadsEveryFormOfUpstream) {
  const auto gate = postgres_of(postgres_at("postgres://us%65r:p%40ss@db.internal:7000/a%2Fb+c?sslmode=disable"));
  EXPECT_EQ(gate.upstream, (settings::address{"db.internal", 7000, ""}));
  EXPECT_EQ(gate.control.user, "user");
  EXPECT_EQ(gate.control.password.text(), "p@ss");
  EXPECT_EQ(gate.control_database, "a/b+c");
  EXPECT_EQ(postgres_of(postgres_at("postgresql://[::1]/")).upstream, (settings::address{"::1", 5432, ""}));
  EXPECT_EQ(postgres_of(postgres_at("postgres://app@h")).control_database, "app");
  EXPECT_EQ(postgres_of(postgres_at("postgres://h/shop")).control_database, "shop");
  EXPECT_EQ(postgres_of(postgres_at("postgres://h?port=1")).upstream, (settings::address{"h", 1, ""}));
}

TEST_F(ConfigTest, PostgresFindsUnixSockets) {
  const auto socket_of = [this](std::string_view upstream) { return postgres_of(postgres_at(upstream)).upstream; };
  const settings::address usual{"", 0, "/var/run/postgresql/.s.PGSQL.5432"};
  EXPECT_EQ(socket_of("postgres:///app?host=/var/run/postgresql"), usual);
  EXPECT_EQ(socket_of("postgres:///app?host=%2Fvar%2Frun%2Fpostgresql/"), usual);
  EXPECT_EQ(socket_of("postgres:///?port=5433&host=/x"), (settings::address{"", 0, "/x/.s.PGSQL.5433"}));
  EXPECT_EQ(socket_of("postgres://app@:5434?host=/a+b"), (settings::address{"", 0, "/a+b/.s.PGSQL.5434"}));
  EXPECT_EQ(postgres_of(postgres_at("postgres://app@?host=/x")).control_database, "app");
}

TEST_F(ConfigTest, PostgresReadsTlsToItsServer) {
  using check = settings::tls::check;
  files = {{"/ca", "-"}, {"/gate.crt", "-"}, {"/gate.key", "-"}};
  const auto tls_of = [this](std::string_view parameters) {
    return postgres_of(postgres_at("postgres://h/d" + std::string(parameters))).secured;
  };
  EXPECT_EQ(tls_of("").checks, check::none);
  EXPECT_EQ(tls_of("?sslmode=disable").checks, check::none);
  EXPECT_EQ(tls_of("?sslmode=require").checks, check::nothing);
  const auto named = tls_of("?sslmode=verify-full&sslrootcert=/ca&sslcert=%2Fgate.crt&sslkey=/gate.key");
  EXPECT_EQ(named.checks, check::name);
  EXPECT_EQ(named.authorities, "/ca");
  EXPECT_EQ(named.certificate, "/gate.crt");
  EXPECT_EQ(named.key, "/gate.key");
  EXPECT_EQ(tls_of("?sslmode=verify-ca&sslrootcert=/ca").checks, check::authority);
}

TEST_F(ConfigTest, PostgresRejectsTlsThatWouldNotHold) {
  files = {{"/ca", "-"}};
  const auto error_at = [this](std::string_view parameters) {
    const auto errors = errors_of(postgres_at("\"postgres://h/d?" + std::string(parameters) + "\""));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  EXPECT_EQ(
      error_at("sslmode=prefer"),
      "5:15: upstream: sslmode=prefer may end in plain text without a word: choose disable, require, verify-ca or "
      "verify-full");
  EXPECT_THAT(error_at("sslmode=allow"), HasSubstr("may end in plain text"));
  EXPECT_THAT(error_at("sslmode="), HasSubstr("sslmode is one of disable, require, verify-ca and verify-full"));
  EXPECT_THAT(error_at("sslmode=verify-full"), HasSubstr("sslmode=verify-full needs sslrootcert, such as /etc/ssl"));
  EXPECT_THAT(error_at("sslmode=verify-ca&sslrootcert="), HasSubstr("needs sslrootcert"));
  EXPECT_THAT(error_at("sslmode=require&sslrootcert=/ca"), HasSubstr("does not look at the server's certificate"));
  EXPECT_THAT(error_at("sslrootcert=/ca"), HasSubstr("there is no TLS without one"));
  EXPECT_THAT(error_at("sslmode=disable&sslkey=/ca"), HasSubstr("there is no TLS without one"));
  EXPECT_THAT(error_at("sslmode=require&sslcert=/ca"), HasSubstr("sslcert and sslkey belong together"));
  EXPECT_THAT(error_at("sslmode=require&sslcrl=/ca"), HasSubstr("sslcrl needs sslmode=verify-ca or verify-full"));
  EXPECT_THAT(error_at("sslmode=verify-ca&sslrootcert=ca"), HasSubstr("absolute paths"));
  EXPECT_THAT(error_at("sslmode=verify-ca&sslrootcert=system"), HasSubstr("absolute paths"));
  EXPECT_THAT(error_at("sslmode=verify-ca&sslrootcert=/c%00a"), HasSubstr("absolute paths"));
  EXPECT_THAT(error_at("sslmode=verify-ca&sslrootcert=/none"), HasSubstr("cannot read sslrootcert: "));
  EXPECT_THAT(errors_of(postgres_at("\"postgres:///d?host=/x&sslmode=require\"")),
              ElementsAre(HasSubstr("there is no TLS on a unix socket")));
}

TEST_F(ConfigTest, PostgresRejectsUpstreamsItCannotServe) {
  const auto error_at = [this](std::string_view upstream) {
    const auto errors = errors_of(postgres_at("\"" + std::string(upstream) + "\""));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  EXPECT_THAT(error_at("redis://h"), HasSubstr("the scheme must be postgres://"));
  EXPECT_THAT(error_at("postgres://h/a/b"), HasSubstr("a slash in it is written %2F"));
  EXPECT_THAT(error_at("postgres://h/a%00b"), HasSubstr("NUL"));
  EXPECT_THAT(error_at("postgres://a%00b@h"), HasSubstr("NUL"));
  EXPECT_THAT(error_at("postgres://u:a%00b@h"), HasSubstr("NUL"));
  EXPECT_THAT(error_at("postgres:///d?host=/a%00b"), HasSubstr("NUL"));
  EXPECT_THAT(error_at("postgres://h/" + std::string(64, 'x')), HasSubstr("more than 63 bytes"));
  EXPECT_THAT(error_at("postgres://:p@h"), HasSubstr("a password without a user"));
  EXPECT_THAT(error_at("postgres:///d"), HasSubstr("the host is missing; write postgres://"));
  EXPECT_THAT(error_at("postgres:///d?host=h"), HasSubstr("host= is the directory of a unix socket"));
  EXPECT_THAT(error_at("postgres://h/d?host=/x"), HasSubstr("the host was given twice"));
  EXPECT_THAT(error_at("postgres://h:1/d?port=2"), HasSubstr("the port was given twice"));
  EXPECT_THAT(error_at("postgres:///d?host=/x&host=/y"), HasSubstr("a parameter was given twice"));
  EXPECT_THAT(error_at("postgres://h/d?password=x"), HasSubstr("only host, port, sslmode"));
  EXPECT_THAT(error_at("postgres://h/d#x"), HasSubstr("a fragment has no meaning"));
  EXPECT_THAT(error_at("postgres:///d?host=/" + std::string(100, 'x')), HasSubstr("bytes at most"));
  for (const auto* port : {":0", ":65536"})
    EXPECT_THAT(error_at(std::string("postgres://h") + port), HasSubstr("the port must be")) << port;
  for (const auto* port : {"0", "65536", "", "x", "+1"})
    EXPECT_THAT(error_at(std::string("postgres://h?port=") + port), HasSubstr("the port must be")) << port;
  for (const auto* text : {"h", "127.0.0.1:5432", "postgres:h", "postgres://h,i/d", "postgres://h%00x",
                           "postgres://[h]", "postgres://%2Fvar%2Frun/d", "host=h dbname=d"})
    EXPECT_THAT(error_at(text), HasSubstr("5:15: upstream")) << text;
}

TEST_F(ConfigTest, PostgresTakesThePasswordFromAFile) {
  files = {{"/pw", "s3cret\n"}, {"/nul", std::string("a\0b", 3)}};
  const auto with_file = [](const std::string& upstream, const std::string& path) {
    return postgres_at(upstream) + "    password_file: " + path + "\n";
  };
  EXPECT_EQ(postgres_of(with_file("postgres://app@h", "/pw")).control.password.text(), "s3cret");
  EXPECT_EQ(postgres_of(postgres_at("postgres://app@h")).control.password.text(), "");
  EXPECT_THAT(errors_of(with_file("postgres://app:x@h", "/pw")),
              ElementsAre("6:20: upstream has a password already: give one of them"));
  EXPECT_THAT(errors_of(with_file("postgres://h", "/pw")),
              ElementsAre("5:15: upstream has a password without a user: add the user"));
  EXPECT_THAT(errors_of(with_file("postgres://app@h", "/nul")),
              ElementsAre("6:20: password_file: the password has a NUL byte in it"));
}

TEST_F(ConfigTest, GatesOfDifferentProtocolsMustNotGetIntoEachOthersWay) {
  EXPECT_THAT(
      errors_of("gates:\n  - { name: a, protocol: redis, listen: \"127.0.0.1:1\", upstream: \"redis://h\" }\n"
                "  - { name: a, protocol: postgres, listen: \":1\", upstream: \"postgres://localhost:1\" }\n"
                "  - { name: c, protocol: postgres, listen: \"unix:/run/.s.PGSQL.5432\", upstream: \"postgres://h\" }\n"
                "  - { name: d, protocol: postgres, listen: \":2\", upstream: \"postgres:///x?host=/run\" }\n"),
      ElementsAre("3:13: another gate has this name already",
                  "3:44: listen: gate \"a\" listens on this address already",
                  "3:60: upstream is where gate \"a\" listens: name the PostgreSQL server itself",
                  "5:60: upstream is where gate \"c\" listens: name the PostgreSQL server itself"));
}

TEST_F(ConfigTest, RedisAndPostgresGatesLiveSideBySide) {
  const auto both = settings_of(
      "gates:\n  - { name: a, protocol: redis, listen: \":1\", upstream: \"redis://h\" }\n"
      "  - { name: b, protocol: postgres, listen: \":2\", upstream: \"postgres://h\" }\n"
      "  - { name: c, protocol: postgres, listen: \":3\", upstream: \"postgres://h\" }\n");
  EXPECT_EQ(both.redis_gates.size(), 1u);
  ASSERT_EQ(both.postgres_gates.size(), 2u);
  EXPECT_EQ(both.postgres_gates[1].name, "c");
}

}  // namespace
}  // namespace fencegate::cli
