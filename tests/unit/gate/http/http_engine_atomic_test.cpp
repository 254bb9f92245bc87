// Routes that a backend carries out itself: what it is given, and whose body finds room.
#include "base/limits.hpp"
#include "http_rig.hpp"

#include <gmock/gmock.h>

#include <functional>

namespace fencegate::gate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using http_atomic = http_rig;

TEST_F(http_atomic, a_statement_gets_its_values_and_its_claims) {
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 2\r\n\r\n{");
  EXPECT_EQ(host.asked, "");
  client("}");
  EXPECT_EQ(host.asked, "run");
  EXPECT_THAT(host.run_values, ElementsAre("7", "{}"));
  EXPECT_THAT(host.claims, ElementsAre(fence::claim{"entries", *fence::token::parse("34")}));
  atomic_answer done;
  done.what = atomic_answer::outcome::done;
  done.status = 200;
  done.content_type = "application/json";
  done.body = "{\"rows\":[]}";
  done.marks = host.claims;
  host.answer(done);
  const auto said = to_client();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nFencing-Mark: 34\r\n"));
  EXPECT_THAT(said, EndsWith("{\"rows\":[]}"));
  EXPECT_EQ(host.connects, 0);
}

TEST_F(http_atomic, the_token_of_a_statement_is_the_one_for_the_routes_own_resource) {
  gate_.routes.back().parameters = {"{token}"};
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: order:1=99, entries=34, order:2=98\r\n\r\n");
  EXPECT_EQ(host.asked, "run");
  EXPECT_THAT(host.run_values, ElementsAre("34"));
}

TEST_F(http_atomic, monitor_runs_with_the_token_that_it_would_have_refused) {
  gate_.routes.back().parameters = {"{token}"};
  gate_.routes.back().policy.mode = fence::enforcement::monitor;
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(host.asked, "look");
  host.answer(fence_answer{{}, {{"entries", *fence::token::parse("35")}}, false});
  EXPECT_EQ(host.asked, "run");
  EXPECT_THAT(host.run_values, ElementsAre("34"));
  EXPECT_THAT(host.claims, IsEmpty());
}

TEST_F(http_atomic, a_fenced_read_is_checked_in_one_unit_with_what_it_reads) {
  gate_.routes.back().methods = {"GET"};
  gate_.routes.back().policy.read = fence::reads::fence;
  client("GET /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(host.asked, "read");
  EXPECT_THAT(host.claims, ElementsAre(fence::claim{"entries", *fence::token::parse("34")}));
  atomic_answer done;
  done.what = atomic_answer::outcome::done;
  done.status = 200;
  done.marks = host.claims;
  host.answer(done);
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("Fencing-Mark"))));
}

TEST_F(http_atomic, a_body_that_is_too_large_runs_nothing) {
  gate_.body_held_bytes_max = 4;
  client(
      "POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n");
  EXPECT_EQ(status_of(to_client()), 413);
  EXPECT_EQ(host.asked, "");
  EXPECT_TRUE(engine().lingers());
}

// Whether there is room for as large a body as there may be.
bool is_all_free() {
  held_bodies nobody;
  return nobody.take(limits::http_held_of_process_bytes_max);
}

constexpr std::string_view entry = "POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n";

std::string entry_of(std::size_t bytes) {
  return std::string(entry) + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

// Of large bodies, that is: a small one needs no more than a head may.
TEST_F(http_atomic, a_body_that_finds_no_room_runs_nothing) {
  const std::string large(limits::http_gathered_bytes_max + 1, 'x');
  const auto in_chunks = std::string(entry) + "Transfer-Encoding: chunked\r\n\r\n10001\r\n" + large + "\r\n";
  ASSERT_EQ(large.size(), 0x10001U);
  held_bodies others;
  ASSERT_TRUE(others.take(limits::http_held_of_process_bytes_max - large.size()));
  for (const auto& request : {entry_of(large.size() + 1), in_chunks + "1\r\nx\r\n"}) {
    client(request);
    const auto said = to_client();
    EXPECT_EQ(status_of(said), 503);
    EXPECT_THAT(said, AllOf(HasSubstr("leave no room"), HasSubstr("\"applied\":\"no\"")));
    EXPECT_EQ(host.asked, "");
    restart();
  }
  client(entry_of(5) + "hello");
  EXPECT_EQ(host.asked, "run");
  for (const auto& request : {entry_of(large.size()) + large, in_chunks + "0\r\n\r\n"}) {
    restart();
    client(request);
    EXPECT_EQ(host.run_values.back(), large);
  }
}

TEST_F(http_atomic, a_body_has_its_room_from_the_head_to_the_answer) {
  gate_.body_held_bytes_max = limits::http_held_of_process_bytes_max;
  const std::string body(gate_.body_held_bytes_max, 'x');
  client(entry_of(body.size()));
  EXPECT_FALSE(is_all_free());
  client(body);
  EXPECT_EQ(host.asked, "run");
  EXPECT_FALSE(is_all_free());
  atomic_answer done;
  done.what = atomic_answer::outcome::done;
  done.status = 200;
  host.answer(done);
  EXPECT_EQ(status_of(to_client()), 200);
  EXPECT_TRUE(is_all_free());
}

TEST_F(http_atomic, a_body_that_never_comes_gives_its_room_back) {
  const std::function<void()> ends[] = {[this] { engine().on_client_timeout(); }, [this] { engine().on_client_end(); },
                                        [this] { restart(); }};
  for (const auto& end : ends) {
    restart();
    client(entry_of(100'000) + "x");
    EXPECT_FALSE(is_all_free());
    end();
    EXPECT_TRUE(is_all_free());
  }
}

TEST_F(http_atomic, a_late_body_runs_nothing) {
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 10\r\n\r\nabc");
  engine().on_client_timeout();
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 408);
  EXPECT_THAT(said, AllOf(HasSubstr("Connection: close\r\n"), HasSubstr("\"applied\":\"no\"")));
  EXPECT_TRUE(engine().lingers());
  EXPECT_EQ(host.asked, "");
}

TEST_F(http_atomic, unknown_is_said) {
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 0\r\n\r\n");
  host.answer(atomic_answer{});
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 502);
  EXPECT_THAT(said, HasSubstr("\"applied\":\"unknown\""));
}

TEST_F(http_atomic, marks_are_read_and_raised) {
  client("PUT /.fencegate/marks/entries HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(host.asked, "raise");
  host.answer(fence_answer{{}, host.claims, true});
  EXPECT_THAT(to_client(), EndsWith("{\"resource\":\"entries\",\"mark\":34,\"raised\":true}"));
  client("GET /.fencegate/marks/orders HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(host.asked, "look");
  host.answer(fence_answer{});
  EXPECT_EQ(status_of(to_client()), 404);
  client("DELETE /.fencegate/marks/orders HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD, PUT\r\n")));
}

TEST_F(http_atomic, marks_are_not_served_here_when_they_are_elsewhere) {
  for (const auto where : {settings::http_seal::admin, settings::http_seal::off}) {
    gate_.seal = where;
    client("PUT /.fencegate/marks/orders HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
    EXPECT_EQ(status_of(to_client()), 404);
  }
  EXPECT_EQ(host.asked, "");
}

}  // namespace
}  // namespace fencegate::gate
