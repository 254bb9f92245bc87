#include "split_input.hpp"
#include "wire/resp_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using testing::ElementsAre;

// Feeds pieces, giving back what was left over, and writes down what was learned: "<outcome> <bytes taken>" and then
// each argument as "<declared size>:<kept>".
std::vector<std::string> follow_pieces(const std::vector<std::string_view>& pieces, request_decoder limits = {}) {
  large_request large(limits);
  std::string held;
  std::size_t taken = 0;
  std::string outcome = "more";
  for (const std::string_view piece : pieces) {
    held += piece;
    const large_request::step got = large.advance(held);
    EXPECT_LE(got.consumed, held.size());
    held.erase(0, got.consumed);
    taken += got.consumed;
    if (got.what != large_request::status::more) {
      outcome = got.what == large_request::status::complete ? "complete" : std::string(got.message);
      break;
    }
  }
  std::vector<std::string> seen{outcome + " " + std::to_string(taken)};
  for (const large_request::argument& a : large.arguments()) {
    seen.push_back(std::to_string(a.size) + ":" + a.head);
  }
  return seen;
}

TEST(LargeRequest, KeepsSmallArgumentsAndSkipsTheLargeOne) {
  const std::string value(large_request::kept_bytes_max + 1, 'v');
  std::string input;
  append_command_of(input, "SET", "key", value, "NX");
  EXPECT_THAT(follow_pieces({input}), ElementsAre("complete " + std::to_string(input.size()), "3:SET", "3:key",
                                                  "4097:" + value.substr(0, large_request::head_bytes_max), "2:NX"));
}

TEST(LargeRequest, OnlyWhatIsKeptWholeIsWhole) {
  large_request large{request_decoder{}};
  std::string input;
  append_command_of(input, "SET", "", std::string(large_request::kept_bytes_max, 'k'),
                    std::string(large_request::kept_bytes_max + 1, 'v'));
  ASSERT_EQ(large.advance(input).what, large_request::status::complete);
  EXPECT_TRUE(large.arguments()[0].whole());
  EXPECT_TRUE(large.arguments()[1].whole());
  EXPECT_TRUE(large.arguments()[2].whole());
  EXPECT_FALSE(large.arguments()[3].whole());
}

TEST(LargeRequest, AnArgumentOnItsWayIsNotWhole) {
  large_request large{request_decoder{}};
  static_cast<void>(large.advance("*2\r\n$3\r\nSET\r\n$5\r\nke"));
  ASSERT_EQ(large.arguments().size(), 2U);
  EXPECT_FALSE(large.arguments()[1].whole());
}

TEST(LargeRequest, TakesNothingBehindTheCommand) {
  std::string input;
  append_command_of(input, "SET", "k", "value");
  const std::size_t size = input.size();
  large_request large{request_decoder{}};
  const large_request::step got = large.advance(input + "*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(got.what, large_request::status::complete);
  EXPECT_EQ(got.consumed, size);
}

TEST(LargeRequest, ReadsTheSameHoweverTheInputIsCut) {
  std::string good;
  append_command_of(good, "SET", "", "a\r\nb", std::string(200, 'v'));
  for (const std::string& input : {good, good.substr(0, good.size() - 2) + "xx", good.substr(0, good.size() - 1) + "x",
                                   std::string("*2\r\n$3\r\nSET\r\n$-1\r\n"), std::string("*2\r\n$3\r\nSET\r\n:1\r\n"),
                                   std::string("*2\r\n$3\r\nSET\r\n$12345678901234567890"), std::string("*0\r\n"),
                                   std::string("*2\r\n$3\r\nSETT\r\n"), good.substr(0, 20)}) {
    const std::vector<std::string> whole = follow_pieces({input});
    test::for_each_split(input, [&](const auto& pieces) { EXPECT_EQ(follow_pieces(pieces), whole) << input; });
  }
}

TEST(LargeRequest, RefusesWhatTheDecoderRefuses) {
  const std::string set = "*3\r\n$3\r\nSET\r\n";
  EXPECT_EQ(follow_pieces({set + "$-1\r\n"})[0], "invalid bulk length 13");
  EXPECT_EQ(follow_pieces({set + "$01\r\n"})[0], "invalid bulk length 13");
  EXPECT_EQ(follow_pieces({set + "$536870913\r\n"})[0], "invalid bulk length 13");
  EXPECT_EQ(follow_pieces({set + "+1\r\n"})[0], "expected '$', got '+' 13");
  EXPECT_EQ(follow_pieces({set + "$1\r\nkxx"})[0], "missing CRLF after bulk string 18");
  EXPECT_EQ(follow_pieces({set + "$1\r\nk\rx"})[0], "missing CRLF after bulk string 19");
  EXPECT_EQ(follow_pieces({"*0\r\n"})[0], "invalid multibulk length 0");
  EXPECT_EQ(follow_pieces({"PING\r\n"})[0], "expected '*' 0");
  request_decoder unauthenticated;
  unauthenticated.arguments_max = 10;
  unauthenticated.bulk_bytes_max = 16384;
  EXPECT_EQ(follow_pieces({"*11\r\n"}, unauthenticated)[0], "unauthenticated multibulk length 0");
  EXPECT_EQ(follow_pieces({"*1\r\n$16385\r\n"}, unauthenticated)[0], "unauthenticated bulk length 4");
}

TEST(LargeRequest, GoesOnWhereTheDecoderSaidLarge) {
  std::string input;
  append_command_of(input, "MSET", "a", std::string(300, 'x'), "b", std::string(300, 'y'));
  for (std::size_t limit = 0; limit < input.size(); ++limit) {
    request_decoder decoder;
    request command;
    ASSERT_EQ(decoder.decode(input, limit, command).status, request_status::large);
    large_request large(decoder);
    EXPECT_EQ(large.advance(input).what, large_request::status::complete);
    EXPECT_EQ(large.arguments().size(), 5U);
  }
}

TEST(LargeRequest, KeepsABoundedAmount) {
  const std::string value(large_request::kept_bytes_max, 'v');
  const std::size_t enough = large_request::kept_bytes_total_max / value.size();
  std::string piece;
  piece = "$4096\r\n" + value + "\r\n";
  large_request large{request_decoder{}};
  ASSERT_EQ(large.advance("*1000000\r\n").what, large_request::status::more);
  for (std::size_t i = 0; i < enough; ++i) {
    ASSERT_EQ(large.advance(piece).what, large_request::status::more);
  }
  const large_request::step got = large.advance(piece);
  EXPECT_EQ(got.what, large_request::status::malformed);
  EXPECT_EQ(got.message, "too many arguments in a large command");
}

TEST(LargeRequest, AllocatesNothingFromWhatIsDeclared) {
  large_request large{request_decoder{}};
  static_cast<void>(large.advance("*1048576\r\n$536870912\r\nab"));
  ASSERT_EQ(large.arguments().size(), 1U);
  EXPECT_LT(large.arguments().capacity(), 16U);
  EXPECT_LT(large.arguments()[0].head.capacity(), 128U);
  EXPECT_EQ(large.arguments()[0].head, "ab");
}

}  // namespace
}  // namespace fencegate::wire
