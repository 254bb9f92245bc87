// equal_token: reject, as far as the engine has a part in it: monitor mode, reads, and how a used token is answered. That
// one of many gets through is the stores' part.
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const fence::token t33(33), t34(34), t35(35);

class http_once : public http_rig {
 protected:
  http_once() {
    for (auto& route : gate_.routes) route.policy.equal = fence::equal_token::reject;
  }
  // The route's index as in http_rig.
  void watch(std::size_t route) { gate_.routes[route].policy.mode = fence::enforcement::monitor; }
  static fence::rejection used() { return {fence::reason::equal, "order:7", t34, t34, {}}; }
};

constexpr std::string_view checked = "PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n";

TEST_F(http_once, a_used_token_is_a_conflict_that_names_what_was_used) {
  for (const auto* path : {"/checked/7", "/orders/7"}) {
    client("PUT " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
    host.answer(fence_answer{used(), {}, false});
    EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\n"),
                                   HasSubstr("Fencing-Mark: 34\r\n"), HasSubstr(R"("type":"urn:fencegate:equal")"),
                                   HasSubstr(R"("resource":"order:7","token":34,"mark":34,"applied":"no")")));
    EXPECT_TRUE(engine().at_rest());
  }
  EXPECT_EQ(host.connects, 0);
  EXPECT_THAT(host.reports, ElementsAre("equal", "equal"));
}

TEST_F(http_once, an_atomic_route_answers_the_same) {
  client("POST /entries/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(host.asked, "run");
  atomic_answer rejected;
  rejected.what = atomic_answer::outcome::rejected;
  rejected.why = {fence::reason::equal, "entries", t34, t34, {}};
  host.answer(rejected);
  EXPECT_THAT(to_client(), AllOf(StartsWith("HTTP/1.1 409"), HasSubstr(R"("token":34,"mark":34,"applied":"no")")));
}

TEST_F(http_once, monitor_says_what_it_would_have_rejected) {
  watch(1);
  for (const auto& [mark, said] : {std::pair{t33, ""}, {t34, "monitor equal"}, {t35, "monitor stale"}}) {
    host.reports.clear();
    client(checked);
    EXPECT_EQ(host.asked, "look");
    host.answer(fence_answer{{}, {{"order:7", mark}}, false});
    EXPECT_EQ(host.reports, *said == '\0' ? std::vector<std::string>{} : std::vector<std::string>{said});
    engine().on_connected();
    EXPECT_THAT(to_upstream(), StartsWith("PUT /checked/7 "));
    upstream("HTTP/1.1 204 No Content\r\n\r\n");
    to_client();
  }
}

TEST_F(http_once, monitor_finds_the_used_one_among_several) {
  watch(1);
  client("PUT /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: order:8=2, order:7=34\r\n\r\n");
  host.answer(fence_answer{{}, {{"order:8", fence::token(2)}, {"order:7", t33}}, false});
  EXPECT_THAT(host.reports, ElementsAre("monitor equal"));
}

TEST_F(http_once, monitor_accepts_the_same_token_where_the_policy_does) {
  watch(1);
  gate_.routes[1].policy.equal = fence::equal_token::accept;
  client(checked);
  host.answer(fence_answer{{}, {{"order:7", t34}}, false});
  EXPECT_THAT(host.reports, IsEmpty());
}

TEST_F(http_once, reads_use_nothing_up) {
  add("GET", "/checked/{id}", "order:{id}").policy = {.equal = fence::equal_token::reject, .read = fence::reads::fence};
  client("GET /checked/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n");
  EXPECT_EQ(host.asked, "look");
  host.answer(fence_answer{{}, {{"order:7", t34}}, false});
  engine().on_connected();
  EXPECT_THAT(to_upstream(), StartsWith("GET /checked/7 "));
  EXPECT_THAT(host.reports, IsEmpty());
}

}  // namespace
}  // namespace fencegate::gate
