#include "admin/writer_pages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::admin {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using phase = lease::writer_phase;
using report = lease::writer::report;

const settings::address on_file{"", 0, "/run/fencegate/lease.sock"}, on_port{"127.0.0.1", 9181, {}};

// One writer, app, behind the gate cache.
class one_writer final : public lease::writer_desk {
 public:
  std::optional<lease::writer_view> of_gate(std::string_view gate) const override {
    return gate == "cache" ? std::optional(view) : std::nullopt;
  }
  std::optional<lease::writer_view> heard(std::string_view writer) override {
    if (writer != "app") return std::nullopt;
    ++heartbeats;
    return view;
  }
  std::optional<lease::writer_view> heard_of_gate(std::string_view gate) override {
    return gate == "cache" ? heard("app") : std::nullopt;
  }
  std::optional<report> started(std::string_view writer, std::string_view container,
                                lease::boot_clock::time_point start) override {
    if (writer != "app") return std::nullopt;
    told = std::string(container) + " " + std::to_string(start.time_since_epoch() / milliseconds(1));
    return outcome;
  }
  std::string holder_of(const std::string& resource) const override { return resource == "orders" ? "cache" : ""; }

  lease::writer_view view{"app",
                          phase::standby,
                          std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000)),
                          {"orders"},
                          {},
                          "host:7",
                          "standby: held by host:7"};
  report outcome = report::counted;
  int heartbeats = 0;
  std::string told;
};

class WriterPages : public testing::Test {
 protected:
  lease_answer ask(std::string_view method, std::string_view target, std::string_view body = "",
                   const settings::address& listen = on_file) {
    lease_request out;
    out.head = {.method = method, .target = target, .host = "localhost", .from_browser = false, .from_loopback = true};
    if (!body.empty()) out.content_type = "application/json";
    out.body = body;
    return answer_about_writers(out, listen, writers).value_or(lease_answer{0, "", "", ""});
  }
  one_writer writers;
};

TEST_F(WriterPages, TellsOfAGatesWriter) {
  for (const auto* listen : {&on_file, &on_port}) {
    const auto answer = ask("GET", "/v1/gates/cache/writer", "", *listen);
    EXPECT_EQ(answer.status, 200u);
    EXPECT_EQ(answer.body, R"({"writer":"app","state":"standby","since":"2023-11-14T22:13:20Z","resources":["orders"],)"
                           R"("held_by":"host:7","detail":"standby: held by host:7"})");
  }
  writers.view.phase = phase::holding;
  writers.view.claims = {{"orders", fence::token(35)}};
  EXPECT_THAT(ask("GET", "/v1/gates/cache/writer").body, HasSubstr(R"("tokens":{"orders":35},"tag":"orders=35")"));
  for (const auto bad : {phase::unknown, phase::lost}) {
    writers.view.phase = bad;
    EXPECT_EQ(ask("GET", "/v1/gates/cache/writer").status, 503u);
  }
  EXPECT_EQ(writers.heartbeats, 0);
  EXPECT_EQ(ask("GET", "/v1/gates/db/writer").status, 404u);
  EXPECT_EQ(ask("POST", "/v1/gates/cache/writer").status, 405u);
  EXPECT_EQ(ask("GET", "/v1/gates/cache/reader").status, 404u);
}

TEST_F(WriterPages, HearsOfAStartOnUnixSocketsOnly) {
  const auto* start = R"({"started_ms":1234,"container":"web"})";
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", start, on_port).status, 403u);
  EXPECT_EQ(writers.told, "");
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", start).status, 204u);
  EXPECT_EQ(writers.told, "web 1234");
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", R"({"started_ms":1234})").status, 204u);
  EXPECT_EQ(writers.told, " 1234");
  EXPECT_EQ(ask("POST", "/v1/writers/cook/started", start).status, 404u);
  EXPECT_EQ(ask("GET", "/v1/writers/app/started").status, 405u);
  for (const auto* bad : {"{}", R"({"started_ms":"1"})", R"({"started_ms":-1})", R"({"started_ms":1.5})", "[]",
                          R"({"started_ms":9223372036854775807})", R"({"started_ms":1,"pid":2})"})
    EXPECT_EQ(ask("POST", "/v1/writers/app/started", bad).status, 400u) << bad;
  EXPECT_EQ(ask("POST", "/v1/writers/app/started").status, 415u);
}

TEST_F(WriterPages, SaysWhyAStartDoesNotCount) {
  const auto* start = R"({"started_ms":1234})";
  writers.outcome = report::early;
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", start).status, 409u);
  EXPECT_THAT(ask("POST", "/v1/writers/app/started", start).body, HasSubstr("too early"));
  writers.outcome = report::ahead;
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", start).status, 409u);
  writers.outcome = report::stranger;
  EXPECT_EQ(ask("POST", "/v1/writers/app/started", start).status, 404u);
}

TEST_F(WriterPages, HearsHeartbeatsOnUnixSocketsOnly) {
  EXPECT_EQ(ask("POST", "/v1/writers/app/heartbeat", "", on_port).status, 403u);
  EXPECT_EQ(writers.heartbeats, 0);
  EXPECT_EQ(ask("POST", "/v1/writers/app/heartbeat").status, 200u);
  EXPECT_EQ(ask("POST", "/v1/writers/app/heartbeat?holding").status, 503u);
  EXPECT_EQ(writers.heartbeats, 2);
  writers.view.phase = phase::holding;
  EXPECT_EQ(ask("POST", "/v1/writers/app/heartbeat?holding").status, 200u);
  EXPECT_EQ(ask("POST", "/v1/writers/app/heartbeat?what").status, 400u);
  EXPECT_EQ(ask("POST", "/v1/writers/cook/heartbeat").status, 404u);
  EXPECT_EQ(ask("GET", "/v1/writers/app/heartbeat").status, 405u);
}

TEST_F(WriterPages, LeavesTheRestToOthers) {
  EXPECT_EQ(ask("GET", "/v1/leases").status, 0u);
  EXPECT_EQ(ask("GET", "/").status, 0u);
}

TEST_F(WriterPages, AProbeIsAHeartbeat) {
  const page_request asked{.method = "GET", .target = "/v1/gates/cache/writer", .host = "10.0.0.7:9182"};
  EXPECT_EQ(answer_probe(asked, writers)->status, 200u);
  writers.view.phase = phase::lost;
  EXPECT_EQ(answer_probe(asked, writers)->status, 503u);
  EXPECT_EQ(writers.heartbeats, 2);
  EXPECT_FALSE(answer_probe({.method = "GET", .target = "/v1/writers/app/started", .host = "x"}, writers));
  EXPECT_FALSE(answer_probe({.method = "POST", .target = "/v1/gates/cache/writer", .host = "x"}, writers));
}

}  // namespace
}  // namespace fencegate::admin
