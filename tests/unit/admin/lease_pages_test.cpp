#include "admin/lease_pages.hpp"

#include <gtest/gtest.h>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;
using lease::lease_refusal;

const std::string id = "00112233445566778899aabbccddeeff";
const settings::address on_loopback{"127.0.0.1", 9181, {}};

lease_request request_of(std::string_view method, std::string_view target, std::string_view body = "") {
  lease_request out;
  out.head = {.method = method, .target = target, .host = "localhost", .from_browser = false, .from_loopback = true};
  if (!body.empty()) out.content_type = "application/json";
  out.body = body;
  return out;
}

boost::system::result<lease_question, lease_answer> ask(std::string_view method, std::string_view target,
                                                        std::string_view body = "") {
  return read_lease_request(request_of(method, target, body), on_loopback);
}

// The problem that is answered, or "" for a question.
std::string problem_of(std::string_view method, std::string_view target, std::string_view body = "") {
  const auto read = ask(method, target, body);
  if (read) return "";
  EXPECT_EQ(read.error().content_type, "application/problem+json");
  EXPECT_NE(read.error().body.find("\"status\":" + std::to_string(read.error().status)), std::string::npos);
  return std::to_string(read.error().status) + " " + read.error().body;
}

TEST(LeasePages, ReadsAWishWithItsDefaults) {
  const auto read = ask("POST", "/v1/leases", R"({"resources":["orders"]})");
  ASSERT_TRUE(read) << read.error().body;
  EXPECT_EQ(read->what, lease_question::kind::acquire);
  const auto& wish = read->wish;
  EXPECT_EQ(wish.id, "");
  EXPECT_EQ(wish.resources, std::vector<std::string>{"orders"});
  EXPECT_FALSE(wish.ttl);
  EXPECT_FALSE(wish.stop_grace);
  EXPECT_EQ(wish.wait, 0ms);
  EXPECT_EQ(wish.at_least, 0ms);
  EXPECT_EQ(wish.holder, "");
}

TEST(LeasePages, ReadsAllThatAWishMaySay) {
  const auto read =
      ask("POST", "/v1/leases",
          R"({"id":")" + id +
              R"(","resources":["orders","acct:7"],"ttl":"30s","wait":"24h","stop_grace":"0","at_least":"500ms",
                                "holder":"host-a \u00e4"})");
  ASSERT_TRUE(read) << read.error().body;
  const auto& wish = read->wish;
  EXPECT_EQ(wish.id, id);
  EXPECT_EQ(wish.resources, (std::vector<std::string>{"orders", "acct:7"}));
  EXPECT_EQ(wish.ttl, 30s);
  EXPECT_EQ(wish.stop_grace, 0s);
  EXPECT_EQ(wish.wait, 24h);
  EXPECT_EQ(wish.at_least, 500ms);
  EXPECT_EQ(wish.holder, "host-a \u00e4");
}

TEST(LeasePages, ReadsTokensExactly) {
  const auto read = ask("PUT", "/v1/leases/" + id, R"({"tokens":{"orders":9223372036854775807,"a":9007199254740993}})");
  ASSERT_TRUE(read) << read.error().body;
  EXPECT_EQ(read->what, lease_question::kind::renew);
  EXPECT_EQ(read->id, id);
  EXPECT_EQ(fence::write_tag(read->tokens), "orders=9223372036854775807,a=9007199254740993");
  EXPECT_EQ(ask("DELETE", "/v1/leases/" + id, R"({"tokens":{"orders":35}})")->what, lease_question::kind::release);
}

TEST(LeasePages, ReadsWhatHasNoBody) {
  EXPECT_EQ(ask("GET", "/v1/leases")->what, lease_question::kind::list);
  const auto watch = ask("GET", "/v1/leases/" + id + "/events");
  EXPECT_EQ(watch->what, lease_question::kind::watch);
  EXPECT_EQ(watch->id, id);
}

struct bad_body {
  const char* body;
  const char* says;  // in the answer, as it stands in JSON
};

TEST(LeasePages, SaysWhatIsWrongInAWish) {
  const bad_body all[] = {
      {"x", "the body: no JSON"},
      {R"({"resources":["a"]} {})", "behind the value"},
      {R"(["a"])", "must be a JSON object"},
      {R"({"resources":["a"],"resources":["b"]})", R"(\"resources\" is there twice)"},
      {R"({"resources":["a"],"til":"30s"})", "'til' here; known: id, resources, ttl, wait"},
      {R"({"resources":["a"],"tokens":{}})", "'tokens'"},
      {R"({"resources":["a"],"":1})", "''"},
      {"{}", "resources must be a list of from 1 to 32 resources"},
      {R"({"resources":"a"})", "resources must be a list"},
      {R"({"resources":[]})", "resources must be a list"},
      {R"({"resources":null})", "resources must be a list"},
      {R"({"resources":["a",7]})", "resources[1] is no name"},
      {R"({"resources":["a b"]})", "resources[0] 'a b' is no name"},
      {R"({"resources":[""]})", "resources[0] '' is no name"},
      {R"({"resources":["a\u0000"]})", "resources[0] 'a?' is no name"},
      {R"({"resources":["b","a","b"]})", "resources[2] 'b' is there twice"},
      {R"({"resources":[["a"]]})", "resources[0] is no name"},
      {R"({"resources":["a"],"id":7})", "id must be a text"},
      {R"({"resources":["a"],"id":""})", "id must have 32"},
      {R"({"resources":["a"],"id":"00112233445566778899AABBCCDDEEFF"})", "id must have 32"},
      {R"({"resources":["a"],"id":"00112233445566778899aabbccddeefg"})", "id must have 32"},
      {R"({"resources":["a"],"ttl":30})", R"(ttl must be a text with a unit, such as \"30s\")"},
      {R"({"resources":["a"],"ttl":"30"})", "ttl: a duration needs a unit"},
      {R"({"resources":["a"],"ttl":"-1s"})", "ttl: not a duration"},
      {R"({"resources":["a"],"ttl":"0s"})", "ttl must be longer than 0"},
      {R"({"resources":["a"],"ttl":"1441m"})", "ttl: it must be 24h or shorter"},
      {R"({"resources":["a"],"wait":"25h"})", "wait: it must be 24h or shorter"},
      {R"({"resources":["a"],"wait":"800h"})", "wait: the duration is longer"},
      {R"({"resources":["a"],"wait":null})", "wait must be a text"},
      {R"({"resources":["a"],"stop_grace":"5 s"})", "stop_grace: not a duration"},
      {R"({"resources":["a"],"at_least":true})", "at_least must be a text"},
      {R"({"resources":["a"],"holder":""})", "holder must have 1 to 200 bytes"},
      {R"({"resources":["a"],"holder":"a\nb"})", "holder must have"},
      {R"({"resources":["a"],"holder":"a\u0000b"})", "holder must have"},
      {R"({"resources":["a"],"holder":{}})", "holder must be a text"},
  };
  for (const auto& one : all) {
    const auto answer = problem_of("POST", "/v1/leases", one.body);
    EXPECT_TRUE(answer.starts_with(R"(400 {"type":"urn:fencegate:malformed",)")) << one.body << '\n' << answer;
    EXPECT_NE(answer.find(one.says), std::string::npos) << one.body << '\n' << answer;
  }
}

TEST(LeasePages, AWishHasALimitInEveryDirection) {
  std::string list;
  for (int i = 0; i < 33; ++i) list += (i == 0 ? "\"r" : ",\"r") + std::to_string(i) + "\"";
  EXPECT_NE(problem_of("POST", "/v1/leases", "{\"resources\":[" + list + "]}").find("from 1 to 32"), std::string::npos);
  const std::string name(201, 'n');
  EXPECT_NE(problem_of("POST", "/v1/leases", "{\"resources\":[\"" + name + "\"]}").find("is no name"),
            std::string::npos);
  EXPECT_NE(problem_of("POST", "/v1/leases", R"({"resources":["a"],"holder":")" + name + "\"}").find("1 to 200 bytes"),
            std::string::npos);
  EXPECT_NE(problem_of("POST", "/v1/leases", R"({"resources":)" + std::string(9, '[')).find("too deep"),
            std::string::npos);
}

TEST(LeasePages, SaysWhatIsWrongInTokens) {
  const bad_body all[] = {
      {"{}", R"(tokens must be an object of from 1 to 32 resources, such as {\"orders\":35})"},
      {R"({"tokens":{}})", "tokens must be an object"},
      {R"({"tokens":[35]})", "tokens must be an object"},
      {R"({"tokens":"orders=35"})", "tokens must be an object"},
      {R"({"tokens":{"a b":35}})", "'a b' is no name"},
      {R"({"tokens":{"a":1,"a":1}})", R"(\"a\" is there twice)"},
      {R"({"tokens":{"a":1},"ttl":"30s"})", "'ttl' here; known: tokens"},
      {R"({"tokens":{"a":-1}})", "tokens.a must be a whole number from 0 to 9223372036854775807"},
      {R"({"tokens":{"a":"35"}})", "tokens.a must be a whole number"},
      {R"({"tokens":{"a":35.0}})", "tokens.a must be a whole number"},
      {R"({"tokens":{"a":3e1}})", "tokens.a must be a whole number"},
      {R"({"tokens":{"a":9223372036854775808}})", "tokens.a must be a whole number"},
      {R"({"tokens":{"a":99999999999999999999999}})", "tokens.a must be a whole number"},
      {R"({"tokens":{"a":null}})", "tokens.a must be a whole number"},
  };
  for (const auto& one : all) {
    for (const char* method : {"PUT", "DELETE"}) {
      const auto answer = problem_of(method, "/v1/leases/" + id, one.body);
      EXPECT_TRUE(answer.starts_with(R"(400 {"type":"urn:fencegate:malformed",)")) << one.body << '\n' << answer;
      EXPECT_NE(answer.find(one.says), std::string::npos) << one.body << '\n' << answer;
    }
  }
}

TEST(LeasePages, ReadsWhichGateAConnectionGoesTo) {
  const std::string right = "/v1/leases/" + id + "/gates/db";
  auto request = request_of("POST", right, R"({"tokens":{"orders":35}})");
  const auto plain = read_lease_request(request, on_loopback);
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().status, 426u);
  request.upgrades = true;
  const auto read = read_lease_request(request, on_loopback);
  ASSERT_TRUE(read) << read.error().body;
  EXPECT_EQ(read->what, lease_question::kind::connect);
  EXPECT_EQ(read->id, id);
  EXPECT_EQ(read->gate, "db");
  EXPECT_EQ(fence::write_tag(read->tokens), "orders=35");
  for (const std::string wrong : {"/gates/", "/gates", "/gates/db/", "/gates/db/x"}) {
    const std::string target = "/v1/leases/" + id + wrong;
    request.head.target = target;
    const auto other = read_lease_request(request, on_loopback);
    ASSERT_FALSE(other) << wrong;
    EXPECT_EQ(other.error().status, 404u) << wrong;
  }
}

TEST(LeasePages, KnowsNoOtherPath) {
  const std::vector<std::string> paths{"/",
                                       "",
                                       "/v1",
                                       "/v1/lease",
                                       "/v1/leasesx",
                                       "/v1/leases/",
                                       "/v1/leases//events",
                                       "/v1/leases/" + id + "/",
                                       "/v1/leases/" + id + "/events/",
                                       "/v1/leases/" + id + "/x",
                                       "http://localhost/v1/leases",
                                       "*"};
  for (const auto& path : paths) {
    for (const char* method : {"GET", "POST", "PUT"}) EXPECT_TRUE(problem_of(method, path).starts_with("404 ")) << path;
  }
}

TEST(LeasePages, SaysWhichMethodsAreAllowed) {
  const struct {
    std::string path, allow;
    std::vector<const char*> others;
  } all[] = {{"/v1/leases", "GET, POST", {"PUT", "DELETE", "HEAD", "OPTIONS", "post"}},
             {"/v1/leases/" + id, "PUT, DELETE", {"GET", "POST", "HEAD", "PATCH"}},
             {"/v1/leases/" + id + "/events", "GET", {"PUT", "POST", "HEAD"}},
             {"/v1/leases/" + id + "/gates/db", "POST", {"PUT", "GET", "DELETE"}}};
  for (const auto& one : all) {
    for (const char* method : one.others) {
      const auto read = ask(method, one.path);
      ASSERT_FALSE(read) << method << ' ' << one.path;
      EXPECT_EQ(read.error().status, 405u);
      EXPECT_EQ(read.error().allow, one.allow);
    }
  }
}

TEST(LeasePages, AnIdIsThirtyTwoDigits) {
  for (const char* bad : {"x", "00112233445566778899aabbccddeef", "00112233445566778899AABBCCDDEEFF",
                          "00112233445566778899aabbccddeeff0", "%3011223344556677889aabbccddeeff"}) {
    EXPECT_TRUE(problem_of("PUT", std::string("/v1/leases/") + bad, R"({"tokens":{"a":1}})").starts_with("400 "))
        << bad;
    EXPECT_TRUE(problem_of("GET", std::string("/v1/leases/") + bad + "/events").starts_with("400 ")) << bad;
  }
  EXPECT_TRUE(problem_of("GET", "/v1/leases?all").starts_with("400 "));
  EXPECT_TRUE(problem_of("GET", "/v1/leases", "{}").starts_with("400 "));
}

TEST(LeasePages, WantsJsonByItsName) {
  auto request = request_of("POST", "/v1/leases", R"({"resources":["a"]})");
  for (const char* type :
       {"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x"}) {
    request.content_type = type;
    EXPECT_TRUE(read_lease_request(request, on_loopback)) << type;
  }
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/plain; application/json"}) {
    request.content_type = type;
    EXPECT_EQ(read_lease_request(request, on_loopback).error().status, 415u) << type;
  }
  request.content_type.reset();
  EXPECT_EQ(read_lease_request(request, on_loopback).error().status, 415u);
}

TEST(LeasePages, IsForLocalProgramsAlone) {
  const auto good = request_of("POST", "/v1/leases", R"({"resources":["a"]})");
  auto elsewhere = good, browser = good, rebound = good, nameless = good;
  elsewhere.head.from_loopback = false;
  browser.head.from_browser = true;
  rebound.head.host = "evil.example";
  nameless.head.host.reset();
  for (const auto* one : {&elsewhere, &browser, &rebound, &nameless}) {
    const auto read = read_lease_request(*one, on_loopback);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().status, 403u);
    EXPECT_NE(read.error().body.find(R"("type":"about:blank","title":"Forbidden")"), std::string::npos);
  }
  EXPECT_TRUE(read_lease_request(good, settings::address{"", 0, "/run/lease.sock"}));
}

lease::lease_given given_lease() {
  return {id, {{"orders", fence::token(9007199254740993)}, {"a", fence::token(2)}}, 24s, 5s};
}

TEST(LeasePages, AnswersAGrant) {
  const auto answer = lease_granted(given_lease());
  EXPECT_EQ(answer.status, 201u);
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_EQ(answer.body, R"({"id":")" + id + R"(","tokens":{"orders":9007199254740993,"a":2},)" +
                             R"("tag":"orders=9007199254740993,a=2","act_for_ms":24000,"stop_ms":5000})");
  EXPECT_EQ(lease_renewed(given_lease()).body, R"({"act_for_ms":24000,"stop_ms":5000})");
  EXPECT_EQ(lease_renewed(given_lease()).status, 200u);
  EXPECT_EQ(lease_released().status, 204u);
  EXPECT_EQ(lease_released().body, "");
}

TEST(LeasePages, AnswersWhyNot) {
  using kind = lease_refusal::kind;
  const auto held = lease_refused({kind::busy, "held by host-b", "orders", "host-b", 1500ms});
  EXPECT_EQ(held.status, 409u);
  EXPECT_EQ(held.content_type, "application/problem+json");
  EXPECT_EQ(held.body, R"({"type":"urn:fencegate:held","title":"Another holds the lease","status":409,)"
                       R"("detail":"held by host-b","resource":"orders","holder":"host-b","left_ms":1500})");
  EXPECT_EQ(lease_refused({kind::lost, "over"}).status, 410u);
  EXPECT_EQ(lease_refused({kind::lost, "over"}).body,
            R"({"type":"urn:fencegate:lost","title":"The lease is over","status":410,"detail":"over"})");
  EXPECT_EQ(lease_refused({kind::unreachable, ""}).status, 503u);
  EXPECT_NE(lease_refused({kind::unreachable, ""}).body.find("urn:fencegate:unavailable"), std::string::npos);
  EXPECT_EQ(lease_refused({kind::refused, ""}).status, 422u);
  EXPECT_NE(lease_refused({kind::refused, ""}).body.find("urn:fencegate:refused"), std::string::npos);
  EXPECT_EQ(lease_unknown().status, 404u);
}

TEST(LeasePages, ReadsWhatAnOperatorAsks) {
  using kind = lease::operation::kind;
  const auto read = ask("POST", "/v1/operations/break",
                        R"({"resources":["orders","a/b"],"issuer":"main","reason":"hangs","by":"host:7"})");
  ASSERT_TRUE(read) << read.error().body;
  EXPECT_EQ(read->what, lease_question::kind::operate);
  EXPECT_EQ(read->operation.what, kind::break_lease);
  EXPECT_EQ(read->operation.resources, (std::vector<std::string>{"orders", "a/b"}));
  EXPECT_EQ(read->operation.issuer, "main");
  EXPECT_EQ(read->operation.reason, "hangs");
  EXPECT_EQ(read->by, "host:7");
  const auto all = ask("POST", "/v1/operations/show", "{}");
  ASSERT_TRUE(all) << all.error().body;
  EXPECT_TRUE(all->operation.resources.empty());
  const auto moved = ask("POST", "/v1/operations/move", R"({"resources":["orders"],"to":"other","from_lost":true})");
  ASSERT_TRUE(moved) << moved.error().body;
  EXPECT_TRUE(moved->operation.from_lost);
  EXPECT_FALSE(moved->operation.wait);
}

TEST(LeasePages, RefusesOperatorsAsItRefusesOthers) {
  auto asked = request_of("POST", "/v1/operations/break", R"({"resources":["orders"],"reason":"hangs"})");
  const auto status = [&] {
    const auto read = read_lease_request(asked, on_loopback);
    return read ? 0 : read.error().status;
  };
  EXPECT_EQ(status(), 0u);
  asked.head.from_browser = true;
  EXPECT_EQ(status(), 403u);
  asked.head.from_browser = false;
  asked.head.host = "evil.example";
  EXPECT_EQ(status(), 403u);
  asked.head.host = "localhost";
  asked.head.from_loopback = false;
  EXPECT_EQ(status(), 403u);
  asked.head.from_loopback = true;
  asked.content_type = "text/plain";
  EXPECT_EQ(status(), 415u);
}

TEST(LeasePages, ListsLeasesWithoutTheirIds) {
  EXPECT_EQ(leases_listed({}).body, R"({"leases":[]})");
  const lease::lease_seen held{{"orders"}, {{"orders", fence::token(35)}}, "host \"a\"", 24s};
  const lease::lease_seen waiting{{"orders", "b"}, {}, "host-b", 0s};
  EXPECT_EQ(
      leases_listed({held, waiting}).body,
      R"({"leases":[{"resources":["orders"],"holder":"host \"a\"","state":"held","tokens":{"orders":35},)"
      R"("tag":"orders=35","act_for_ms":24000},{"resources":["orders","b"],"holder":"host-b","state":"waiting"}]})");
}

TEST(LeasePages, WritesEventsInOneLineOfData) {
  using kind = lease::lease_event::kind;
  const std::string times = R"("tokens":{"orders":9007199254740993,"a":2},"tag":"orders=9007199254740993,a=2",)"
                            R"("act_for_ms":24000,"stop_ms":5000)";
  EXPECT_EQ(lease_event_text({kind::granted, given_lease()}), "event: granted\ndata: {" + times + "}\n\n");
  EXPECT_TRUE(lease_event_text({kind::renewed, given_lease()}).starts_with("event: renewed\n"));
  EXPECT_TRUE(lease_event_text({kind::expiring, given_lease()}).starts_with("event: expiring\n"));
  EXPECT_EQ(lease_event_text({kind::lost, given_lease(), "a\nb"}),
            "event: lost\ndata: {" + times + ",\"why\":\"a\\nb\"}\n\n");
}

}  // namespace
}  // namespace fencegate::admin
