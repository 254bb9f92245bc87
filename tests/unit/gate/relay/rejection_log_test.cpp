#include "gate/relay/rejection_log.hpp"

#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::gate {
namespace {

using namespace std::chrono_literals;
using testing::_;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

struct written_line {
  log::level level;
  std::string message;
  std::vector<std::pair<std::string, std::string>> fields;  // numbers as text

  [[nodiscard]] std::string at(std::string_view key) const {
    for (const auto& [name, value] : fields) {
      if (name == key) return value;
    }
    return "(none)";
  }
};

std::mutex mutex;
std::vector<written_line> lines;

void remember(log::level level, std::string_view message, const log::field* fields, std::size_t count) {
  written_line line{level, std::string(message), {}};
  for (std::size_t i = 0; i < count; ++i) {
    const auto& value = fields[i].value;
    const auto* text = std::get_if<std::string_view>(&value);
    line.fields.emplace_back(fields[i].key, text ? std::string(*text) : std::to_string(std::get<std::int64_t>(value)));
  }
  const std::lock_guard lock(mutex);
  lines.push_back(std::move(line));
}

class RejectionLog : public testing::Test {
 protected:
  RejectionLog() {
    lines.clear();
    log::set_sink(remember, log::level::warn);
  }
  ~RejectionLog() override { log::set_sink(nullptr, log::level::info); }

  static fence::rejection stale(std::string resource, std::int64_t presented = 33, std::int64_t mark = 34) {
    fence::rejection r;
    r.why = fence::reason::stale;
    r.resource = std::move(resource);
    r.presented = fence::token(presented);
    r.mark = fence::token(mark);
    return r;
  }
  void report(const fence::rejection& why, std::chrono::milliseconds at, std::string_view client = "127.0.0.1:4000",
              std::string_view command = "set") {
    log_.report("cache", why, client, command, start_ + at, false);
  }
  // Every rejection is told exactly once: lines that are the first of a kind, and counts.
  static std::int64_t told() {
    std::int64_t sum = 0;
    for (const auto& line : lines) sum += line.at("repeated") == "(none)" ? 1 : std::stoll(line.at("repeated"));
    return sum;
  }

  rejection_log::clock::time_point start_{1h};
  rejection_log log_;
};

TEST_F(RejectionLog, FirstOfAKindIsWrittenAtOnce) {
  auto why = stale("orders", 9007199254740992, 9007199254740993);
  why.detail = "armed";
  report(why, 0s);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].level, log::level::warn);
  EXPECT_EQ(lines[0].message, "write rejected");
  EXPECT_THAT(lines[0].fields,
              ElementsAre(Pair("gate", "cache"), Pair("reason", "stale"), Pair("resource", "orders"),
                          Pair("token", "9007199254740992"), Pair("mark", "9007199254740993"),
                          Pair("client", "127.0.0.1:4000"), Pair("command", "set"), Pair("detail", "armed")));
}

TEST_F(RejectionLog, UnknownFactsAreLeftOut) {
  fence::rejection why;
  why.why = fence::reason::missing;
  report(why, 0s, "pod", "del");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0].fields, ElementsAre(Pair("gate", "cache"), Pair("reason", "missing"), Pair("client", "pod"),
                                           Pair("command", "del")));
}

TEST_F(RejectionLog, MonitorModeSaysWouldBe) {
  log_.report("cache", stale("orders"), "127.0.0.1:1", "set", start_, true);
  log_.report("cache", stale("orders"), "127.0.0.1:1", "set", start_, false);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].message, "write would be rejected");
  EXPECT_EQ(lines[1].message, "write rejected");
}

TEST_F(RejectionLog, RepeatedOnesAreCountedUntilTheIntervalIsOver) {
  for (int i = 0; i < 1000; ++i) report(stale("orders"), i * 9ms);
  EXPECT_THAT(lines, SizeIs(1));
  report(stale("orders"), 9'999ms);
  EXPECT_THAT(lines, SizeIs(1));
  report(stale("orders", 30, 40), 10s, "127.0.0.1:4007", "del");
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[1].at("repeated"), "1001");
  // It shows the latest.
  EXPECT_EQ(lines[1].at("token"), "30");
  EXPECT_EQ(lines[1].at("mark"), "40");
  EXPECT_EQ(lines[1].at("client"), "127.0.0.1:4007");
  EXPECT_EQ(lines[1].at("command"), "del");

  report(stale("orders"), 19'999ms);
  EXPECT_THAT(lines, SizeIs(2));
  report(stale("orders"), 20s);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[2].at("repeated"), "2");
  EXPECT_EQ(told(), 1004);
}

TEST_F(RejectionLog, EachDifferenceMakesAKind) {
  report(stale("orders"), 0s, "10.0.0.1:1");
  report(stale("payments"), 0s, "10.0.0.1:1");
  report(stale("orders"), 0s, "10.0.0.2:1");
  auto equal = stale("orders");
  equal.why = fence::reason::equal;
  report(equal, 0s, "10.0.0.1:1");
  log_.report("other", stale("orders"), "10.0.0.1:1", "set", start_, false);
  EXPECT_THAT(lines, SizeIs(5));
  for (const auto& line : lines) EXPECT_EQ(line.at("repeated"), "(none)");
}

TEST_F(RejectionLog, PortTokenAndCommandMakeNone) {
  report(stale("orders", 1), 0s, "10.0.0.1:1", "set");
  report(stale("orders", 2), 0s, "10.0.0.1:65535", "set");
  report(stale("orders", 1), 0s, "10.0.0.1:1", "del");
  EXPECT_THAT(lines, SizeIs(1));
}

TEST_F(RejectionLog, AddressesAreToldApartWithoutTheirPort) {
  report(stale("orders"), 0s, "[::1]:4000");
  report(stale("orders"), 0s, "[::1]:4001");
  EXPECT_THAT(lines, SizeIs(1));
  report(stale("orders"), 0s, "::1");  // bare, and not "::" with a port
  report(stale("orders"), 0s, "::2");
  EXPECT_THAT(lines, SizeIs(3));
  report(stale("orders"), 0s, "unix:/run/a");
  report(stale("orders"), 0s, "unix:/run/b");
  report(stale("orders"), 0s, "");
  EXPECT_THAT(lines, SizeIs(6));
}

TEST_F(RejectionLog, QuietKindBeginsAnew) {
  report(stale("orders"), 0s);
  report(stale("payments"), 11s);  // lets "orders" be forgotten
  report(stale("orders"), 12s);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[2].at("repeated"), "(none)");
}

TEST_F(RejectionLog, CountsOfOneKindAreWrittenWhenAnotherIsReported) {
  report(stale("orders"), 0s);
  report(stale("orders"), 1s);
  report(stale("payments"), 10s);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[1].at("resource"), "orders");
  EXPECT_EQ(lines[1].at("repeated"), "1");
  EXPECT_EQ(lines[2].at("resource"), "payments");
}

TEST_F(RejectionLog, WriteDueKeepsTheInterval) {
  report(stale("orders"), 0s);
  report(stale("orders"), 1s);
  log_.write_due(start_ + 9'999ms);
  EXPECT_THAT(lines, SizeIs(1));
  log_.write_due(start_ + 10s);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[1].at("repeated"), "1");
  log_.write_due(start_ + 30s);  // nothing new
  EXPECT_THAT(lines, SizeIs(2));
}

TEST_F(RejectionLog, FlushWritesWhatIsOutstandingOnce) {
  report(stale("quiet"), 0s);
  for (int i = 0; i < 5; ++i) report(stale("orders"), 1s);
  for (int i = 0; i < 3; ++i) report(stale("payments"), 2s);
  ASSERT_THAT(lines, SizeIs(3));
  log_.flush(start_ + 3s);
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_EQ(lines[3].at("repeated"), "4");
  EXPECT_EQ(lines[4].at("repeated"), "2");
  EXPECT_EQ(told(), 9);
  log_.flush(start_ + 3s);
  EXPECT_THAT(lines, SizeIs(5));
}

TEST_F(RejectionLog, FlushForgetsNoKind) {
  report(stale("quiet"), 0s);
  report(stale("orders"), 0s);
  report(stale("orders"), 0s);
  log_.flush(start_ + 1s);
  report(stale("quiet"), 2s);
  report(stale("orders"), 10'500ms);  // its last line is from the flush
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[3].at("resource"), "quiet");  // due at 10 s
  log_.flush(start_ + 11s);
  EXPECT_EQ(told(), 5);
}

TEST_F(RejectionLog, WhenFullTheOldestIsWrittenOutAndForgotten) {
  for (std::size_t i = 0; i < rejection_log::kinds_max; ++i) {
    report(stale("r" + std::to_string(i)), std::chrono::milliseconds(i));
  }
  report(stale("r0"), 2s);
  report(stale("r0"), 2s);
  const auto before = lines.size();

  report(stale("one-more"), 3s);
  ASSERT_THAT(lines, SizeIs(before + 2));
  EXPECT_EQ(lines[before].at("resource"), "r0");
  EXPECT_EQ(lines[before].at("repeated"), "2");

  report(stale("r0"), 3s);  // a first one again; "r1", the oldest now, had nothing outstanding
  EXPECT_EQ(lines.back().at("repeated"), "(none)");
  report(stale("r2"), 3s);  // still remembered
  EXPECT_THAT(lines, SizeIs(before + 3));
  log_.flush(start_ + 4s);
  EXPECT_EQ(told(), static_cast<std::int64_t>(rejection_log::kinds_max) + 5);
}

TEST_F(RejectionLog, AStormOverManyKindsIsCutOffAndCounted) {
  constexpr auto cap = static_cast<std::int64_t>(rejection_log::lines_per_second_max);
  constexpr int reports = 9'000;
  for (int i = 0; i < reports; ++i) report(stale("r" + std::to_string(i)), std::chrono::milliseconds(i / 10));
  EXPECT_THAT(lines, SizeIs(cap));
  log_.write_due(start_ + 999ms);
  EXPECT_THAT(lines, SizeIs(cap));
  log_.write_due(start_ + 1s);
  ASSERT_THAT(lines, SizeIs(cap + 1));
  EXPECT_EQ(lines.back().message, "more rejections than the log takes; see checks_total");
  EXPECT_THAT(lines.back().fields, ElementsAre(Pair("repeated", std::to_string(reports - cap))));
  EXPECT_EQ(told(), reports);
  report(stale("later"), 1s);  // the next second has room again
  EXPECT_EQ(lines.back().at("resource"), "later");
}

TEST_F(RejectionLog, CountsThatAreDueAreCutOffAsWell) {
  constexpr int kinds = 1000, reports = 3 * kinds;
  for (int i = 0; i < reports; ++i) report(stale("r" + std::to_string(i % kinds)), 0s);
  const auto before = lines.size();
  log_.write_due(start_ + 10s);
  EXPECT_THAT(lines, SizeIs(before + 1 + rejection_log::lines_per_second_max));
  log_.flush(start_ + 10s);
  EXPECT_EQ(told(), reports);
}

TEST_F(RejectionLog, NothingIsLostAmongManyKinds) {
  const int reports = 20'000;
  for (int i = 0; i < reports; ++i) report(stale("r" + std::to_string(i * 7919 % 3000)), i * 3ms);
  log_.flush(start_ + 60s);
  EXPECT_EQ(told(), reports);
}

TEST_F(RejectionLog, WhatPeersChoseIsPrintableAndShort) {
  auto why = stale("a\nb" + std::string(1000, 'r'));
  why.detail = "\x1b[31m\r\n" + std::string(100'000, 'd');
  report(why, 0s, "host\n" + std::string(1000, 'h'), "s\xffT\n" + std::string(1000, 'x'));
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("command"), "s?T?" + std::string(60, 'x') + "...");
  for (const auto& [key, value] : lines[0].fields) {
    EXPECT_LT(value.size(), 600u) << key;
    for (const char c : value) EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << key;
  }
}

TEST_F(RejectionLog, RemembersNothingWhileNobodyListens) {
  log::set_sink(nullptr, log::level::warn);
  report(stale("orders"), 0s);
  report(stale("orders"), 0s);
  log::set_sink(remember, log::level::error);
  report(stale("orders"), 0s);
  log::set_sink(remember, log::level::warn);
  log_.flush(start_ + 1s);
  EXPECT_THAT(lines, IsEmpty());
}

TEST_F(RejectionLog, ThreadsLoseNoCount) {
  constexpr int threads = 4;
  constexpr int each = 5'000;
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([this, t] {
      for (int i = 0; i < each; ++i) report(stale("r" + std::to_string(i % 1500)), i * 4ms + t * 1ms);
    });
  }
  for (auto& thread : running) thread.join();
  log_.flush(start_ + 60s);
  EXPECT_EQ(told(), threads * each);
}

// What is told to whoever wants to hear of rejections, whatever is logged: "resource token client ×count".
class RejectionsTold : public RejectionLog {
 protected:
  RejectionsTold() {
    log::set_sink(nullptr, log::level::error);
    log_.hear_of_all([this](const rejection_log::told& one) {
      heard.push_back(one.why.resource + " " + (one.why.presented ? one.why.presented->to_string() : "-") + " " +
                      one.client + " ×" + std::to_string(one.count) + (one.monitor ? " monitor" : ""));
      latest = one;
    });
  }
  void reject(std::chrono::milliseconds when, std::int64_t token = 33, std::string_view client = "10.0.0.7:1") {
    log_.report("cache", {fence::reason::stale, "orders", fence::token(token), fence::token(34), {}}, client, "SET",
                start_ + when, false);
  }

  std::vector<std::string> heard;
  rejection_log::told latest;
};

TEST_F(RejectionsTold, ASessionThatWasCutAtOnceAndWithoutALine) {
  for (int each = 1; each <= 2; ++each) {
    log_.report_cut("db", stale("orders"), "10.0.0.7:1", start_);
    EXPECT_THAT(heard, SizeIs(each));
  }
  EXPECT_THAT(heard, Each("orders 33 10.0.0.7:1 ×1"));
  EXPECT_EQ(latest.command, "session");
  log_.flush(start_ + 1min);
  EXPECT_THAT(heard, SizeIs(2));
  EXPECT_THAT(lines, IsEmpty());
}

TEST_F(RejectionsTold, TheFirstAtOnceAndTheOthersTogether) {
  reject(0ms);
  EXPECT_THAT(heard, ElementsAre("orders 33 10.0.0.7:1 ×1"));
  for (int i = 1; i < 10; ++i) reject(i * 40ms, 33, "10.0.0.7:" + std::to_string(i));
  log_.write_due(start_ + 499ms);
  EXPECT_THAT(heard, SizeIs(1));
  log_.write_due(start_ + 500ms);
  EXPECT_THAT(heard, ElementsAre(_, "orders 33 10.0.0.7:9 ×9"));
  EXPECT_EQ(latest.at, start_ + 360ms);
  log_.write_due(start_ + 2s);
  EXPECT_THAT(heard, SizeIs(2));
  reject(3s);
  EXPECT_THAT(heard, SizeIs(3));
}

TEST_F(RejectionsTold, AStormTellsWithoutAQuietTime) {
  for (int i = 0; i < 100; ++i) reject(i * 10ms);
  EXPECT_THAT(heard, ElementsAre("orders 33 10.0.0.7:1 ×1", "orders 33 10.0.0.7:1 ×50"));
}

TEST_F(RejectionsTold, EachTokenIsToldOf) {
  reject(0ms);
  reject(1ms);
  reject(2ms, 32);
  reject(3ms, 32);
  log_.flush(start_ + 4ms);
  EXPECT_THAT(heard, ElementsAre("orders 33 10.0.0.7:1 ×1", "orders 33 10.0.0.7:1 ×1", "orders 32 10.0.0.7:1 ×1",
                                 "orders 32 10.0.0.7:1 ×1"));
}

TEST_F(RejectionsTold, WhatIsForgottenWasTold) {
  reject(0ms);
  reject(1ms);
  for (std::size_t i = 0; i < rejection_log::kinds_max; ++i)
    log_.report("cache", stale("r" + std::to_string(i)), "10.0.0.7:1", "SET", start_ + 2ms, false);
  EXPECT_THAT(heard, SizeIs(2 + rejection_log::kinds_max));
}

TEST_F(RejectionsTold, MonitorIsAnotherKind) {
  log_.report("cache", stale("orders"), "10.0.0.7:1", "SET", start_, false);
  log_.report("cache", stale("orders"), "10.0.0.7:1", "SET", start_, true);
  EXPECT_THAT(heard, SizeIs(2));
  EXPECT_TRUE(latest.monitor);
}

TEST_F(RejectionsTold, WhatClientsChoseIsPrintableAndBounded) {
  log_.report("cache", {fence::reason::malformed, "", {}, {}, "tag \x1b[2J" + std::string(10'000, 'x')}, "h\xF6st",
              std::string(10'000, 'y'), start_, false, std::string(10'000, '\n'));
  EXPECT_EQ(latest.why.detail.substr(0, 9), "tag ?[2Jx");
  EXPECT_LT(latest.why.detail.size(), 600u);
  EXPECT_LT(latest.command.size(), 100u);
  EXPECT_LT(latest.trace.size(), 200u);
  EXPECT_EQ(latest.client, "h?st");
}

}  // namespace
}  // namespace fencegate::gate
