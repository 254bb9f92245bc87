#include "admin/admin_pages.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace fencegate::admin {
namespace {

class AdminPages : public testing::Test {
 protected:
  AdminPages() { process.gates.push_back(std::make_unique<metrics::gate>("cache")); }

  page_answer ask(std::string_view method, std::string_view target) {
    page_request r;
    r.method = method;
    r.target = target;
    r.host = "localhost";
    r.from_loopback = true;
    return answer_page(r, process, listen);
  }
  page_answer quit_with_host(std::optional<std::string_view> host) {
    page_request r;
    r.method = "POST";
    r.target = "/quit";
    r.host = host;
    r.from_loopback = true;
    return answer_page(r, process, listen);
  }

  metrics::process process;
  settings::address listen{"10.1.2.3", 9180, {}};
};

TEST_F(AdminPages, LivenessDependsOnNothing) {
  EXPECT_EQ(ask("GET", "/livez").status, 200u);
  process.draining.set(1);
  EXPECT_EQ(ask("GET", "/livez").status, 200u);
  EXPECT_EQ(ask("GET", "/livez?verbose").status, 200u);
}

TEST_F(AdminPages, ReadinessFollowsStartAndDrainButNotTheBackend) {
  EXPECT_EQ(ask("GET", "/readyz").status, 503u);
  EXPECT_EQ(ask("GET", "/readyz").body, "starting\n");
  process.ready = true;
  process.gates[0]->backend_up.set(0);
  EXPECT_EQ(ask("GET", "/readyz").status, 200u);
  process.draining.set(1);
  EXPECT_EQ(ask("GET", "/readyz").status, 503u);
  EXPECT_EQ(ask("GET", "/readyz").body, "draining\n");
}

TEST_F(AdminPages, MetricsSayTheirFormat) {
  const auto a = ask("GET", "/metrics");
  EXPECT_EQ(a.status, 200u);
  EXPECT_EQ(a.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(a.body.find("fencegate_connections{gate=\"cache\"} 0\n"), std::string::npos);
}

TEST_F(AdminPages, UnknownPathsAreNotFoundWhateverTheMethod) {
  for (const char* target :
       {"/metricsx", "/livez/", "", "*", "/", "//", "/LIVEZ", "http://localhost/livez", "?/livez"}) {
    EXPECT_EQ(ask("GET", target).status, 404u) << target;
    EXPECT_EQ(ask("POST", target).status, 404u) << target;
  }
}

TEST_F(AdminPages, OtherMethodsAreRefusedWithTheAllowedOnes) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"}) {
    for (const char* target : {"/livez", "/readyz", "/metrics"}) {
      const auto a = ask(method, target);
      EXPECT_EQ(a.status, 405u) << method << ' ' << target;
      EXPECT_EQ(a.allow, "GET, HEAD");
    }
  }
  for (const char* method : {"GET", "HEAD", "PUT", "post"}) {
    const auto a = ask(method, "/quit");
    EXPECT_EQ(a.status, 405u) << method;
    EXPECT_EQ(a.allow, "POST");
    EXPECT_FALSE(a.quit) << method;
  }
}

TEST_F(AdminPages, QuitIsAnsweredToThisHostsNames) {
  for (const char* host : {"localhost", "LocalHost:9180", "127.0.0.1", "127.0.0.1:9180", "[::1]", "[::1]:80",
                           "10.1.2.3", "10.1.2.3:9180", "localhost:"}) {
    const auto a = quit_with_host(host);
    EXPECT_EQ(a.status, 200u) << host;
    EXPECT_TRUE(a.quit) << host;
  }
}

TEST_F(AdminPages, QuitRefusesOtherNamesWhichIsDnsRebinding) {
  for (const char* host : {"evil.example", "evil.example:9180", "localhost.evil.example", "127.0.0.1.evil.example", "",
                           ":9180", "::1", "[localhost]", "[::1", "[::1]x", "localhost:9180x", "localhost:80:80",
                           "localhost ", "10.1.2.4", "user@localhost"}) {
    const auto a = quit_with_host(host);
    EXPECT_EQ(a.status, 403u) << host;
    EXPECT_FALSE(a.quit) << host;
  }
  EXPECT_FALSE(quit_with_host(std::nullopt).quit);
}

TEST_F(AdminPages, QuitRefusesPeersFromElsewhere) {
  page_request r;
  r.method = "POST";
  r.target = "/quit";
  r.host = "10.1.2.3:9180";
  r.from_loopback = false;
  const auto a = answer_page(r, process, listen);
  EXPECT_EQ(a.status, 403u);
  EXPECT_FALSE(a.quit);
}

TEST_F(AdminPages, QuitRefusesBrowsersSinceAnyWebPageMayPostToLoopback) {
  page_request r;
  r.method = "POST";
  r.target = "/quit";
  r.host = "127.0.0.1:9180";
  r.from_loopback = true;
  r.from_browser = true;
  const auto a = answer_page(r, process, listen);
  EXPECT_EQ(a.status, 403u);
  EXPECT_FALSE(a.quit);
}

TEST_F(AdminPages, MarksAreForTheirServiceAndOnlyWhereThereIsOne) {
  page_request r;
  r.target = "/.fencegate/marks/orders";
  r.host = "localhost";
  r.from_loopback = true;
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE"}) {
    r.method = method;
    EXPECT_TRUE(answer_page(r, process, listen, true).marks) << method;
    const auto without = answer_page(r, process, listen, false);
    EXPECT_FALSE(without.marks) << method;
    EXPECT_EQ(without.status, 404u) << method;
  }
  r.target = "/.fencegate/marks";
  EXPECT_EQ(answer_page(r, process, listen, true).status, 404u);
}

TEST_F(AdminPages, MarksAndReloadsAreRefusedToWhomQuitIs) {
  page_request good;
  good.host = "localhost";
  good.from_loopback = true;
  auto from_elsewhere = good, browser = good, rebound = good, nameless = good;
  from_elsewhere.from_loopback = false;
  browser.from_browser = true;
  rebound.host = "evil.example";
  nameless.host = std::nullopt;
  for (const auto& [method, target] : {std::pair("PUT", "/.fencegate/marks/orders"), std::pair("POST", "/reload")}) {
    for (auto* r : {&from_elsewhere, &browser, &rebound, &nameless}) {
      r->method = method;
      r->target = target;
      const auto a = answer_page(*r, process, listen, true);
      EXPECT_EQ(a.status, 403u) << a.body;
      EXPECT_FALSE(a.marks || a.reload) << a.body;
    }
  }
}

TEST_F(AdminPages, AReloadIsAPost) {
  page_request r;
  r.target = "/reload";
  r.host = "localhost";
  r.from_loopback = true;
  r.method = "GET";
  EXPECT_EQ(answer_page(r, process, listen).allow, "POST");
  r.method = "POST";
  EXPECT_TRUE(answer_page(r, process, listen).reload);
}

TEST_F(AdminPages, AListenAddressWithoutANameIsNotAnyHost) {
  listen.host = "";
  EXPECT_FALSE(quit_with_host("").quit);
  EXPECT_FALSE(quit_with_host(":9180").quit);
}

}  // namespace
}  // namespace fencegate::admin
