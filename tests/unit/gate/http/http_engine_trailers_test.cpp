// Trailers: those of responses that may go on and are wanted, and those of requests, which never do.
#include "base/limits.hpp"
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view answer_head =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Expires\r\n\r\n";
constexpr std::string_view answer_body = "2\r\nhi\r\n0\r\nX-Sum: 7\r\nExpires: 0\r\nFencing-Mark: 99\r\n\r\n";

class http_trailers : public http_rig {
 protected:
  // What the upstream got of it.
  std::string ask(const std::string& line, const std::string& fields, const std::string& body = {}) {
    restart();
    const int connects = host.connects;
    client(line + "\r\nHost: a\r\n" + fields + "\r\n" + body);
    if (host.asked == "hold" || host.asked == "raise") host.admit();
    host.asked.clear();
    if (host.connects != connects) engine().on_connected();
    return to_upstream();
  }
  std::string get(const std::string& fields, const std::string& version = "1.1") {
    return ask("GET / HTTP/" + version, fields);
  }
};

TEST_F(http_trailers, go_on_to_who_wants_them) {
  EXPECT_THAT(get("TE: gzip, trailers\r\nConnection: TE\r\n"),
              EndsWith("Via: 1.1 fencegate\r\nTE: trailers\r\nConnection: TE\r\n\r\n"));
  upstream(answer_head);
  EXPECT_EQ(to_client(),
            "HTTP/1.1 200 OK\r\nVia: 1.1 fencegate\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
  upstream(answer_body);
  EXPECT_EQ(to_client(), "2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n");
  EXPECT_TRUE(engine().at_rest());
  // The connection and the link go on; whoever asks next without a word gets none.
  client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(to_upstream(), AllOf(StartsWith("GET / "), Not(HasSubstr("TE:"))));
  upstream(std::string(answer_head) + std::string(answer_body));
  EXPECT_THAT(to_client(), AllOf(EndsWith("\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), Not(HasSubstr("Trailer"))));
  EXPECT_EQ(host.disconnects, 0);
}

TEST_F(http_trailers, go_on_however_they_come) {
  const auto whole = std::string(answer_head) + std::string(answer_body);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    get("TE: trailers\r\n");
    upstream(whole.substr(0, cut));
    upstream(whole.substr(cut));
    EXPECT_THAT(to_client(), EndsWith("\r\n0\r\nX-Sum: 7\r\n\r\n")) << cut;
  }
  get("TE: trailers\r\n");
  for (const char byte : whole) upstream(std::string(1, byte));
  EXPECT_THAT(to_client(), EndsWith("\r\n0\r\nX-Sum: 7\r\n\r\n"));
}

TEST_F(http_trailers, of_who_does_not_want_them_are_dropped) {
  for (const auto* fields : {"", "TE: gzip\r\n", "TE: trailers;q=0\r\n", "Trailer: TE\r\n", "Accept: trailers\r\n"}) {
    EXPECT_THAT(get(fields), AllOf(Not(HasSubstr("TE:")), Not(HasSubstr("Connection")), Not(HasSubstr("Trailer"))));
    upstream(std::string(answer_head) + std::string(answer_body));
    EXPECT_THAT(to_client(), AllOf(EndsWith("\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), Not(HasSubstr("Trailer")))) << fields;
  }
  EXPECT_THAT(get("TE: trailers\r\nConnection: TE, keep-alive\r\n", "1.0"), Not(HasSubstr("TE:")));
  upstream(std::string(answer_head) + std::string(answer_body));
  EXPECT_THAT(to_client(), AllOf(EndsWith("\r\n\r\nhi"), Not(HasSubstr("Trailer"))));
}

TEST_F(http_trailers, need_chunks_on_both_sides) {
  get("TE: trailers\r\n");
  upstream("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(to_client(), AllOf(EndsWith("\r\n\r\nhi"), Not(HasSubstr("Trailer"))));
  get("TE: trailers\r\n");
  upstream("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\n\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n");
  engine().on_backend_end();
  EXPECT_THAT(to_client(), AllOf(EndsWith("\r\n0\r\nX-Sum: 7\r\n\r\n\r\n0\r\n\r\n"), Not(HasSubstr("Trailer"))));
  ask("HEAD / HTTP/1.1", "TE: trailers\r\n");
  upstream(answer_head);
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("Trailer"))));
}

TEST_F(http_trailers, that_connection_lists_or_that_carry_tokens_stay_behind) {
  gate_.token_header = "Order-Epoch";
  get("TE: trailers\r\n");
  upstream(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nTrailer: X-Hop, order_epoch, X-B\r\n\r\n");
  upstream("0\r\nx-hop: 1\r\nOrder-Epoch: 9\r\norder_epoch: 9\r\nX-Fencing-Token: 9\r\nX-B: c\r\n\r\n");
  EXPECT_THAT(to_client(), AllOf(HasSubstr("\r\nTrailer: X-B\r\n"), EndsWith("\r\n\r\n0\r\nX-B: c\r\n\r\n")));
}

TEST_F(http_trailers, that_are_hostile_or_too_many_cut_the_answer) {
  std::string many;
  for (std::size_t i = 0; i <= limits::http_fields_max; ++i) many += "A: b\r\n";
  for (const auto& trailers : {std::string("X-Sum : 7\r\n\r\n"), std::string("X-Sum: 7\r\n c\r\n\r\n"),
                               std::string("X-Sum: 7\r\nB: \0\r\n\r\n", 18), std::string("X-Sum: 7\n\r\n"),
                               std::string("X-Sum: 7\r\n: c\r\n\r\n"), std::string("X-Sum: 7\r\nB\r\n\r\n"),
                               many + "\r\n", "A: " + std::string(limits::http_trailer_bytes_max, 'b') + "\r\n\r\n"}) {
    get("TE: trailers\r\n");
    const int disconnects = host.disconnects;
    upstream(std::string(answer_head) + "2\r\nhi\r\n0\r\n" + trailers);
    EXPECT_THAT(to_client(), EndsWith("\r\n\r\n2\r\nhi\r\n")) << trailers;
    EXPECT_TRUE(engine().closing());
    EXPECT_EQ(host.disconnects, disconnects + 1);
  }
}

TEST_F(http_trailers, nothing_of_them_is_said_of_an_answer_that_was_cut_among_them) {
  const std::string put = "Fencing-Token: 34\r\nTE: trailers\r\nContent-Length: 0\r\n";
  for (const bool lost : {true, false}) {
    EXPECT_THAT(ask("PUT /orders/7 HTTP/1.1", put), HasSubstr("\r\nTE: trailers\r\nConnection: TE\r\n"));
    const int releases = host.releases;
    upstream(std::string(answer_head) + "2\r\nhi\r\n0\r\nX-Sum: 7\r\n");
    EXPECT_EQ(host.releases, releases);  // it is not over
    if (lost)
      engine().on_hold_lost(std::nullopt);
    else
      engine().on_backend_end();
    EXPECT_THAT(to_client(), EndsWith("\r\n\r\n2\r\nhi\r\n"));
    EXPECT_TRUE(engine().closing());
    EXPECT_EQ(host.releases, releases + 1);
  }
  ask("PUT /orders/7 HTTP/1.1", put);
  const int releases = host.releases;
  upstream(std::string(answer_head) + std::string(answer_body));
  EXPECT_THAT(to_client(), AllOf(HasSubstr("\r\nFencing-Mark: 34\r\n"), EndsWith("\r\n0\r\nX-Sum: 7\r\n\r\n")));
  EXPECT_EQ(host.releases, releases + 1);
}

TEST_F(http_trailers, of_requests_are_dropped_and_no_token_among_them_counts) {
  const std::string body = "1\r\nx\r\n0\r\nFencing-Token: 99\r\nX-Sum: 7\r\n\r\n";
  const std::string chunked = "TE: trailers\r\nTrailer: Fencing-Token, X-Sum\r\nTransfer-Encoding: chunked\r\n";
  for (const std::string path : {"/orders/7", "/checked/7"}) {
    const auto sent = ask("PUT " + path + " HTTP/1.1", "Fencing-Token: 34\r\n" + chunked, body);
    EXPECT_THAT(sent, AllOf(HasSubstr("Fencing-Token: 34\r\n"), EndsWith("\r\n\r\n1\r\nx\r\n0\r\n\r\n")));
    EXPECT_THAT(sent, AllOf(Not(HasSubstr("99")), Not(HasSubstr("X-Sum")), Not(HasSubstr("Trailer"))));
    EXPECT_EQ(host.claims, (claims_list{{"order:7", *fence::token::parse("34")}}));

    EXPECT_EQ(ask("PUT " + path + " HTTP/1.1", chunked, body), "");
    EXPECT_EQ(status_of(to_client()), 428);
  }
}

}  // namespace
}  // namespace fencegate::gate
