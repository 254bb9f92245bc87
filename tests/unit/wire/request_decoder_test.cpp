#include "base/limits.hpp"
#include "split_input.hpp"
#include "wire/resp_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace fencegate::wire {
namespace {

using testing::ElementsAre;

constexpr std::size_t roomy = limits::command_buffered_bytes_max;

// What a session would see of a stream: one line per command, "malformed: …" at the end of a broken one. Input that
// completes nothing is "more: <bytes>", which also shows that no byte was lost.
std::vector<std::string> read_pieces(const std::vector<std::string_view>& pieces, request_decoder decoder = {},
                                     std::size_t buffered_max = roomy) {
  std::vector<std::string> seen;
  request command;
  std::string held;
  for (const std::string_view piece : pieces) {
    // A fresh allocation each time: progress must not depend on where the input lies.
    held = std::string(held + std::string(piece));
    for (bool more = true; more;) {
      const auto input = std::make_unique<std::string>(held);
      const decoded_request got = decoder.decode(*input, buffered_max, command);
      std::string line;
      switch (got.status) {
        case request_status::need_more: more = false; continue;
        case request_status::large: seen.emplace_back("large"); return seen;
        case request_status::malformed: seen.push_back("malformed: " + std::string(got.message)); return seen;
        case request_status::empty: line = "empty"; break;
        case request_status::complete:
          EXPECT_EQ(command.raw, std::string_view(*input).substr(0, got.consumed));
          line = command.inlined ? "inline" : "array";
          for (const std::string_view argument : command.arguments) {
            line += " [" + std::string(argument) + "]";
          }
      }
      seen.push_back(line);
      held.erase(0, got.consumed);
    }
  }
  if (!held.empty()) {
    seen.push_back("more: " + std::to_string(held.size()));
  }
  return seen;
}

std::vector<std::string> read(std::string_view input, request_decoder decoder = {}, std::size_t buffered_max = roomy) {
  return read_pieces({input}, decoder, buffered_max);
}

TEST(RequestDecoder, ReadsAnArrayOfBulks) {
  EXPECT_THAT(read("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n"), ElementsAre("array [SET] [k] [hello]"));
}

TEST(RequestDecoder, ReadsEmptyAndBinaryArguments) {
  using namespace std::string_view_literals;
  EXPECT_THAT(read("*3\r\n$0\r\n\r\n$6\r\na\r\n$1\r\r\n$2\r\n\0\xff\r\n"sv),
              ElementsAre("array [] [a\r\n$1\r] [\0\xff]"sv));
}

TEST(RequestDecoder, ReadsLengthsOfEverySize) {
  for (const std::size_t size : {0U, 9U, 10U, 99U, 100U, 999U, 1000U, 12345U}) {
    const std::string value(size, 'v');
    std::string input;
    append_command_of(input, "SET", "k", value);
    EXPECT_THAT(read(input), ElementsAre("array [SET] [k] [" + value + "]")) << size;
  }
}

TEST(RequestDecoder, CountsOfZeroOrLessAreNoCommand) {
  EXPECT_THAT(read("*0\r\n*-1\r\n*-1048577\r\n*1\r\n$4\r\nPING\r\n"),
              ElementsAre("empty", "empty", "empty", "array [PING]"));
}

TEST(RequestDecoder, ReadsTheSameHoweverTheInputIsCut) {
  using namespace std::string_view_literals;
  for (const std::string_view input : {"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n*1\r\n$4\r\nPING\r\n"sv,
                                       "*0\r\n*-1\r\nPING\r\n\r\n*1\r\n$0\r\n\r\n"sv,
                                       "set k \"a\\x00 b\" 'c'\nget k\r\n\r\nPING\r\n"sv,
                                       "*2\r\n$3\r\nGET\r\n$11\r\n"sv,
                                       "*1\r\n$4\r\nPINGxx"sv,
                                       "*1\r\n$4\r\nPING\rx"sv,
                                       "*1\r\n$-1\r\n"sv,
                                       "*1\r\n$04\r\n"sv,
                                       "*12345678901234567890\r\n"sv,
                                       "*1\r\n$12345678901234567890"sv,
                                       "*1\r\n:1\r\n"sv,
                                       "*1\rx"sv,
                                       "*1\n$4\r\nPING\r\n"sv,
                                       "set \"k\r\n"sv,
                                       "POST / HTTP/1.1\r\n"sv,
                                       "*1048577\r\n"sv,
                                       "*1\r\n$536870913\r\n"sv,
                                       "PI\0NG\r\n"sv,
                                       "*1\r\n$300000\r\n"sv,
                                       "*\r\n"sv,
                                       "*-\r\n"sv}) {
    const std::vector<std::string> whole = read(input);
    EXPECT_FALSE(whole.empty()) << input;
    test::for_each_split(input, [&](const auto& pieces) { EXPECT_EQ(read_pieces(pieces), whole) << input; });
  }
}

struct refused {
  std::string input;
  std::string message;
};
class RequestDecoderRefuses : public testing::TestWithParam<refused> {};

TEST_P(RequestDecoderRefuses, WithRedissWords) {
  EXPECT_THAT(read(GetParam().input), ElementsAre("malformed: " + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Lines, RequestDecoderRefuses,
    testing::Values(
        refused{"*\r\n", "invalid multibulk length"}, refused{"*x\r\n", "invalid multibulk length"},
        refused{"*01\r\n", "invalid multibulk length"}, refused{"*-0\r\n", "invalid multibulk length"},
        refused{"*+1\r\n", "invalid multibulk length"}, refused{"* 1\r\n", "invalid multibulk length"},
        refused{"*1 \r\n", "invalid multibulk length"}, refused{"*1\n", "invalid multibulk length"},
        refused{"*1\r\r", "invalid multibulk length"}, refused{"*0x1\r\n", "invalid multibulk length"},
        refused{"*1048577\r\n", "invalid multibulk length"},
        refused{"*9223372036854775808\r\n", "invalid multibulk length"},
        refused{"*9999999999999999999\r\n", "invalid multibulk length"},
        refused{"*-9223372036854775809\r\n", "invalid multibulk length"},
        refused{"*00000000000000000000000001\r\n", "invalid multibulk length"},
        refused{"*" + std::string(20, '1'), "too big mbulk count string"},
        refused{"*1\r\n$-1\r\n", "invalid bulk length"}, refused{"*1\r\n$abc\r\n", "invalid bulk length"},
        refused{"*1\r\n$\r\n\r\n", "invalid bulk length"}, refused{"*1\r\n$04\r\nPING\r\n", "invalid bulk length"},
        refused{"*1\r\n$00\r\n\r\n", "invalid bulk length"}, refused{"*1\r\n$+4\r\nPING\r\n", "invalid bulk length"},
        refused{"*1\r\n$4\nPING\r\n", "invalid bulk length"}, refused{"*1\r\n$4\rPING\r\n", "invalid bulk length"},
        refused{"*1\r\n$4\rXPING\r\n", "invalid bulk length"}, refused{"*1\r\n$536870913\r\n", "invalid bulk length"},
        refused{"*1\r\n$9223372036854775807\r\n", "invalid bulk length"},
        refused{"*1\r\n$4294967300\r\nPING\r\n", "invalid bulk length"},
        refused{"*1\r\n$" + std::string(20, '9'), "too big bulk count string"},
        refused{"*1\r\n:4\r\n", "expected '$', got ':'"}, refused{"*1\r\n\r\n", "expected '$', got '?'"},
        refused{"*2\r\n$3\r\nGET\r\n*", "expected '$', got '*'"},
        refused{"*1\r\n$4\r\nPINGPING\r\n", "missing CRLF after bulk string"},
        refused{"*1\r\n$4\r\nPING\r\r", "missing CRLF after bulk string"},
        refused{"*1\r\n$4\r\nPING\n\n", "missing CRLF after bulk string"},
        refused{"*1\r\n$0\r\n$4\r\n", "missing CRLF after bulk string"},
        refused{"*1\r\n$1000\r\n" + std::string(1000, 'v') + "\n\n", "missing CRLF after bulk string"}));

TEST(RequestDecoder, BeforeAuthenticationOnlySmallCommandsAreRead) {
  request_decoder decoder;
  decoder.arguments_max = 10;
  decoder.bulk_bytes_max = 16384;
  EXPECT_THAT(read("*10\r\n", decoder), ElementsAre("more: 5"));
  EXPECT_THAT(read("*11\r\n", decoder), ElementsAre("malformed: unauthenticated multibulk length"));
  EXPECT_THAT(read("*1\r\n$16384\r\n", decoder), ElementsAre("more: 12"));
  EXPECT_THAT(read("*1\r\n$16385\r\n", decoder), ElementsAre("malformed: unauthenticated bulk length"));
  EXPECT_THAT(read("*1048577\r\n", decoder), ElementsAre("malformed: invalid multibulk length"));
  decoder.bulk_bytes_max = 3;  // below what the short path takes
  EXPECT_THAT(read("*1\r\n$4\r\nPING\r\n", decoder), ElementsAre("malformed: unauthenticated bulk length"));
}

TEST(RequestDecoder, ACommandOfExactlyTheLimitIsHeld) {
  for (const std::size_t size : {100U, 2000U}) {
    const std::string value(size, 'v');
    std::string input;
    append_command_of(input, "SET", "k", value);
    EXPECT_THAT(read(input, {}, input.size()), ElementsAre("array [SET] [k] [" + value + "]"));
    EXPECT_THAT(read(input, {}, input.size() - 1), ElementsAre("large"));
  }
}

TEST(RequestDecoder, TellsInlineCommandsAndArraysApart) {
  EXPECT_THAT(read("PING\r\n*1\r\n$4\r\nPING\r\nPING\n"),
              ElementsAre("inline [PING]", "array [PING]", "inline [PING]"));
}

TEST(RequestDecoder, SaysLargeAsSoonAsTheLengthIsReadable) {
  const std::string head = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$300000000\r\n";
  EXPECT_THAT(read(head), ElementsAre("large"));
  EXPECT_THAT(read(std::string_view(head).substr(0, head.size() - 1)),
              ElementsAre("more: " + std::to_string(head.size() - 1)));
}

TEST(RequestDecoder, ManySmallArgumentsAreLargeToo) {
  std::string input = "*1000\r\n";
  while (input.size() < 200) {
    input += "$1\r\na\r\n";
  }
  EXPECT_THAT(read(std::string_view(input).substr(0, 99), {}, 100), ElementsAre("more: 99"));
  EXPECT_THAT(read(std::string_view(input).substr(0, 100), {}, 100), ElementsAre("large"));
  EXPECT_THAT(read(input, {}, 100), ElementsAre("large"));
}

// With `limit` bytes in its buffer a session that cannot hold more must never be told to wait for more.
TEST(RequestDecoder, NeverAsksForMoreThanTheLimit) {
  std::string input;
  append_command_of(input, "SET", "key", std::string(5000, 'v'), "more", std::string(50, 'v'));
  for (std::size_t limit = 0; limit < input.size(); ++limit) {
    const std::size_t buffer = std::max<std::size_t>(limit, 4);  // "*5\r\n" is read in any case
    EXPECT_THAT(read(std::string_view(input).substr(0, buffer), {}, limit), ElementsAre("large")) << limit;
    EXPECT_THAT(read(input, {}, limit), ElementsAre("large")) << limit;
  }
}

TEST(RequestDecoder, GoesOnAfterAnInputThatWasReplaced) {
  request_decoder decoder;
  request command;
  const std::string_view first = "*2\r\n$3\r\nGET\r\n$1";
  ASSERT_EQ(decoder.decode(first, roomy, command).status, request_status::need_more);
  decoder.reset_progress();
  const std::string_view second = "*1\r\n$20\r\naaaaaaaaaaaaaaaaaaaa\r\n";
  ASSERT_EQ(decoder.decode(second, roomy, command).status, request_status::complete);
  EXPECT_THAT(command.arguments, ElementsAre("aaaaaaaaaaaaaaaaaaaa"));
}

TEST(RequestDecoder, ReadsAMillionArgumentsInPiecesOnce) {
  const std::vector<std::string_view> arguments(1'000'000, "x");
  std::string input;
  append_command(input, arguments);
  request_decoder decoder;
  request command;
  // Work is counted as time against the same input read whole: quadratic work would be a thousand times as much.
  const auto timed = [&](std::size_t piece) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t come = piece; come < input.size(); come += piece) {
      EXPECT_EQ(decoder.decode(std::string_view(input).substr(0, come), SIZE_MAX, command).status,
                request_status::need_more);
    }
    EXPECT_EQ(decoder.decode(input, SIZE_MAX, command).status, request_status::complete);
    return std::chrono::steady_clock::now() - start;
  };
  const auto whole = timed(input.size());
  EXPECT_EQ(command.arguments, arguments);
  EXPECT_LT(timed(4096), whole * 50);
}

TEST(AppendCommand, IsWhatTheDecoderReads) {
  std::string out = "before";
  append_command_of(out, "SET", std::string("k"), std::string_view(""));
  EXPECT_EQ(out, "before*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
}

TEST(Iequals, FoldsOnlyAsciiLetters) {
  EXPECT_TRUE(iequals("SeT", "sEt"));
  EXPECT_TRUE(iequals("", ""));
  EXPECT_FALSE(iequals("set", "sett"));
  EXPECT_FALSE(iequals("@[", "`{"));
  EXPECT_FALSE(iequals("\xc4", "\xe4"));
}

}  // namespace
}  // namespace fencegate::wire
