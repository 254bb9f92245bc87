// Clients that leave before the answer.
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::EndsWith;

constexpr std::string_view asks_to_hold =
    "PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 5\r\n\r\nhello";

class http_leaving : public http_rig {
 protected:
  void forward_held() {
    client(asks_to_hold);
    host.admit();
    engine().on_connected();
    to_upstream();
  }
};

TEST_F(http_leaving, a_read_is_given_up) {
  client("GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n");
  engine().on_connected();
  engine().on_client_gone();
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.disconnects, 1);
  EXPECT_EQ(host.outlived, 0);
}

TEST_F(http_leaving, a_hold_lasts_until_the_upstream_has_answered_completely) {
  forward_held();
  engine().on_client_gone();
  EXPECT_EQ(host.outlived, 1);
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
  EXPECT_EQ(host.releases, 0);
  EXPECT_EQ(host.disconnects, 0);
  upstream("ho");
  EXPECT_EQ(host.releases, 1);
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_leaving, in_the_middle_of_the_answer_too) {
  forward_held();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
  engine().on_client_gone();
  EXPECT_EQ(host.outlived, 1);
  EXPECT_EQ(host.releases, 0);
  upstream("ho");
  EXPECT_EQ(host.releases, 1);
}

TEST_F(http_leaving, a_hold_that_outlives_its_client_is_cut_as_others_are) {
  forward_held();
  engine().on_client_gone();
  engine().on_hold_lost(std::nullopt);
  EXPECT_EQ(host.disconnects, 1);
  engine().on_hold_lost(lost_hold(true));
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_leaving, a_hold_that_is_only_asked_for_is_taken_back) {
  client(asks_to_hold);
  engine().on_client_gone();
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.releases, 1);
  EXPECT_EQ(host.outlived, 0);
}

TEST_F(http_leaving, what_it_asked_behind_a_hold_is_not_begun) {
  forward_held();
  client(asks_to_hold);
  engine().on_client_gone();
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(to_upstream(), "");
}

TEST_F(http_leaving, a_client_that_sends_no_more_is_asked_whether_it_reads) {
  forward_held();
  engine().on_client_end();
  EXPECT_TRUE(engine().probe_client());
  EXPECT_EQ(to_client(), "HTTP/1.1 100 Continue\r\n\r\n");
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_FALSE(engine().probe_client());  // the answer does it
  EXPECT_THAT(to_client(), EndsWith("hi"));
}

TEST_F(http_leaving, one_that_speaks_http_1_0_is_not) {
  client("GET /x HTTP/1.0\r\nHost: a\r\n\r\n");
  engine().on_connected();
  engine().on_client_end();
  EXPECT_FALSE(engine().probe_client());
  EXPECT_EQ(to_client(), "");
}

}  // namespace
}  // namespace fencegate::gate
