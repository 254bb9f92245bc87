#include "admin/log_sink.hpp"

#include "base/limits.hpp"

#include <boost/json/src.hpp>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace fencegate::admin {
namespace {

using settings::log_format;

constexpr auto noon = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'769'860'800'250));

std::string line_of(log_format format, std::string_view message, std::vector<log::field> fields = {}) {
  return log_line(format, noon, log::level::warn, message, fields.data(), fields.size());
}

// What a reader of the JSON line gets for `value`. Boost.JSON checks escapes and UTF-8.
std::string read_back(std::string_view value) {
  const std::string line = line_of(log_format::json, "m", {{"v", value}});
  return boost::json::value_to<std::string>(boost::json::parse(line).at("v"));
}

TEST(LogLine, JsonIsOneObjectWithFieldsInOrder) {
  EXPECT_EQ(line_of(log_format::json, "write rejected", {{"gate", "cache"}, {"token", std::int64_t{33}}}),
            R"({"ts":"2026-01-31T12:00:00.250Z","level":"warn","msg":"write rejected","gate":"cache","token":33})");
}

TEST(LogLine, TextIsLogfmt) {
  EXPECT_EQ(line_of(log_format::text, "write rejected",
                    {{"gate", "cache"}, {"token", std::int64_t{-1}}, {"why", "a b"}, {"empty", ""}}),
            R"(ts=2026-01-31T12:00:00.250Z level=warn msg="write rejected" gate=cache token=-1 why="a b" empty="")");
}

TEST(LogLine, TextQuotesWhatCouldForgeAField) {
  EXPECT_EQ(line_of(log_format::text, "m", {{"name", "x level=error"}, {"k", "a=b"}, {"q", "\"\n"}}),
            R"(ts=2026-01-31T12:00:00.250Z level=warn msg="m" name="x level=error" k="a=b" q="\"\u000a")");
}

TEST(LogLine, TimeBefore1970KeepsItsMilliseconds) {
  const auto at = std::chrono::system_clock::time_point(std::chrono::milliseconds(-1));
  EXPECT_EQ(log_line(log_format::text, at, log::level::debug, "m", nullptr, 0),
            R"(ts=1969-12-31T23:59:59.999Z level=debug msg="m")");
}

TEST(LogLine, KeepsValidUtf8) {
  for (std::string_view text : {"plain", "a\"b\\c", "é", "€", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xEE\x80\x80"}) {
    EXPECT_EQ(read_back(text), text);
  }
}

TEST(LogLine, ReplacesEachByteOfInvalidUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(read_back("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(read_back("\xC0\xAF"), bad + bad) << "overlong";
  EXPECT_EQ(read_back("\xE0\x9F\xBF"), bad + bad + bad) << "overlong";
  EXPECT_EQ(read_back("\xED\xA0\x80"), bad + bad + bad) << "surrogate";
  EXPECT_EQ(read_back("\xF4\x90\x80\x80"), bad + bad + bad + bad) << "above U+10FFFF";
  EXPECT_EQ(read_back("\xE2\x82"), bad + bad) << "cut";
  EXPECT_EQ(read_back("\xC3(\x80"), bad + "(" + bad);
}

// Every pair of bytes, as value, key and message, in both formats: the reader of JSON accepts it, and no control byte
// is left, neither C0, DEL nor C1.
TEST(LogLine, IsSafeForEveryPairOfBytes) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text{static_cast<char>(a), static_cast<char>(b)};
      for (log_format format : {log_format::json, log_format::text}) {
        const std::string line = line_of(format, text, {{text, text}});
        for (std::size_t i = 0; i < line.size(); ++i) {
          const auto byte = static_cast<unsigned char>(line[i]);
          const bool c1 = byte == 0xC2 && i + 1 < line.size() && static_cast<unsigned char>(line[i + 1]) < 0xA0;
          ASSERT_FALSE(byte < 0x20 || byte == 0x7F || c1) << a << ' ' << b << ' ' << line;
        }
        if (format == log_format::json) {
          boost::system::error_code failed;
          boost::json::parse(line, failed);
          ASSERT_FALSE(failed) << a << ' ' << b << ' ' << line;
        }
      }
    }
  }
}

TEST(LogLine, CutsALongValueWithoutBreakingIt) {
  const std::string kept(limits::log_value_bytes_max - 1, 'x');
  EXPECT_EQ(read_back(kept + "y"), kept + "y");
  EXPECT_EQ(read_back(kept + "yz"), kept + "y…");
  EXPECT_EQ(read_back(kept + "é"), kept + "\xEF\xBF\xBD…") << "cut inside a character";
  EXPECT_LT(line_of(log_format::text, "m", {{"k", std::string(100'000, 'x')}}).size(), 1'200u);
}

// What `body` writes to stderr.
template <class Body>
std::vector<std::string> stderr_lines(Body body) {
  testing::internal::CaptureStderr();
  body();
  flush_log(std::chrono::seconds(10));
  log::set_sink(nullptr, log::level::info);
  std::istringstream all(testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

TEST(LogSink, WritesLinesOfTheChosenFormatFromTheChosenLevelOn) {
  const auto json = stderr_lines([] {
    install_log_sink(settings::log_level::warn, log_format::json);
    log::write(log::level::info, "dropped");
    log::write(log::level::error, "{} is no place holder", {{"n", std::int64_t{1}}});
  });
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0].find("{\"ts\":\"20"), 0u) << json[0];
  EXPECT_NE(json[0].find(R"(Z","level":"error","msg":"{} is no place holder","n":1})"), std::string::npos) << json[0];

  const auto text = stderr_lines([] {
    install_log_sink(settings::log_level::debug, log_format::text);
    log::write(log::level::debug, "kept");
  });
  ASSERT_EQ(text.size(), 1u);
  EXPECT_NE(text[0].find(R"( level=debug msg="kept")"), std::string::npos) << text[0];
}

TEST(LogSink, NeverMixesTheLinesOfTwoThreads) {
  const std::string filler(200, 'x');
  const auto lines = stderr_lines([&] {
    install_log_sink(settings::log_level::info, log_format::json);
    std::vector<std::jthread> threads;
    for (std::int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 250; ++i) log::write(log::level::info, filler, {{"thread", t}});
      });
    }
  });
  ASSERT_EQ(lines.size(), 1'000u);
  std::vector<int> per_thread(4);
  for (const std::string& line : lines) {
    boost::system::error_code failed;
    const auto value = boost::json::parse(line, failed);
    ASSERT_FALSE(failed) << line;
    EXPECT_EQ(boost::json::value_to<std::string>(value.at("msg")), filler);
    ++per_thread.at(static_cast<std::size_t>(value.at("thread").as_int64()));
  }
  EXPECT_EQ(per_thread, (std::vector<int>(4, 250)));
}

}  // namespace
}  // namespace fencegate::admin
