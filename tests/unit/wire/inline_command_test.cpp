#include "base/limits.hpp"
#include "wire/resp_inline.hpp"
#include "wire/resp_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace fencegate::wire {
namespace {

using namespace std::string_view_literals;
using testing::ElementsAre;

struct line_case {
  std::string_view line;
  std::optional<std::vector<std::string_view>> words;  // nullopt: unbalanced
};

// Each line was sent to Redis 7.0 behind `RPUSH k` and read back; tests/fuzz/inline_fuzz.cpp compares with
// sdssplitargs itself.
const std::vector<line_case>& lines() {
  static const std::vector<line_case> all{
      {"a b  c", {{"a", "b", "c"}}},
      {" \t a\tb ", {{"a", "b"}}},
      {"a\rb", {{"a", "b"}}},
      {"\v\fa\vb\fc", {{"a\vb\fc"}}},
      {"\"a b\"", {{"a b"}}},
      {"\"\" ''", {{"", ""}}},
      {R"("\n\r\t\b\a\\\"\q")", {{"\n\r\t\b\a\\\"q"}}},
      {R"("\x00\xfF\x4a")", {{"\0\xffJ"sv}}},
      {R"("\xg1\x4")", {{"xg1x4"}}},
      {R"('\n\'\\ ')", {{R"(\n'\\ )"}}},
      {"'a\"b'", {{"a\"b"}}},
      {"se\"t k\"", {{"set k"}}},
      {"se't k' v", {{"set k", "v"}}},
      {"\"a\"\vb", {{"a", "b"}}},
      {"\\n", {{"\\n"}}},
      {"", {std::vector<std::string_view>{}}},
      {" \t ", {std::vector<std::string_view>{}}},
      {"\"a\"b", std::nullopt},
      {"'a'b", std::nullopt},
      {"'a'\"b\"", std::nullopt},
      {"\"a", std::nullopt},
      {"'a", std::nullopt},
      {"a \"", std::nullopt},
      {R"("a\")", std::nullopt},
      {R"('a\')", std::nullopt},
      {R"("a\)", std::nullopt},
      {R"('\n\'\\')", std::nullopt},
  };
  return all;
}

TEST(SplitInline, SplitsAsRedisDoes) {
  for (const line_case& expected : lines()) {
    const auto got = split_inline(expected.line);
    ASSERT_EQ(got.has_value(), expected.words.has_value()) << expected.line;
    if (got) {
      EXPECT_EQ(*got, std::vector<std::string>(expected.words->begin(), expected.words->end())) << expected.line;
    }
  }
}

TEST(SplitInline, TheDecoderAndThePlainFormAgree) {
  for (const line_case& expected : lines()) {
    request_decoder decoder;
    request command;
    for (const std::string_view end : {"\n", "\r\n"}) {
      const std::string input = std::string(expected.line) + std::string(end);
      const decoded_request got = decoder.decode(input, 1024, command);
      if (!expected.words) {
        EXPECT_EQ(got.status, request_status::malformed) << input;
        EXPECT_EQ(got.message, "unbalanced quotes in request");
        continue;
      }
      EXPECT_EQ(got.status, expected.words->empty() ? request_status::empty : request_status::complete) << input;
      EXPECT_EQ(got.consumed, input.size());
      EXPECT_EQ(command.arguments, *expected.words) << input;
    }
    if (expected.words && expected.line.find_first_of("\"'") == std::string_view::npos) {
      std::vector<std::string_view> words;
      split_plain(expected.line, words);
      EXPECT_EQ(words, *expected.words) << expected.line;
    }
  }
}

TEST(InlineCommand, AnHttpRequestIsRefused) {
  for (const std::string_view line : {"POST /", "post", " Host: localhost", "HOST: x", "\"Post\" /", "'host:'"}) {
    request_decoder decoder;
    request command;
    const decoded_request got = decoder.decode(std::string(line) + "\r\n", 1024, command);
    EXPECT_EQ(got.status, request_status::malformed) << line;
    EXPECT_EQ(got.message, "possible cross-protocol request");
    EXPECT_THAT(command.arguments, ElementsAre());
  }
}

TEST(InlineCommand, OnlyTheFirstWordMakesItHttp) {
  for (const std::string_view line : {"echo POST", "get Host:", "postpone", "host"}) {
    request_decoder decoder;
    request command;
    EXPECT_EQ(decoder.decode(std::string(line) + "\r\n", 1024, command).status, request_status::complete) << line;
  }
}

TEST(InlineCommand, ANulIsRefused) {
  request_decoder decoder;
  request command;
  for (const std::string_view line : {"GET a\0b\r\n"sv, "\0\n"sv, "\"a\0\"\n"sv}) {
    const decoded_request got = decoder.decode(line, 1024, command);
    EXPECT_EQ(got.status, request_status::malformed);
    EXPECT_EQ(got.message, "NUL in inline request");
  }
}

TEST(InlineCommand, TheLongestLineIsReadAndALongerOneIsNot) {
  request_decoder decoder;
  request command;
  const std::string longest(limits::resp_line_bytes_max, 'a');
  EXPECT_EQ(decoder.decode(longest, 1024, command).status, request_status::need_more);
  const std::string whole = longest + "\n";
  EXPECT_EQ(decoder.decode(whole, 1024, command).status, request_status::complete);
  EXPECT_THAT(command.arguments, ElementsAre(longest));
  EXPECT_EQ(decoder.decode(longest + "a", 1024, command).status, request_status::malformed);
  const decoded_request got = decoder.decode(longest + "a\n", 1024, command);
  EXPECT_EQ(got.status, request_status::malformed);
  EXPECT_EQ(got.message, "too big inline request");
}

TEST(InlineCommand, IsNeverLarge) {
  request_decoder decoder;
  request command;
  EXPECT_EQ(decoder.decode("set key value", 4, command).status, request_status::need_more);
  EXPECT_EQ(decoder.decode("set key value\n", 4, command).status, request_status::complete);
  EXPECT_TRUE(command.inlined);
  EXPECT_EQ(command.raw, "set key value\n");
}

}  // namespace
}  // namespace fencegate::wire
