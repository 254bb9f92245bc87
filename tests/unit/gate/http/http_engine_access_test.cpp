#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class http_access_log : public http_rig {
 protected:
  http_access_log() { gate_.access_log_every = 1; }
  void admit_and_answer(std::string_view response) {
    host.admit();
    engine().on_connected();
    upstream(response);
  }
  [[nodiscard]] std::uint64_t answers(int digit) const {
    return stats().responses_total[static_cast<std::size_t>(digit) - 2].value();
  }
};

TEST_F(http_access_log, has_each_request_without_its_query) {
  client("PUT /checked/7?secret=x HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, IsEmpty());
  admit_and_answer("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 201 order:7"));
  client("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 201 order:7", "POST /nowhere 403"));
  EXPECT_EQ(answers(2), 1u);
  EXPECT_EQ(answers(4), 1u);
}

TEST_F(http_access_log, has_what_could_not_be_read) {
  client("garbage\r\n\r\n");
  EXPECT_THAT(host.accesses, ElementsAre("  400"));
}

TEST_F(http_access_log, says_nothing_of_an_answer_that_its_client_did_not_wait_for) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 5\r\n\r\nhe");
  host.admit();
  engine().on_connected();
  engine().on_client_end();
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 0 order:7"));
}

TEST_F(http_access_log, is_off_by_default) {
  gate_.access_log_every = 0;
  client("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, IsEmpty());
  EXPECT_EQ(answers(4), 1u);
}

TEST_F(http_access_log, a_trace_goes_on_and_is_told) {
  const std::string request = "PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n";
  client(request + "traceparent: " + parent + "\r\ntracestate: a=b\r\n\r\n");
  host.admit();
  engine().on_connected();
  EXPECT_THAT(to_upstream(), HasSubstr("\r\ntraceparent: " + parent + "\r\ntracestate: a=b\r\n"));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 200 order:7 " + parent));
  client("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\ntraceparent: " + parent + "\r\n\r\n");
  EXPECT_EQ(host.traced, parent);
}

TEST_F(http_access_log, a_malformed_trace_goes_on_and_is_not_told) {
  const std::string request = "PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n";
  client(request + "traceparent: 00-not-a-trace\r\n\r\n");
  host.admit();
  engine().on_connected();
  EXPECT_THAT(to_upstream(), HasSubstr("\r\ntraceparent: 00-not-a-trace\r\n"));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 200 order:7"));
}

TEST_F(http_access_log, an_unknown_outcome_is_counted) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n\r\n");
  host.admit();
  engine().on_connected();
  engine().on_backend_end();
  EXPECT_THAT(host.accesses, ElementsAre("PUT /checked/7 502 order:7"));
  EXPECT_EQ(stats().unknown_total.value(), 1u);
}

}  // namespace
}  // namespace fencegate::gate
