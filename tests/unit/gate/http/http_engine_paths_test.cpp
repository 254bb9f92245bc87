// Two spellings of one path are one resource, one parameter and one path for the upstream.
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class http_paths : public http_rig {
 protected:
  http_paths() {
    gate_.routes.clear();
    auto& sql = add("POST", "/rows/{id:int}/{key:uuid}", "row:{id}:{key}");
    sql.does = settings::http_action::sql;
    sql.statement = "update rows set a = 1 where id = $1 and key = $2";
    sql.parameters = {"{id}", "{key}"};
    add("PUT", "/orders/{id:int}", "order:{id}");
    add("PUT", "/orders/7", "seven");
    add("PUT", "/pages/{name:slug}/{rest...}", "page:{name}");
    auto& fenced = add("GET", "/fenced/{id:int}", "order:{id}");
    fenced.policy.read = fence::reads::fence;
    add("GET", "/plain/{id:int}", "order:{id}");
  }

  static std::string request(const std::string& line) {
    return line + " HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n\r\n";
  }
  // The resource that is asked about; its request is then admitted.
  std::string resource_of(const std::string& line) {
    host.claims.clear();
    host.asked.clear();
    client(request(line));
    return host.claims.empty() ? "" : host.claims.front().resource;
  }
};

TEST_F(http_paths, a_forward_goes_out_in_the_spelling_that_was_fenced) {
  EXPECT_EQ(resource_of("PUT /orders/0%308"), "order:8");
  host.admit();
  engine().on_connected();
  EXPECT_THAT(to_upstream(), StartsWith("PUT /orders/8 HTTP/1.1\r\n"));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(resource_of("PUT /pages/About-Us/a%3Bb/C?x=%41"), "page:about-us");
  host.admit();
  EXPECT_THAT(to_upstream(), StartsWith("PUT /pages/about-us/a%3Bb/C?x=%41 HTTP/1.1\r\n"));
}

TEST_F(http_paths, parameters_are_what_the_resource_is_made_of) {
  EXPECT_EQ(resource_of("POST /rows/-007/%7BA0EEBC999C0B4EF8BB6D6BB9BD380A11%7D"),
            "row:-7:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
  EXPECT_THAT(host.run_values, ElementsAre("-7", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"));
}

TEST_F(http_paths, what_is_no_such_value_is_refused_and_no_other_route_takes_it) {
  gate_.unmatched = settings::http_unmatched::pass;
  for (const auto* path : {"x", "7x", "+7", "0x7", "7.0", "7e0", "%207", "1_0", "9223372036854775808", "-", "%D9%A7"}) {
    EXPECT_EQ(resource_of(std::string("PUT /orders/") + path), "") << path;
    EXPECT_EQ(status_of(to_client()), 400) << path;
    EXPECT_EQ(host.connects, 0);
  }
}

TEST_F(http_paths, a_spelling_of_another_route_is_refused) {
  EXPECT_EQ(resource_of("PUT /orders/07"), "");
  EXPECT_EQ(status_of(to_client()), 400);
  EXPECT_EQ(resource_of("PUT /orders/7"), "seven");
}

TEST_F(http_paths, reads_that_pass_are_the_upstreams_to_understand) {
  client("GET /plain/search HTTP/1.1\r\nHost: a\r\n\r\n");
  engine().on_connected();
  EXPECT_THAT(to_upstream(), StartsWith("GET /plain/search HTTP/1.1\r\n"));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  to_client();
  EXPECT_EQ(resource_of("GET /fenced/search"), "");
  EXPECT_EQ(status_of(to_client()), 400);
}

TEST_F(http_paths, a_claim_for_what_no_route_is_about_raises_nothing) {
  client("PUT /orders/8 HTTP/1.1\r\nHost: a\r\nFencing-Token: order:8=34, billing=9\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(host.asked, "");
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 403);
  EXPECT_THAT(said, HasSubstr(R"("resource":"billing","token":9)"));
  client("PUT /orders/8 HTTP/1.1\r\nHost: a\r\nFencing-Token: order:8=34, page:b=9\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(host.asked, "raise");
}

}  // namespace
}  // namespace fencegate::gate
