#include "wire/pg_message.hpp"

#include "wire/pg_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using testing::ElementsAre;
using testing::HasSubstr;

std::string u32(std::uint32_t value) {
  std::string out;
  append_u32(out, value);
  return out;
}

// No beginning of `body` but the whole of it, and nothing longer, is accepted.
template <class Decode>
void expect_exact(std::string_view body, Decode decode) {
  EXPECT_TRUE(decode(body).has_value());
  for (std::size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(decode(body.substr(0, size)).has_value()) << size;
  }
  for (const char more : {'\0', 'x', '\xFF'}) {
    EXPECT_FALSE(decode(std::string(body) + more).has_value());
  }
}

TEST(PgHead, WaitsForFiveBytes) {
  const std::string input = "Z" + u32(5) + "I";
  for (std::size_t size = 0; size < pg_head_bytes; ++size) {
    const auto got = decode_pg_head(std::string_view(input).substr(0, size));
    ASSERT_TRUE(got.has_value()) << size;
    EXPECT_EQ(*got, std::nullopt) << size;
  }
  for (std::size_t size = pg_head_bytes; size <= input.size(); ++size) {
    const auto got = decode_pg_head(std::string_view(input).substr(0, size));
    ASSERT_TRUE(got.has_value() && got->has_value());
    EXPECT_EQ((*got)->type, 'Z');
    EXPECT_EQ((*got)->body_bytes, 1);
  }
}

TEST(PgHead, LengthsStandBetween4And2147483647) {
  for (const auto& [declared, body] : std::initializer_list<std::pair<std::uint32_t, std::size_t>>{
           {4, 0}, {5, 1}, {0x0102'0304, 0x0102'0300}, {0x7FFF'FFFF, 0x7FFF'FFFB}}) {
    const auto got = decode_pg_head("d" + u32(declared));
    ASSERT_TRUE(got.has_value() && got->has_value()) << declared;
    EXPECT_EQ((*got)->body_bytes, body);
  }
  for (const std::uint32_t declared : {0U, 3U, 0x8000'0000U, 0x8000'0004U, 0xFFFF'FFFFU}) {
    EXPECT_FALSE(decode_pg_head("d" + u32(declared)).has_value()) << declared;
  }
}

TEST(PgHead, AnErrorNamesTypeAndLength) {
  EXPECT_THAT(decode_pg_head("d" + u32(3)).error().message, HasSubstr("type 'd' declares 3 bytes"));
  EXPECT_THAT(decode_pg_head("\x01" + u32(3)).error().message, HasSubstr("type 1 declares"));
  EXPECT_THAT(decode_pg_head("\xFF" + u32(3)).error().message, HasSubstr("type 255 declares"));
}

TEST(PgError, ReadsItsFields) {
  const auto got = decode_pg_error("SFEHLER\0VERROR\0CZF001\0Mstale\0Dd\0Hh\0Wwhere\0?new\0\0"sv);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(*got, (pg_error{.severity = "ERROR", .sqlstate = "ZF001", .message = "stale", .detail = "d", .hint = "h"}));
}

TEST(PgError, WhatIsMissingIsEmpty) {
  EXPECT_EQ(decode_pg_error("\0"sv).value(), pg_error{});
  EXPECT_EQ(decode_pg_error("SFATAL\0\0"sv).value(), (pg_error{.severity = "FATAL"}));
  EXPECT_EQ(decode_pg_error("Mno state\0\0"sv).value().sqlstate, "");
  EXPECT_EQ(decode_pg_error("VERROR\0SFEHLER\0\0"sv).value().severity, "ERROR");
}

TEST(PgError, EndsExactlyWhereItSays) {
  // A cut right behind a field's NUL misses the terminator, one inside a field misses both.
  expect_exact("SERROR\0C42P01\0Mx\0\0"sv, decode_pg_error);
  expect_exact("\0"sv, decode_pg_error);
}

TEST(PgError, IsWrittenAsItIsRead) {
  const pg_error e{.severity = "FATAL",
                   .sqlstate = "ZF001",
                   .message = "not applied",
                   .detail = "mark 34",
                   .hint = "take a new lease"};
  const std::string message = encode_pg_error(e);
  const auto head = decode_pg_head(message);
  ASSERT_TRUE(head.has_value() && head->has_value());
  EXPECT_EQ((*head)->type, 'E');
  EXPECT_EQ((*head)->body_bytes, message.size() - pg_head_bytes);
  EXPECT_EQ(decode_pg_error(std::string_view(message).substr(pg_head_bytes)).value(), e);
}

TEST(PgError, AlwaysHasSeveritySqlstateAndMessage) {
  EXPECT_EQ(encode_pg_error({}).substr(pg_head_bytes), "S\0V\0C\0M\0\0"sv);
}

TEST(PgError, ANulInATextEndsItThere) {
  const std::string message = encode_pg_error({.severity = "ERROR", .message = std::string("a\0Hforged\0"sv)});
  const auto got = decode_pg_error(std::string_view(message).substr(pg_head_bytes));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->message, "a");
  EXPECT_EQ(got->hint, "");
}

TEST(PgReady, KnowsThreeStates) {
  for (const char status : {'I', 'T', 'E'}) {
    EXPECT_EQ(decode_pg_ready(std::string(1, status)).value(), status);
  }
  for (const std::string_view body : {""sv, "i"sv, "\0"sv, "II"sv, "I\0"sv}) {
    EXPECT_FALSE(decode_pg_ready(body).has_value()) << body;
  }
}

TEST(PgStrings, AreAsManyAsAskedFor) {
  EXPECT_THAT(decode_pg_strings("INSERT 0 1\0"sv, 1).value(), ElementsAre("INSERT 0 1"));
  EXPECT_THAT(decode_pg_strings("TimeZone\0UTC\0"sv, 2).value(), ElementsAre("TimeZone", "UTC"));
  EXPECT_THAT(decode_pg_strings("\0\0"sv, 2).value(), ElementsAre("", ""));
  EXPECT_THAT(decode_pg_strings("", 0).value(), ElementsAre());
  EXPECT_FALSE(decode_pg_strings("a\0b\0"sv, 1).has_value());
  EXPECT_FALSE(decode_pg_strings("a\0"sv, 0).has_value());
  expect_exact("TimeZone\0UTC\0"sv, [](std::string_view body) { return decode_pg_strings(body, 2); });
}

TEST(PgRow, ReadsTextsEmptyTextsAndNulls) {
  const std::string row = "\0\3"s + u32(2) + "ab" + u32(0) + u32(0xFFFF'FFFF);
  EXPECT_THAT(decode_pg_row(row).value(), ElementsAre("ab"sv, ""sv, std::nullopt));
  EXPECT_THAT(decode_pg_row("\0\0"sv).value(), ElementsAre());
  expect_exact(row, decode_pg_row);
}

TEST(PgRow, RefusesLengthsThatLie) {
  for (const std::uint32_t declared : {3U, 0x7FFF'FFFFU, 0x8000'0000U, 0xFFFF'FFFEU, 0xFFFF'FFFDU}) {
    EXPECT_FALSE(decode_pg_row("\0\1"s + u32(declared) + "ab").has_value()) << declared;
  }
  EXPECT_FALSE(decode_pg_row("\xFF\xFF"sv).has_value());
}

TEST(PgMessage, IsHeadAndBody) {
  EXPECT_EQ(encode_pg_message('S', ""), "S\0\0\0\4"sv);
  EXPECT_EQ(encode_pg_message('d', std::string(300, 'x')), "d\0\0\x01\x30"s + std::string(300, 'x'));
  EXPECT_EQ(encode_pg_query("SELECT 1"), "Q\0\0\0\x0DSELECT 1\0"sv);
}

TEST(PgMessageDeathTest, ALengthNeverWraps) {
  // Never read: the length is judged first.
  const std::string_view huge("x", std::size_t{0x7FFF'FFFC});
  EXPECT_DEATH((void)encode_pg_message('d', huge), "");
  const std::string_view wraps("x", std::size_t{0x1'0000'0000});
  EXPECT_DEATH((void)encode_pg_message('d', wraps), "");
  EXPECT_EQ(checked_length(0x7FFF'FFFB, 4), 0x7FFF'FFFF);
}

TEST(PgQuery, IsExactlyOneText) {
  EXPECT_EQ(decode_pg_query("SELECT 1\0"sv).value().sql, "SELECT 1");
  EXPECT_EQ(decode_pg_query("\0"sv).value().sql, "");
  EXPECT_FALSE(decode_pg_query("SELECT 1\0DROP\0"sv).has_value());
  expect_exact("SELECT 1\0"sv, decode_pg_query);
}

TEST(PgParse, IsNameTextAndTypes) {
  const std::string body = "s1\0SELECT $1\0\0\2"s + u32(23) + u32(0);
  const auto got = decode_pg_parse(body);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->name, "s1");
  EXPECT_EQ(got->sql, "SELECT $1");
  expect_exact(body, decode_pg_parse);
  expect_exact("\0\0\0\0"sv, decode_pg_parse);
  EXPECT_FALSE(decode_pg_parse("\0\0\xFF\xFF\0\0\0\0"sv).has_value());
}

TEST(Sasl, TakesOneMechanismOut) {
  const std::string offer = u32(10) + "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"s;
  EXPECT_EQ(without_sasl_mechanism(offer, "SCRAM-SHA-256-PLUS"), u32(10) + "SCRAM-SHA-256\0\0"s);
  EXPECT_EQ(without_sasl_mechanism(offer, "SCRAM-SHA-256"), u32(10) + "SCRAM-SHA-256-PLUS\0\0"s);
  EXPECT_EQ(without_sasl_mechanism(u32(10) + "X\0\0"s, "X"), u32(10) + "\0"s);
}

TEST(Sasl, LeavesAloneWhatIsNoOfferOfIt) {
  const std::string offer = u32(10) + "SCRAM-SHA-256\0\0"s;
  EXPECT_EQ(without_sasl_mechanism(offer, "SCRAM-SHA-256-PLUS"), std::nullopt);
  EXPECT_EQ(without_sasl_mechanism(offer, "SCRAM-SHA-25"), std::nullopt);
  EXPECT_EQ(without_sasl_mechanism(u32(11) + "X\0\0"s, "X"), std::nullopt);
  EXPECT_EQ(without_sasl_mechanism(u32(0), "X"), std::nullopt);
  EXPECT_EQ(without_sasl_mechanism(offer + "x", "SCRAM-SHA-256"), std::nullopt);
  for (std::size_t size = 0; size < offer.size(); ++size) {
    EXPECT_EQ(without_sasl_mechanism(std::string_view(offer).substr(0, size), "SCRAM-SHA-256"), std::nullopt) << size;
  }
}

}  // namespace
}  // namespace fencegate::wire
