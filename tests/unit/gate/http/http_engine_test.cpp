#include "base/limits.hpp"
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class http_forwarding : public http_rig {
 protected:
  void link() {
    EXPECT_EQ(host.connects, ++links_);
    engine().on_connected();
  }

 private:
  int links_ = 0;
};

// The beginning of a request whose body is not waited for before the hold.
std::string large_put() {
  return "PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 100000\r\n\r\n" +
         std::string(limits::http_gathered_bytes_max, 'x');
}

constexpr std::string_view put =
    "PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 5\r\n\r\nhello";

TEST_F(http_forwarding, a_read_passes_without_a_token_and_the_connection_goes_on) {
  client("GET /orders/7?x=%41 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nConnection: X-Mine\r\nX-Mine: 1\r\n\r\n");
  EXPECT_EQ(host.asked, "");
  link();
  EXPECT_EQ(to_upstream(),
            "GET /orders/7?x=%41 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nX-Forwarded-For: 192.0.2.7\r\n"
            "X-Forwarded-Proto: http\r\nForwarded: for=192.0.2.7;proto=http\r\nVia: 1.1 fencegate\r\n\r\n");
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi");
  EXPECT_EQ(to_client(), "HTTP/1.1 200 OK\r\nX-A: b\r\nVia: 1.1 fencegate\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(engine().at_rest());
  client("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(to_upstream(), StartsWith("GET /b HTTP/1.1\r\n"));
  EXPECT_EQ(host.disconnects, 0);
}

TEST_F(http_forwarding, without_room_for_its_token_the_connection_ends) {
  host.no_room = "it is full";
  client(put);
  EXPECT_EQ(host.asked, "");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Connection: close\r\n"),
                                 HasSubstr("too many connections (it is full)")));
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.connects, 0);
}

TEST_F(http_forwarding, nothing_leaves_before_the_hold_was_granted_and_seen_alive) {
  client(put);
  EXPECT_EQ(host.asked, "hold");
  EXPECT_THAT(host.claims, ElementsAre(fence::claim{"order:7", *fence::token::parse("34")}));
  EXPECT_EQ(host.connects, 0);
  host.admit();
  EXPECT_EQ(to_upstream(), "");
  link();
  const auto sent = to_upstream();
  EXPECT_THAT(sent, HasSubstr("Fencing-Token: 34\r\n"));
  EXPECT_THAT(sent, EndsWith("Content-Length: 5\r\n\r\nhello"));
  EXPECT_EQ(host.releases, 0);
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(to_client(), "HTTP/1.1 204 No Content\r\nVia: 1.1 fencegate\r\nFencing-Mark: 34\r\n\r\n");
  EXPECT_EQ(host.releases, 1);
}

TEST_F(http_forwarding, a_hold_that_is_gone_when_the_link_stands_sends_nothing) {
  client(put);
  host.admit();
  host.holding = false;
  link();
  EXPECT_EQ(to_upstream(), "");
  EXPECT_EQ(status_of(to_client()), 503);
  EXPECT_EQ(host.releases, 1);
  EXPECT_THAT(host.reports, ElementsAre("unavailable"));
}

TEST_F(http_forwarding, a_stale_token_is_told_so_and_the_body_is_taken_off_the_connection) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 33\r\nContent-Length: 5\r\n\r\nhel");
  host.answer(fence_answer{
      fence::rejection{fence::reason::stale, "order:7", *fence::token::parse("33"), *fence::token::parse("34"), {}},
      {},
      false});
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 412);
  EXPECT_THAT(said, HasSubstr("Fencing-Mark: 34\r\n"));
  EXPECT_THAT(said, HasSubstr("\"applied\":\"no\""));
  EXPECT_THAT(said, Not(HasSubstr("Connection: close")));
  client("loGET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(host.connects, 1);
  EXPECT_EQ(to_upstream(), "");
}

TEST_F(http_forwarding, what_is_not_admitted_is_answered_by_the_gate) {
  struct row {
    std::string_view request;
    int status;
  };
  for (const row& r : {row{"PUT /orders/7 HTTP/1.1\r\nHost: a\r\n\r\n", 428},
                       row{"PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: x\r\n\r\n", 400},
                       row{"PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: other=3\r\n\r\n", 428},
                       row{"PUT /nowhere HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\n\r\n", 403},
                       row{"PUT /orders/%20 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\n\r\n", 400},
                       row{"DELETE /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\n\r\n", 403}}) {
    client(r.request);
    EXPECT_EQ(status_of(to_client()), r.status) << r.request;
    EXPECT_TRUE(engine().at_rest());
  }
  EXPECT_EQ(host.connects, 0);
  EXPECT_EQ(host.asked, "");
}

TEST_F(http_forwarding, checked_raises_and_then_forwards) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: order:7=34, order:8=2\r\n\r\n");
  EXPECT_EQ(host.asked, "raise");
  EXPECT_EQ(host.claims.size(), 2u);
  host.admit();
  link();
  EXPECT_THAT(to_upstream(), StartsWith("PUT /checked/7 "));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(to_client(), HasSubstr("Fencing-Mark: order:7=34, order:8=2\r\n"));
  EXPECT_EQ(host.releases, 0);
}

TEST_F(http_forwarding, checked_is_looked_at_once_more_before_it_is_sent_and_when_it_is_answered) {
  const std::string request = "PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n";
  client(request);
  host.admit();
  host.clock += std::chrono::seconds(1);
  link();
  host.clock += std::chrono::seconds(1);
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh");
  EXPECT_THAT(host.answered_after, IsEmpty());
  upstream("i");
  EXPECT_THAT(host.answered_after, ElementsAre(std::chrono::seconds(2)));
  to_upstream();
  to_client();
  client(request);
  host.stale =
      fence::rejection{fence::reason::stale, "order:7", *fence::token::parse("34"), *fence::token::parse("35"), {}};
  host.admit();
  EXPECT_EQ(to_upstream(), "");
  EXPECT_EQ(status_of(to_client()), 412);
  EXPECT_EQ(host.answered_after.size(), 1u);
}

TEST_F(http_forwarding, what_is_held_or_not_fenced_is_not_overtaken) {
  client(put);
  host.admit();
  link();
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  client("GET /orders/7 HTTP/1.1\r\nHost: a\r\n\r\n");
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_THAT(host.answered_after, IsEmpty());
}

TEST_F(http_forwarding, what_could_not_be_checked_or_is_unknown_names_resource_and_token) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  host.answer(fence_answer{fence::rejection{fence::reason::unavailable, {}, {}, {}, "the store is away"}, {}, false});
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr(R"("resource":"order:7","token":34,)")));
  client("PUT /checked/8 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  host.admit();
  link();
  engine().on_backend_end();
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 502"),
                                 HasSubstr(R"("resource":"order:8","token":34,"mark":34,"applied":"unknown")")));
}

TEST_F(http_forwarding, the_token_comes_in_the_field_of_the_gate_or_in_the_other_one) {
  gate_.token_header = "Lease";
  for (const auto* field : {"Lease", "X-Fencing-Token", "lease", "x_fencing_token"}) {
    client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\n" + std::string(field) + ": 34\r\n\r\n");
    EXPECT_EQ(host.asked, "raise") << field;
    EXPECT_THAT(host.claims, ElementsAre(fence::claim{"order:7", *fence::token::parse("34")}));
    host.asked.clear();
    restart();
  }
  for (const auto* fields : {"Lease: 1\r\nlease: 1", "Lease: 1\r\nX-Fencing-Token: 2", "Connection: lease\r\nLease: 1",
                             "X-Fencing-Token: 1\r\nX_Fencing_Token: 1"}) {
    client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n\r\n");
    EXPECT_EQ(status_of(to_client()), 400) << fields;
    restart();
  }
  EXPECT_EQ(host.asked, "");
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(status_of(to_client()), 428);
}

TEST_F(http_forwarding, a_write_without_a_token_goes_through_where_the_policy_says_so) {
  using fence::missing_token;
  for (const auto policy : {missing_token::reject, missing_token::read_only, missing_token::allow}) {
    gate_.routes[1].policy.missing = policy;
    client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(status_of(to_client()), policy == missing_token::allow ? 0 : 428);
  }
  EXPECT_EQ(host.connects, 1);
  EXPECT_EQ(host.asked, "");
  restart();
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: other=1\r\n\r\n");  // it has one, and a wrong one
  EXPECT_EQ(status_of(to_client()), 428);
}

TEST_F(http_forwarding, a_fenced_read_is_looked_at_and_raises_nothing) {
  gate_.routes[1].methods = {"GET"};
  gate_.routes[1].policy.read = fence::reads::fence;
  const auto ask = [this](std::string_view token, std::string_view mark) {
    client("GET /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: " + std::string(token) + "\r\n\r\n");
    EXPECT_EQ(std::exchange(host.asked, ""), "look");
    host.answer(fence_answer{{}, {{"order:7", *fence::token::parse(mark)}}, false});
  };
  ask("33", "34");
  EXPECT_EQ(status_of(to_client()), 412);
  EXPECT_EQ(host.connects, 0);
  ask("35", "34");
  link();
  EXPECT_THAT(to_upstream(), StartsWith("GET /checked/7 "));
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  client("GET /checked/7 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(host.asked, "");
  EXPECT_THAT(to_upstream(), StartsWith("GET /checked/7 "));
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  to_client();
  client("GET /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: other=1\r\n\r\n");
  EXPECT_THAT(to_client(), HasSubstr("a read needs a fencing token for order:7 (the request's tokens are for other "));
}

TEST_F(http_forwarding, an_answer_behind_the_end_of_its_hold_says_nothing) {
  client(put);
  host.admit();
  link();
  to_upstream();
  host.holding = false;
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
  EXPECT_EQ(host.disconnects, 1);
  EXPECT_EQ(host.releases, 1);
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 504);
  EXPECT_THAT(said, HasSubstr("\"applied\":\"unknown\""));
  EXPECT_THAT(said, Not(HasSubstr("done")));
}

TEST_F(http_forwarding, a_cut_in_the_middle_of_the_answer_ends_the_connection) {
  client(put);
  host.admit();
  link();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  to_client();
  engine().on_hold_lost(std::nullopt);
  EXPECT_EQ(to_client(), "");
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, an_answer_whose_end_comes_behind_the_end_of_its_hold_is_cut) {
  for (const bool chunked : {true, false}) {
    restart();
    host.holding = true;
    client(put);
    host.admit();
    link();
    upstream(chunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
                     : "HTTP/1.1 200 OK\r\n\r\none");
    EXPECT_THAT(to_client(), HasSubstr("one"));
    host.holding = false;
    chunked ? upstream("0\r\n\r\n") : engine().on_backend_end();
    EXPECT_EQ(to_client(), "");
    EXPECT_TRUE(engine().closing());
  }
}

// A link may end just as it is used again; what came of the request is not known.
TEST_F(http_forwarding, nothing_is_ever_sent_twice) {
  for (const std::string_view again : {put, std::string_view("GET /b HTTP/1.1\r\nHost: a\r\n\r\n")}) {
    client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    link();
    to_upstream();
    upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    to_client();
    const int connects = host.connects;
    client(again);
    if (again == put) host.admit();
    EXPECT_THAT(to_upstream(), StartsWith(again.substr(0, again.find(' '))));
    engine().on_backend_end();
    EXPECT_EQ(status_of(to_client()), 502);
    EXPECT_EQ(host.connects, connects);
  }
}

TEST_F(http_forwarding, an_early_answer_ends_both_connections) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\nContent-Length: 1000\r\n\r\nabc");
  host.admit();
  link();
  upstream("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
  EXPECT_THAT(to_client(), HasSubstr("Connection: close\r\n\r\nno"));
  EXPECT_TRUE(engine().lingers());
  EXPECT_EQ(host.disconnects, 1);
}

TEST_F(http_forwarding, bodies_are_framed_anew) {
  client(
      "PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n");
  host.admit();
  link();
  EXPECT_THAT(to_upstream(), EndsWith("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
  upstream("HTTP/1.1 200 OK\r\n\r\nabc");
  upstream("def");
  engine().on_backend_end();
  EXPECT_THAT(to_client(), EndsWith("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"));
  EXPECT_TRUE(engine().at_rest());
}

TEST_F(http_forwarding, expect_is_answered_once_the_token_is_good) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(to_client(), "");
  host.admit();
  link();
  EXPECT_EQ(to_client(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(to_upstream(), Not(HasSubstr("Expect")));
  client("ab");
  EXPECT_EQ(to_upstream(), "ab");
}

TEST_F(http_forwarding, bytes_that_nobody_asked_for_answer_nobody) {
  client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  link();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(host.disconnects, 1);
  to_client();
  client("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(to_client(), "");
  link();
}

TEST_F(http_forwarding, monitor_looks_and_forwards_all_the_same) {
  for (auto& route : gate_.routes) route.policy.mode = fence::enforcement::monitor;
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 33\r\n\r\n");
  EXPECT_EQ(host.asked, "look");
  host.answer(fence_answer{{}, {{"order:7", *fence::token::parse("34")}}, false});
  EXPECT_THAT(host.reports, ElementsAre("monitor stale"));
  link();
  EXPECT_THAT(to_upstream(), StartsWith("PUT"));
}

TEST_F(http_forwarding, the_client_may_say_that_it_has_no_more_to_ask) {
  client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  link();
  engine().on_client_end();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(to_client(), EndsWith("Connection: close\r\n\r\nhi"));
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, a_body_that_comes_slowly_holds_nothing) {
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc");
  client("\r\n2\r\nde\r\n0\r\n");
  EXPECT_TRUE(engine().awaits_body() && engine().body_is_costly());
  EXPECT_EQ(host.asked, "");
  client("\r\n");
  EXPECT_FALSE(engine().awaits_body());
  EXPECT_EQ(host.asked, "hold");
  EXPECT_EQ(to_upstream(), "");
  host.admit();
  link();
  EXPECT_THAT(to_upstream(), EndsWith("chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
}

TEST_F(http_forwarding, a_large_body_is_not_kept_back) {
  client(large_put().substr(0, large_put().size() - 1));
  EXPECT_EQ(host.asked, "");
  client("x");
  EXPECT_EQ(host.asked, "hold");
  host.admit();
  link();
  const auto sent = to_upstream();
  EXPECT_THAT(sent, EndsWith("\r\n\r\n" + std::string(limits::http_gathered_bytes_max, 'x')));
  EXPECT_TRUE(engine().awaits_body() && engine().body_is_costly());
  const std::string rest(100'000 - limits::http_gathered_bytes_max, 'y');
  client(rest);
  EXPECT_EQ(to_upstream(), rest);
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_FALSE(engine().body_is_costly());
}

TEST_F(http_forwarding, a_body_that_is_broken_or_late_or_too_large_before_the_hold_leaves_nothing_behind) {
  gate_.body_bytes_max = 4;
  const std::string head =
      "PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nTransfer-Encoding: chunked\r\n\r\n";
  struct row {
    std::string_view body;
    int status;
  };
  for (const row& r : {row{"3\r\nabcX", 400}, row{"5\r\nabcde", 413}, row{"3\r\nabc", 408}}) {
    restart();
    client(head);
    client(r.body);
    if (r.status == 408) engine().on_client_timeout();
    const auto said = to_client();
    EXPECT_EQ(status_of(said), r.status);
    EXPECT_THAT(said, AllOf(HasSubstr("Connection: close\r\n"), HasSubstr("\"applied\":\"no\"")));
    EXPECT_TRUE(engine().lingers());
  }
  EXPECT_EQ(host.asked, "");
  EXPECT_EQ(host.connects, 0);
}

TEST_F(http_forwarding, who_waits_for_the_word_to_send_its_body_is_held_first) {
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 3\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(host.asked, "hold");
  EXPECT_EQ(to_client(), "");
  host.admit();
  link();
  EXPECT_EQ(to_client(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(engine().awaits_body() && engine().body_is_costly());
}

TEST_F(http_forwarding, a_body_on_its_way_without_a_hold_may_take_its_time) {
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 5\r\n\r\nhel");
  host.admit();
  link();
  EXPECT_TRUE(engine().awaits_body());
  EXPECT_FALSE(engine().body_is_costly());
}

TEST_F(http_forwarding, a_late_body_is_told_so_and_its_request_is_cut) {
  client(large_put());
  host.admit();
  link();
  engine().on_client_timeout();
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 408 Request Timeout\r\n"), HasSubstr("Connection: close\r\n"),
                                 HasSubstr("\"applied\":\"unknown\"")));
  EXPECT_TRUE(engine().lingers());
  EXPECT_EQ(host.releases, 1);
  EXPECT_EQ(host.disconnects, 1);
}

TEST_F(http_forwarding, a_late_head_is_told_so_and_nothing_of_the_request_before) {
  client(put);
  host.admit();
  link();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  to_client();
  client("\r\nHEAD /orders/7 HTTP/1.1\r\nHos");
  engine().on_client_timeout();
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 408 Request Timeout\r\n"), HasSubstr("Connection: close\r\n"),
                                 HasSubstr("\"applied\":\"no\""), Not(HasSubstr("Fencing-Mark"))));
  EXPECT_TRUE(engine().lingers());
}

TEST_F(http_forwarding, who_has_begun_no_request_is_told_nothing_when_time_is_up) {
  client("\r\n");
  engine().on_client_timeout();
  EXPECT_EQ(to_client(), "");
  EXPECT_TRUE(engine().closing());
  EXPECT_FALSE(engine().lingers());
}

TEST_F(http_forwarding, who_has_its_answer_is_told_nothing_more_when_time_is_up) {
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_EQ(status_of(to_client()), 428);
  engine().on_client_timeout();
  EXPECT_EQ(to_client(), "");
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, all_that_was_asked_before_the_client_said_that_it_has_no_more_to_ask_is_answered) {
  client("GET /a HTTP/1.1\r\nHost: a\r\n\r\n" + std::string(put) +
         "PUT /orders/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + "GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
  engine().on_client_end();
  link();
  EXPECT_THAT(to_upstream(), StartsWith("GET /a "));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("Connection: close"))));
  host.admit();
  EXPECT_THAT(to_upstream(), StartsWith("PUT /orders/7 "));
  upstream("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 204"), HasSubstr("HTTP/1.1 428"), Not(HasSubstr("close"))));
  EXPECT_THAT(to_upstream(), StartsWith("GET /c "));
  EXPECT_FALSE(engine().closing());
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, half_a_request_in_front_of_the_end_is_none) {
  client("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n");
  engine().on_client_end();
  link();
  EXPECT_THAT(to_upstream(), StartsWith("GET /a "));
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(to_client()), 200);
  EXPECT_EQ(to_upstream(), "");
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, nothing_is_answered_behind_the_request_that_was_to_be_the_last) {
  client("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  engine().on_client_end();
  link();
  to_upstream();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(to_upstream(), "");
  EXPECT_TRUE(engine().closing());
}

TEST_F(http_forwarding, a_client_that_leaves_in_the_middle_of_its_body_asks_for_no_hold) {
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 10\r\n\r\nabc");
  engine().on_client_end();
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.asked, "");
}

TEST_F(http_forwarding, a_client_that_leaves_in_the_middle_of_its_body_ends_the_request_and_the_hold) {
  client(large_put());
  engine().on_client_end();
  EXPECT_FALSE(engine().closing());  // all of it could have come
  host.admit();
  engine().on_connected();
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.releases, 1);
  EXPECT_EQ(host.disconnects, 1);
}

TEST_F(http_forwarding, a_client_that_leaves_behind_a_whole_body_is_served) {
  client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 3\r\n\r\nabc");
  engine().on_client_end();
  host.admit();
  link();
  EXPECT_THAT(to_upstream(), EndsWith("\r\n\r\nabc"));
  EXPECT_EQ(host.releases, 0);
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(to_client()), 200);
  EXPECT_EQ(host.releases, 1);
}

TEST_F(http_forwarding, a_link_that_has_spoken_or_ended_meanwhile_carries_no_further_request) {
  client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  link();
  to_upstream();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  host.quiet = false;
  client(put);
  host.admit();
  EXPECT_EQ(to_upstream(), "");
  EXPECT_EQ(host.disconnects, 1);
  link();
  EXPECT_THAT(to_upstream(), StartsWith("PUT"));
}

TEST_F(http_forwarding, an_interim_response_that_announces_a_body_ends_the_link) {
  client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  link();
  upstream("HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(to_client(), HasSubstr("HTTP/1.1 200"));
  EXPECT_EQ(host.disconnects, 1);
}

TEST_F(http_forwarding, an_error_says_nothing_of_the_mark_of_an_earlier_request) {
  client(put);
  host.admit();
  link();
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(to_client(), HasSubstr("Fencing-Mark"));
  client("\n");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 400"), Not(HasSubstr("Fencing-Mark"))));
}

TEST_F(http_forwarding, says_whose_turn_it_is) {
  EXPECT_FALSE(engine().awaits_head());
  client("PUT /checked/7 HTTP/1.1\r\n");
  EXPECT_TRUE(engine().awaits_head());
  client("Host: a\r\nFencing-Token: 3\r\nContent-Length: 10\r\n\r\n");
  EXPECT_FALSE(engine().awaits_head() || engine().awaits_body() || engine().awaits_upstream());
  host.admit();
  link();
  EXPECT_TRUE(engine().awaits_body());
  upstream("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");  // before it has the body
  EXPECT_FALSE(engine().awaits_body());
  EXPECT_TRUE(engine().awaits_upstream());
}

}  // namespace
}  // namespace fencegate::gate
