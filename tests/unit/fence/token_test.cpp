#include "fence/token.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace fencegate::fence {
namespace {

void expect_refused(std::string_view text) {
  const auto parsed = token::parse(text);
  ASSERT_FALSE(parsed) << "accepted '" << text << "'";
  EXPECT_NE(parsed.error().message.find("is not a fencing token"), std::string::npos);
}

TEST(Token, ReadsEveryCanonicalNumberExactly) {
  const std::int64_t values[] = {
      0, 1, 9, 10, 34, 99, 100, (1LL << 31) - 1, 1LL << 32, 999'999'999'999'999'999LL, 1'000'000'000'000'000'000LL};
  for (const auto value : values) {
    const auto parsed = token::parse(std::to_string(value));
    ASSERT_TRUE(parsed) << value;
    EXPECT_EQ(parsed->value(), value);
    EXPECT_EQ(parsed->to_string(), std::to_string(value));
  }
}

// Doubles, as in Lua and JavaScript, hold 2^53 and 2^53 + 1 as the same number.
TEST(Token, TellsNeighboursAround2To53Apart) {
  const auto below = token::parse("9007199254740991");
  const auto at = token::parse("9007199254740992");
  const auto above = token::parse("9007199254740993");
  ASSERT_TRUE(below && at && above);
  EXPECT_LT(*below, *at);
  EXPECT_LT(*at, *above);
  EXPECT_NE(*at, *above);
  EXPECT_EQ(above->to_string(), "9007199254740993");
  EXPECT_EQ(above->value() - at->value(), 1);
}

TEST(Token, EndsAt2To63Less1) {
  const auto largest = token::parse("9223372036854775807");
  ASSERT_TRUE(largest);
  EXPECT_EQ(largest->value(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(largest->to_string(), "9223372036854775807");

  const auto before = token::parse("9223372036854775806");
  ASSERT_TRUE(before);
  EXPECT_LT(*before, *largest);

  expect_refused("9223372036854775808");  // 2^63
  expect_refused("9223372036854775809");
  expect_refused("9999999999999999999");   // 19 digits
  expect_refused("18446744073709551615");  // 2^64 - 1
  expect_refused("18446744073709551650");  // 2^64 + 34: 34 when wrapped
}

TEST(Token, RefusesWhatIsNotCanonical) {
  for (const auto* text : {"",     "+34", "-0",  "-1",   "-34",    "034",  "00",   "0000000000000000000",
                           " 34",  "34 ", "3 4", "34\n", "34\r\n", "\t34", "0x22", "1e3",
                           "34.0", "3_4", "34,", "١",    "３４",   "NaN",  "inf",  "null"}) {
    expect_refused(text);
  }
}

TEST(Token, RefusesNulBytes) {
  expect_refused(std::string_view("\0", 1));
  expect_refused(std::string_view("34\0", 3));
  expect_refused(std::string_view("3\0004", 3));
}

TEST(Token, SaysLittleAboutHugeText) {
  const auto parsed = token::parse(std::string(1 << 20, '7'));
  ASSERT_FALSE(parsed);
  EXPECT_LT(parsed.error().message.size(), 200u);
}

TEST(Token, ErrorsArePrintable) {
  const auto parsed = token::parse("3\r\n-OK\x1b\xff");
  ASSERT_FALSE(parsed);
  for (const char c : parsed.error().message) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
}

TEST(Token, IsOrderedAsNumbersNotAsText) {
  EXPECT_LT(*token::parse("9"), *token::parse("10"));
  EXPECT_LT(*token::parse("999999999999999999"), *token::parse("1000000000000000000"));
  EXPECT_EQ(token(), *token::parse("0"));
}

TEST(ResourceName, IsOneTo200BytesOfItsAlphabet) {
  EXPECT_FALSE(is_resource_name(""));
  EXPECT_TRUE(is_resource_name("a"));
  EXPECT_TRUE(is_resource_name("Orders_2.eu:west/rack-7"));
  EXPECT_TRUE(is_resource_name(std::string(200, 'x')));
  EXPECT_FALSE(is_resource_name(std::string(201, 'x')));
}

TEST(ResourceName, HasExactlyTheseBytes) {
  const std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/-";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool expected = allowed.find(c) != std::string_view::npos;
    EXPECT_EQ(is_resource_byte(c), expected) << byte;
    EXPECT_EQ(is_resource_name(std::string(1, c)), expected) << byte;
    EXPECT_EQ(is_resource_name(std::string("a") + c + "b"), expected) << byte;
  }
}

// Names end up inside `fencegate:mark:{<resource>}`: a brace would move the mark to another slot or another key.
TEST(ResourceName, RefusesHostileOnes) {
  for (const auto* name :
       {"a}b", "{a", "a b", "a=1", "a,b", "a\r\nSET x y", "a*", "a'b", "a\"b", "é", "a\\b", "a\x7f"}) {
    EXPECT_FALSE(is_resource_name(name)) << name;
  }
  EXPECT_FALSE(is_resource_name(std::string_view("a\0", 2)));
}

}  // namespace
}  // namespace fencegate::fence
