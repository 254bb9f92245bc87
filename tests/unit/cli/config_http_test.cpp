// An http gate's keys, its routes, and the combinations that cannot work.
#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using namespace std::chrono_literals;
using settings::http_action;
using settings::http_guarantee;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class HttpConfigTest : public ConfigTest {
 protected:
  // A gate with two stores: `ledger` in PostgreSQL, `cache` in Redis. These keys start on line 9, column 5.
  static std::string http_with(std::string_view keys) {
    std::string out =
        "stores:\n  ledger: { url: postgres://gate:pw@db/app }\n  cache: { url: 'redis://:pw@r:7000' }\ngates:\n"
        "  - name: api\n    protocol: http\n    listen: 127.0.0.1:8081\n    upstream: http://127.0.0.1:9000\n";
    return out.append("    ").append(keys).append("\n");
  }

  // The same with one route, on line 10, column 11.
  static std::string route_with(std::string_view keys) {
    return http_with("routes:\n      - { " + std::string(keys) + " }");
  }

  settings::http_gate http_of(std::string_view yaml) const {
    const auto all = settings_of(yaml);
    if (all.http_gates.size() == 1) return all.http_gates[0];
    ADD_FAILURE() << "not one gate but " << all.http_gates.size();
    return {};
  }

  const std::string order_ = "match: 'PUT /orders/{id}', resource: 'order:{id}', ";
};

TEST_F(HttpConfigTest, DefaultsAreThoseOfTheStructs) {
  const auto gate = http_of(route_with(order_ + "store: ledger"));
  const settings::http_gate defaults;
  EXPECT_EQ(gate.name, "api");
  EXPECT_EQ(gate.listen, (settings::address{"127.0.0.1", 8081, ""}));
  EXPECT_EQ(gate.upstream, (settings::address{"127.0.0.1", 9000, ""}));
  EXPECT_EQ(gate.policy, defaults.policy);
  EXPECT_EQ(gate.unmatched, defaults.unmatched);
  EXPECT_EQ(gate.seal, defaults.seal);
  EXPECT_EQ(gate.token_header, defaults.token_header);
  EXPECT_EQ(gate.hold_grace, defaults.hold_grace);
  EXPECT_EQ(gate.answer_timeout, defaults.answer_timeout);
  EXPECT_EQ(gate.body_bytes_max, defaults.body_bytes_max);
  EXPECT_EQ(gate.body_held_bytes_max, defaults.body_held_bytes_max);
  EXPECT_EQ(gate.keep_alive, defaults.keep_alive);
  ASSERT_EQ(gate.stores.size(), 1u);
  const auto& store = gate.stores[0];
  EXPECT_EQ(store.name, "ledger");
  EXPECT_EQ(store.speaks, settings::mark_store::kind::postgres);
  EXPECT_EQ(store.where, (settings::address{"db", 5432, ""}));
  EXPECT_EQ(store.login.user, "gate");
  EXPECT_EQ(store.login.password.text(), "pw");
  EXPECT_EQ(store.database, "app");
  EXPECT_EQ(store.pool, 10u);
}

TEST_F(HttpConfigTest, ReadsEveryKeyOfAGate) {
  const auto gate = http_of(http_with(
      "store: ledger\n    routes:\n      - { match: '* /{path...}', resource: all }\n    unmatched: pass\n"
      "    token_header: X-Lease\n    seal: off\n    hold_grace: 3s\n    answer_timeout: 20s\n    body_max: 5\n"
      "    body_held_max: 6\n    access_log: 100\n    keep_alive: 7s\n    body_timeout: 1s\n    request_timeout: 3s\n  "
      "  response_timeout: "
      "2s\n"
      "    connections_max: 8\n"
      "    policy: { mode: monitor, missing_token: allow, reads: fence, max_step: 9 }"));
  EXPECT_EQ(gate.unmatched, settings::http_unmatched::pass);
  EXPECT_EQ(gate.token_header, "X-Lease");
  EXPECT_EQ(gate.seal, settings::http_seal::off);
  EXPECT_EQ(gate.hold_grace, 3s);
  EXPECT_EQ(gate.answer_timeout, 20s);
  EXPECT_EQ(gate.body_bytes_max, 5u);
  EXPECT_EQ(gate.body_held_bytes_max, 6u);
  EXPECT_EQ(gate.access_log_every, 100u);
  EXPECT_EQ(gate.keep_alive, 7s);
  EXPECT_EQ(gate.body_timeout, 1s);
  EXPECT_EQ(gate.request_timeout, 3s);
  EXPECT_EQ(gate.response_timeout, 2s);
  EXPECT_EQ(gate.connections_max, 8u);
  ASSERT_EQ(gate.routes.size(), 1u);
  EXPECT_EQ(gate.routes[0].policy, gate.policy);
  EXPECT_EQ(gate.policy.max_step, 9);
}

TEST_F(HttpConfigTest, ReadsThatATokenIsGoodForOneRequest) {
  const auto gate =
      http_of(http_with("store: ledger\n    policy: { equal_token: reject }\n    routes:\n"
                        "      - { match: 'PUT /a', resource: a }\n"
                        "      - { match: 'PUT /b', resource: b, store: cache, policy: { equal_token: accept } }\n"
                        "      - { match: 'PUT /c', resource: c, store: cache, redis: [SET, c, '{body}'] }"));
  ASSERT_EQ(gate.routes.size(), 3u);
  EXPECT_EQ(gate.policy.equal, fence::equal_token::reject);
  EXPECT_EQ(gate.routes[0].policy.equal, fence::equal_token::reject);
  EXPECT_EQ(gate.routes[1].policy.equal, fence::equal_token::accept);
  EXPECT_EQ(gate.routes[2].policy.equal, fence::equal_token::reject);
}

TEST_F(HttpConfigTest, ReadsRoutesOfEveryKind) {
  const auto gate = http_of(
      http_with("store: ledger\n    routes:\n"
                "      - { match: 'PUT,DELETE /orders/{id}', resource: 'order:{id}', policy: { max_step: 5 } }\n"
                "      - { match: 'PUT /kv/{key}', resource: kv, redis: [SET, '{key}', '{body}'], store: cache }\n"
                "      - { match: 'POST /entries', resource: entries, sql: 'insert into e values ($1::jsonb, $2)',\n"
                "          params: ['{body}', '{query.when}'] }\n"
                "      - { match: '* /files/{path...}', resource: files, guarantee: checked }"));
  ASSERT_EQ(gate.routes.size(), 4u);
  const auto& [order, kv, entry, tree] = std::tie(gate.routes[0], gate.routes[1], gate.routes[2], gate.routes[3]);
  EXPECT_THAT(order.methods, ElementsAre("PUT", "DELETE"));
  EXPECT_EQ(order.pattern, "/orders/{id}");
  EXPECT_EQ(order.resource, "order:{id}");
  EXPECT_EQ(order.does, http_action::forward);
  EXPECT_EQ(order.guarantee, http_guarantee::held);
  EXPECT_EQ(order.store, "ledger");
  EXPECT_EQ(order.policy.max_step, 5);
  EXPECT_EQ(kv.does, http_action::redis);
  EXPECT_THAT(kv.command, ElementsAre("SET", "{key}", "{body}"));
  EXPECT_EQ(kv.store, "cache");
  EXPECT_EQ(entry.does, http_action::sql);
  EXPECT_EQ(entry.statement, "insert into e values ($1::jsonb, $2)");
  EXPECT_THAT(entry.parameters, ElementsAre("{body}", "{query.when}"));
  EXPECT_THAT(tree.methods, IsEmpty());
  EXPECT_EQ(tree.pattern, "/files/{path...}");
  EXPECT_EQ(tree.guarantee, http_guarantee::checked);
  ASSERT_EQ(gate.stores.size(), 2u);
  EXPECT_EQ(gate.stores[1].where, (settings::address{"r", 7000, ""}));
  EXPECT_EQ(gate.stores[1].login.password.text(), "pw");
}

TEST_F(HttpConfigTest, AStoreMayHaveItsPasswordInAFile) {
  files = {{"/pg", "from the file\n"}, {"/redis", "p@ss"}};
  const std::string rest =
      "gates:\n  - name: api\n    protocol: http\n    listen: ':8081'\n    routes:\n"
      "      - { match: 'PUT /a', resource: a, store: ledger, sql: select 1 }\n"
      "      - { match: 'PUT /b', resource: b, store: cache, redis: [SET, a, b] }\n";
  const auto gate = http_of(
      "stores:\n  ledger: { url: postgres://gate@db/app, password_file: /pg }\n"
      "  cache: { url: 'redis://gate@r', password_file: /redis }\n" +
      rest);
  ASSERT_EQ(gate.stores.size(), 2u);
  EXPECT_EQ(gate.stores[0].login.user, "gate");
  EXPECT_EQ(gate.stores[0].login.password.text(), "from the file");
  EXPECT_EQ(gate.stores[1].login.password.text(), "p@ss");
  EXPECT_THAT(errors_of("stores:\n  ledger: { url: 'postgres://gate:pw@db/app', password_file: /pg }\n"
                        "  cache: { url: 'redis://gate@r', password_file: /none }\n" +
                        rest),
              ElementsAre("2:62: url has a password already: give one of them",
                          HasSubstr("3:50: password_file: cannot read the file")));
  EXPECT_THAT(
      errors_of("stores:\n  ledger: { url: postgres://gate@db/app }\n  cache: { url: 'redis://gate@r' }\n" + rest),
      ElementsAre("3:17: url has a user without a password: add it, or give password_file"));
}

TEST_F(HttpConfigTest, ForwardsOfARedisStoreAreChecked) {
  EXPECT_EQ(http_of(route_with(order_ + "store: cache")).routes[0].guarantee, http_guarantee::checked);
  EXPECT_THAT(errors_of(route_with(order_ + "store: cache, guarantee: held")),
              ElementsAre(HasSubstr("guarantee: held needs a postgres store, and \"cache\" is Redis")));
}

TEST_F(HttpConfigTest, RejectsStoresThatAreNotThere) {
  EXPECT_THAT(errors_of(route_with(order_ + "store: leger")),
              ElementsAre(HasSubstr("there is no store \"leger\" (did you mean \"ledger\"?)")));
  EXPECT_THAT(errors_of(route_with("match: 'PUT /a', resource: a")),
              ElementsAre("10:9: route needs the key \"store\""));
  EXPECT_THAT(errors_of(http_with("store: x\n    routes: [ { match: 'PUT /a', resource: a } ]")),
              ElementsAre("9:12: there is no store \"x\""));
  EXPECT_THAT(errors_of(http_with("store: cache\n    routes: [ { match: 'PUT /a', resource: a, store: ledger } ]")),
              ElementsAre("9:12: no route uses this store: each names another"));
}

TEST_F(HttpConfigTest, RejectsRoutesThatCannotWork) {
  const auto error_of = [this](const std::string& keys) {
    const auto errors = errors_of(route_with(keys));
    return errors.size() == 1 ? errors[0] : std::to_string(errors.size()) + " errors";
  };
  const std::string ledger = "store: ledger";
  EXPECT_THAT(error_of("match: 'PUT orders', resource: a, " + ledger), HasSubstr("10:18: match: "));
  EXPECT_THAT(error_of("match: 'put /a', resource: a, " + ledger), HasSubstr("10:18: match: "));
  EXPECT_THAT(error_of("match: 'PUT /a/{id}', resource: 'order:{name}', " + ledger), HasSubstr("10:43: resource: "));
  EXPECT_THAT(error_of("match: 'GET /a', resource: a, " + ledger), HasSubstr("10:18: this route has no effect"));
  EXPECT_THAT(error_of(order_ + "redis: [SET, k, v], " + ledger), HasSubstr("redis needs a redis store"));
  EXPECT_THAT(error_of(order_ + "sql: 'select 1', store: cache"), HasSubstr("sql needs a postgres store"));
  EXPECT_THAT(error_of(order_ + "redis: [SET, '{nme}', v], store: cache"), HasSubstr("redis: "));
  EXPECT_THAT(error_of(order_ + "redis: [], store: cache"), HasSubstr("redis is empty"));
  EXPECT_THAT(error_of(order_ + "redis: ['{id}', x], store: cache"), HasSubstr("a request must not choose it"));
  EXPECT_THAT(error_of(order_ + "redis: [FlushAll], store: cache"), HasSubstr("this command is refused"));
  EXPECT_THAT(error_of(order_ + "redis: [CONFIG, SET, a, b], store: cache"), HasSubstr("this command is refused"));
  EXPECT_THAT(error_of(order_ + "sql: 'commit', " + ledger), HasSubstr("begins and ends the transaction"));
  EXPECT_THAT(error_of(order_ + "sql: 'select 1; select 2', " + ledger), HasSubstr("one statement"));
  EXPECT_THAT(error_of(order_ + "sql: 'select $2', params: ['{id}'], " + ledger), HasSubstr("sql uses $2"));
  EXPECT_THAT(error_of(order_ + "sql: \"select '$1'\", params: ['{id}'], " + ledger), HasSubstr("sql has no $1"));
  EXPECT_THAT(error_of(order_ + "params: ['{id}'], " + ledger), HasSubstr("params are those of sql"));
  EXPECT_THAT(error_of(order_ + "sql: 'select 1', guarantee: held, " + ledger), HasSubstr("atomic, which is more"));
  EXPECT_THAT(error_of(order_ + "sql: 'select 1', redis: [GET, a], store: cache"), HasSubstr("one of redis and sql"));
}

TEST_F(HttpConfigTest, RejectsCommandsThatNoScriptRuns) {
  for (const auto* command : {"EVAL, 'return 1', '0'", "blpop, '{id}', '1'", "MULTI", "Exec", "SUBSCRIBE, a", "INFO",
                              "xread, STREAMS, a, '0'", "FCALL, f, '0'", "CLIENT, INFO", "OBJECT, HELP", "SELECT, '1'",
                              "FENCE, GET", "WAIT, '1', '1'"})
    EXPECT_THAT(errors_of(route_with(order_ + "store: cache, redis: [" + command + "]")),
                ElementsAre(HasSubstr("has no place in an HTTP route")))
        << command;
  for (const auto* command :
       {"INCR, '{id}'", "OBJECT, ENCODING, '{id}'", "MEMORY, USAGE, '{id}'", "PING", "PUBLISH, a, b",
        "XADD, a, '*', b, c", "XGROUP, CREATE, a, b, 0", "mystery.command, '{id}'"})
    EXPECT_THAT(errors_of(route_with(order_ + "store: cache, redis: [" + command + "]")), IsEmpty()) << command;
}

TEST_F(HttpConfigTest, WarnsOfParametersWithSeveralSpellings) {
  const std::string untyped = order_ + "store: ledger, sql: \"",
                    typed = "match: 'PUT /orders/{id:int}', resource: 'order:{id}', store: ledger, sql: \"";
  for (const auto* sql : {"update a set b = 1 where id = $1::int", "update a set b = 1 where id = $1",
                          "update a set b = 1 where id = $1::text or id2 = $1"})
    EXPECT_THAT(warnings_of(route_with(untyped + sql + "\", params: ['{id}']")),
                ElementsAre(testing::AllOf(testing::StartsWith("10:"), HasSubstr("warning: $1 is {id} of the path"),
                                           HasSubstr("{id:int}"))))
        << sql;
  EXPECT_THAT(warnings_of(route_with(untyped + "update a set b = $1 where id = $1::text\", params: ['{id}']")),
              testing::SizeIs(1));
  EXPECT_THAT(warnings_of(route_with(untyped + "update a set b = 1 where id = $1::text\", params: ['{id}']")),
              IsEmpty());
  EXPECT_THAT(warnings_of(route_with(untyped + "insert into a values ($1::jsonb)\", params: ['{body}']")), IsEmpty());
  EXPECT_THAT(warnings_of(route_with(typed + "update a set b = 1 where id = $1::int\", params: ['{id}']")), IsEmpty());
  EXPECT_THAT(warnings_of(route_with("match: 'PUT /orders/{id}', resource: orders, store: ledger, sql: \"update a set "
                                     "b = 1 where id = $1::int\", params: ['{id}']")),
              IsEmpty())
      << "one mark for all";
  EXPECT_THAT(warnings_of(route_with(order_ + "store: cache, redis: [SET, '{id}', '{body}']")), IsEmpty());
}

TEST_F(HttpConfigTest, ValuesThatMayBeMissingStandAlone) {
  const std::string sql = order_ + "store: ledger, sql: insert into a values ($1), params: ";
  EXPECT_THAT(errors_of(route_with(sql + "['{query.when?}']")), IsEmpty());
  EXPECT_THAT(errors_of(route_with(sql + "['{header.X-User?}']")), IsEmpty());
  EXPECT_THAT(errors_of(route_with(sql + "['at {query.when?}']")), ElementsAre(HasSubstr("stands alone")));
  EXPECT_THAT(errors_of(route_with(sql + "['{id?}']")), ElementsAre(HasSubstr("is never missing")));
  EXPECT_THAT(errors_of(route_with(sql + "['{body?}']")), ElementsAre(HasSubstr("is never missing")));
  EXPECT_THAT(errors_of(route_with(order_ + "store: cache, redis: [SET, a, '{query.when?}']")),
              ElementsAre(HasSubstr("cannot be missing")));
}

TEST_F(HttpConfigTest, RejectsRoutesThatCollide) {
  EXPECT_THAT(errors_of(http_with("store: ledger\n    routes:\n"
                                  "      - { match: 'PUT /a/{id}', resource: a }\n"
                                  "      - { match: 'PUT,POST /a/{name}', resource: b }")),
              ElementsAre(HasSubstr("12:18: match: ")));
}

TEST_F(HttpConfigTest, AnUpstreamIsNeededWhereSomethingIsForwarded) {
  const std::string start =
      "stores: { ledger: { url: postgres://db } }\ngates:\n  - name: api\n    protocol: http\n    listen: :1\n"
      "    store: ledger\n";
  const std::string atomic = "    routes: [ { match: 'PUT /a', resource: a, sql: 'select 1' } ]\n";
  const auto gate = http_of(start + atomic);
  EXPECT_FALSE(gate.upstream.has_value());
  EXPECT_THAT(errors_of(start + atomic + "    unmatched: pass\n"),
              ElementsAre("8:16: unmatched: pass needs the key \"upstream\""));
  EXPECT_THAT(errors_of(start + "    routes: [ { match: 'PUT /a', resource: a } ]\n"),
              ElementsAre("3:5: gate needs the key \"upstream\": the route on line 7 forwards"));
}

TEST_F(HttpConfigTest, RejectsWhatHasNoEffectOrNoEnd) {
  const auto with = [this](const std::string& keys, const std::string& route) {
    return errors_of(http_with(keys + "\n    routes: [ { " + order_ + route + " } ]"));
  };
  EXPECT_THAT(with("hold_grace: 1s", "store: cache"), ElementsAre(HasSubstr("9:17: hold_grace has no effect")));
  EXPECT_THAT(with("answer_timeout: 5s", "store: ledger"),
              ElementsAre(HasSubstr("9:21: answer_timeout must be longer than hold_grace")));
  EXPECT_THAT(with("seal: admin", "store: ledger"), ElementsAre("9:11: seal: admin needs the section admin"));
  EXPECT_THAT(with("token_header: content_length", "store: ledger"), ElementsAre(HasSubstr("9:19: this field has")));
  EXPECT_THAT(with("token_header: 'a b'", "store: ledger"), ElementsAre(HasSubstr("9:19: token_header must be")));
  EXPECT_THAT(with("password_file: /x", "store: ledger"), ElementsAre(HasSubstr("has no key \"password_file\"")));
  EXPECT_THAT(with("guard: session", "store: ledger"),
              ElementsAre("9:5: an http gate has no key \"guard\": it belongs to postgres gates"));
  EXPECT_THAT(with("unmatched: tag", "store: ledger"), ElementsAre(HasSubstr("must be one of reject, pass")));
  EXPECT_THAT(errors_of(http_with("routes: []")), ElementsAre(HasSubstr("9:13: routes is empty")));
}

TEST_F(HttpConfigTest, RejectsATimeoutThatItDoesNotHave) {
  EXPECT_THAT(errors_of(route_with(order_ + "store: ledger") + "    timeouts: { head: 1s, idle: 5s }\n"),
              ElementsAre(HasSubstr("timeouts.idle has no effect in an http gate")));
}

TEST_F(HttpConfigTest, MarksAtTheAdminListenerAreThoseOfOneGate) {
  const std::string admin = "admin: { listen: 127.0.0.1:9180 }\n";
  const std::string one =
      admin + http_with("seal: admin\n    routes: [ { match: 'PUT /a', resource: a, store: ledger } ]");
  EXPECT_EQ(http_of(one).seal, settings::http_seal::admin);
  EXPECT_THAT(
      errors_of(one + "  - { name: more, protocol: http, listen: ':8082', upstream: 'http://h', seal: admin,\n"
                      "      routes: [ { match: 'PUT /a', resource: a, store: cache } ] }\n"),
      ElementsAre("12:80: seal: admin is gate \"api\"'s already: the admin listener serves the marks of one gate"));
}

TEST_F(HttpConfigTest, RejectsUpstreamsItCannotServe) {
  const auto errors = [this](const std::string& upstream) {
    return errors_of(
        "stores: { ledger: { url: postgres://db } }\ngates:\n  - { name: a, protocol: http, listen: ':1', "
        "upstream: '" +
        upstream + "', store: ledger, routes: [ { match: 'PUT /a', resource: a } ] }\n");
  };
  EXPECT_THAT(errors("http://h"), IsEmpty());
  EXPECT_THAT(errors("https://h?sslmode=require"), IsEmpty());
  EXPECT_THAT(errors("unix:///run/app.sock"), IsEmpty());
  for (const auto* bad : {"https://h", "http://h?sslmode=require", "unix:///x?sslmode=require", "http://h/path",
                          "http://u@h", "http://h?x", "redis://h", "h:80"})
    EXPECT_THAT(errors(bad), ElementsAre(HasSubstr("upstream: "))) << bad;
  EXPECT_THAT(errors("http://127.0.0.1:1"), ElementsAre(HasSubstr("upstream is where gate \"a\" listens")));
}

TEST_F(HttpConfigTest, PoolsHaveASize) {
  const auto with = [this](const std::string& store) {
    return errors_of("stores: { s: { " + store +
                     " } }\ngates:\n  - { name: a, protocol: redis, listen: ':1', "
                     "upstream: 'redis://h' }\n");
  };
  EXPECT_THAT(with("url: 'postgres://h', pool: 2"), IsEmpty());
  EXPECT_THAT(with("url: 'postgres://h', pool: 1"), ElementsAre(HasSubstr("pool must be")));
  EXPECT_THAT(with("url: 'redis://h', pool: 2"), ElementsAre(HasSubstr("pool is for postgres")));
}

}  // namespace
}  // namespace fencegate::cli
