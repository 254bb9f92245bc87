#include "admin/status_pages.hpp"

#include "admin/status_desk.hpp"
#include "base/limits.hpp"

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::admin {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusPages : public testing::Test {
 protected:
  StatusPages() {
    for (const char* name : {"cache", "db"}) process.gates.push_back(std::make_unique<metrics::gate>(name));
    process.ready = true;
  }
  std::optional<page_answer> ask(std::string_view target, std::string_view method = "GET",
                                 std::optional<std::string_view> host = "localhost:9180") {
    return answer_status({method, target, host, false, true}, desk, listen);
  }
  boost::json::object status() { return boost::json::parse(ask("/api/v1/status")->body).as_object(); }
  boost::json::object gate(int which) { return status().at("gates").as_array().at(which).as_object(); }
  void reject(const fence::rejection& why, std::string_view client = "10.0.0.7:1", std::string_view command = "SET") {
    rejection_seen seen;
    seen.at = std::chrono::system_clock::now();
    seen.gate = "cache";
    seen.resource = why.resource;
    if (why.presented) seen.token = why.presented->value();
    if (why.mark) seen.mark = why.mark->value();
    seen.why = why.why;
    seen.client = client;
    seen.command = command;
    seen.detail = why.detail;
    board.note_rejections(std::move(seen));
  }

  settings::address listen{"10.1.2.3", 9180, {}};
  metrics::process process;
  status_board board;
  boost::asio::io_context io;
  lease_status leases;
  status_desk desk{io,
                   {{"cache", "redis", "enforce", "g", "127.0.0.1:6380", {{"", "127.0.0.1:6379"}}},
                    {"db", "http", "mixed", "g", "127.0.0.1:8080", {{"ledger", "db:5432"}, {"", "app:80"}}}},
                   process,
                   board,
                   [this] { return leases; }};
};

TEST_F(StatusPages, AreThreeAndNoOthers) {
  EXPECT_EQ(ask("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(ask("/?x=y")->status, 200u);
  EXPECT_EQ(ask("/api/v1/status")->content_type, "application/json");
  EXPECT_TRUE(ask("/api/v1/status/events")->events);
  for (const char* other : {"/metrics", "/livez", "//", "/api/v1/status/", "/api", "/api/v1/status/events/x", ""})
    EXPECT_FALSE(ask(other)) << other;
}

TEST_F(StatusPages, OnlyRead) {
  for (const char* page : {"/", "/api/v1/status"}) {
    EXPECT_EQ(ask(page, "HEAD")->status, 200u);
    EXPECT_EQ(ask(page, "POST")->status, 405u);
    EXPECT_EQ(ask(page, "POST")->allow, "GET, HEAD");
  }
  EXPECT_EQ(ask("/api/v1/status/events", "HEAD")->status, 405u);
  EXPECT_FALSE(ask("/api/v1/status/events", "HEAD")->events);
}

TEST_F(StatusPages, AreForPeersOnLoopback) {
  for (const char* page : {"/", "/api/v1/status", "/api/v1/status/events"}) {
    const auto told = answer_status({"GET", page, "10.1.2.3:9180", false, false}, desk, listen);
    EXPECT_EQ(told->status, 403u);
    EXPECT_FALSE(told->events);
    EXPECT_THAT(told->body, Not(HasSubstr("cache")));
  }
}

TEST_F(StatusPages, AreRefusedToNamesThatMayBeRebound) {
  for (const char* page : {"/", "/api/v1/status", "/api/v1/status/events"}) {
    for (const char* host :
         {"evil.example", "evil.example:9180", "localhost.evil.example", "", "1.2.3", "1.2.3.4.evil.example"}) {
      EXPECT_EQ(ask(page, "GET", host)->status, 403u) << host;
      EXPECT_FALSE(ask(page, "GET", host)->events);
    }
    for (const char* host : {"localhost", "127.0.0.1:80", "[::1]:9180", "10.1.2.3", "10.244.0.17:9180", "[fd00::17]"})
      EXPECT_EQ(ask(page, "GET", host)->status, 200u) << host;
    EXPECT_EQ(ask(page, "GET", std::nullopt)->status, 200u);
  }
}

TEST_F(StatusPages, ThePolicyAllowsThisAnswersOwnScriptAlone) {
  const auto one = *ask("/");
  const auto& policy = one.content_security_policy;
  EXPECT_THAT(policy, HasSubstr("default-src 'none';"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  const auto at = policy.find("script-src 'nonce-") + 18;
  const auto nonce = policy.substr(at, policy.find('\'', at) - at);
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_THAT(one.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(one.body, Not(HasSubstr("{{")));
  EXPECT_THAT(ask("/")->body, Not(HasSubstr(nonce)));
}

TEST_F(StatusPages, ThePageNeedsNothingFromElsewhere) {
  const auto body = ask("/")->body;
  for (const char* word :
       {"http://", "https://", "src=", "@import", "url(", " onclick", " onload", "style=\"", "innerHTML"}) {
    auto text = body;
    const std::string_view svg = "http://www.w3.org/2000/svg";  // a name, which nobody asks for
    if (const auto at = text.find(svg); at != std::string::npos) text.erase(at, svg.size());
    EXPECT_THAT(text, Not(HasSubstr(word)));
  }
}

TEST_F(StatusPages, WhatClientsChoseIsNoMarkup) {
  const std::string attack = "</script><script>alert(1)</script><!--{{nonce}}{{status}}";
  reject({fence::reason::malformed, attack, {}, {}, attack}, attack, attack);
  leases.leases.push_back({{"orders"}, {}, attack});
  const auto body = ask("/")->body;
  EXPECT_THAT(body, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(body, Not(HasSubstr("<!--{{")));
  EXPECT_THAT(body, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
  const auto one = status().at("rejections").as_array().at(0).as_object();
  EXPECT_EQ(one.at("resource").as_string(), attack);
  EXPECT_EQ(status().at("leases").as_array().at(0).as_object().at("holder").as_string(), attack);
}

TEST_F(StatusPages, TokensKeepTheirDigits) {
  board.note_rise("cache", "orders", {0, 9'223'372'036'854'775'807}, true, std::chrono::system_clock::now());
  EXPECT_EQ(status().at("resources").as_array().at(0).as_object().at("mark").as_string(), "9223372036854775807");
}

TEST_F(StatusPages, ARejectionSaysWhatItsClientWasTold) {
  reject({fence::reason::stale, "orders", fence::token(33), fence::token(34), {}});
  const auto one = status().at("rejections").as_array().at(0).as_object();
  EXPECT_EQ(one.at("code").as_string(), "FENCED");
  EXPECT_EQ(one.at("reason").as_string(), "stale");
  EXPECT_EQ(one.at("token").as_string(), "33");
  EXPECT_FALSE(one.at("let_through").as_bool());
}

TEST_F(StatusPages, ABackendIsNamedWithItsProblem) {
  process.gates[0]->note_backend("", "connection refused");
  process.gates[1]->note_backend("ledger", "");
  process.gates[1]->note_database("archive", "no schema");
  const auto upstream = gate(0).at("backends").as_array().at(0).as_object();
  EXPECT_EQ(upstream.at("state").as_string(), "down");
  EXPECT_EQ(upstream.at("problem").as_string(), "connection refused");
  const auto of_http = gate(1).at("backends").as_array();
  EXPECT_EQ(of_http.at(0).as_object().at("state").as_string(), "up");
  EXPECT_EQ(of_http.at(1).as_object().at("state").as_string(), "unknown");
  EXPECT_EQ(of_http.at(2).as_object().at("name").as_string(), "database archive");
}

TEST_F(StatusPages, TrafficIsShownBySeconds) {
  process.gates[0]->checks(metrics::check_outcome::admitted).add(5);
  desk.look();
  process.gates[0]->checks(metrics::check_outcome::raised).add(2);
  process.gates[0]->checks(metrics::check_outcome::stale).add(3);
  desk.look();
  const auto shown = gate(0);
  const auto& admitted = shown.at("admitted_each_second").as_array();
  ASSERT_EQ(admitted.size(), limits::status_seconds);
  EXPECT_EQ(admitted[limits::status_seconds - 2].as_int64(), 5);
  EXPECT_EQ(admitted.back().as_int64(), 2);
  EXPECT_EQ(shown.at("rejected_each_second").as_array().back().as_int64(), 3);
  EXPECT_EQ(shown.at("admitted").as_int64(), 7);
  EXPECT_EQ(shown.at("stale").as_int64(), 3);
}

TEST_F(StatusPages, AThousandLeasesAreEnough) {
  leases.leases.resize(limits::status_resources_max + 5);
  EXPECT_EQ(status().at("leases").as_array().size(), limits::status_resources_max);
}

TEST_F(StatusPages, LeasesAreShownWithHolderAndPhase) {
  lease::lease_seen held{{"orders"}, {{"orders", fence::token(35)}}, "host:4711"};
  held.act_for = std::chrono::milliseconds(1500);
  leases.leases = {held, {{"stock"}, {}, "next"}};
  leases.writers.push_back({"default", lease::writer_phase::standby, {}, {"jobs"}, {}, "other-pod", "held elsewhere"});
  const auto all = status();
  const auto one = all.at("leases").as_array().at(0).as_object();
  EXPECT_EQ(one.at("state").as_string(), "held");
  EXPECT_EQ(one.at("tokens").as_object().at("orders").as_string(), "35");
  EXPECT_EQ(one.at("act_for_ms").as_int64(), 1500);
  EXPECT_EQ(all.at("leases").as_array().at(1).as_object().at("state").as_string(), "waiting");
  const auto writer = all.at("writers").as_array().at(0).as_object();
  EXPECT_EQ(writer.at("phase").as_string(), "standby");
  EXPECT_EQ(writer.at("held_by").as_string(), "other-pod");
}

}  // namespace
}  // namespace fencegate::admin
