#include "wire/pg_opening.hpp"

#include "wire/pg_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using kind = pg_opening::kind;
using testing::HasSubstr;
using parameters = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint32_t version_3_0 = 3 << 16;
constexpr std::uint32_t cancel_code = 80877102;
constexpr std::uint32_t ssl_code = 80877103;
constexpr std::uint32_t gss_code = 80877104;

// A packet with its length.
std::string packet(std::uint32_t code, std::string_view body = {}) {
  std::string out;
  append_u32(out, static_cast<std::uint32_t>(8 + body.size()));
  append_u32(out, code);
  return out + std::string(body);
}

std::string head(std::uint32_t length, std::uint32_t code) {
  std::string out;
  append_u32(out, length);
  append_u32(out, code);
  return out;
}

std::string failure(std::string_view input) {
  const auto got = decode_pg_opening(input);
  return got ? "accepted" : got.error().message;
}

// Every beginning asks for more, the whole is understood, what follows is not looked at.
pg_opening decode_at_every_size(const std::string& input) {
  for (std::size_t size = 0; size < input.size(); ++size) {
    const auto got = decode_pg_opening(std::string_view(input).substr(0, size));
    EXPECT_TRUE(got.has_value() && !got->has_value()) << size;
  }
  const auto got = decode_pg_opening(input + "\x16 more");
  EXPECT_TRUE(got.has_value() && got->has_value());
  EXPECT_EQ((*got)->bytes, input.size());
  return got.value().value();
}

TEST(PgOpening, ReadsAStart) {
  const parameters sent{{"user", "app"}, {"_pq_.compression", "on"}, {"options", ""}, {"user", "other"}};
  const pg_opening got = decode_at_every_size(encode_pg_start(version_3_0, sent));
  EXPECT_EQ(got.what, kind::start);
  EXPECT_EQ(got.version, version_3_0);
  EXPECT_EQ(got.parameters, sent);
}

TEST(PgOpening, TakesAnyMinorOfThree) {
  for (const std::uint32_t minor : {0U, 2U, 9999U, 0xFFFFU}) {
    EXPECT_EQ(decode_at_every_size(encode_pg_start(version_3_0 | minor, {})).version, version_3_0 | minor);
  }
}

TEST(PgOpening, KnowsTheThreeRequests) {
  EXPECT_EQ(decode_at_every_size(packet(ssl_code)).what, kind::ssl);
  EXPECT_EQ(decode_at_every_size(packet(gss_code)).what, kind::gss);
  for (const std::size_t key : {4, 32, 256}) {
    const auto cancel = decode_at_every_size(packet(cancel_code, std::string(4 + key, '\xFF')));
    EXPECT_EQ(cancel.what, kind::cancel) << key;
    EXPECT_EQ(cancel.session, std::string(4 + key, '\xFF'));
  }
}

TEST(PgOpening, RequestsHaveTheirLengths) {
  // Judged by the head alone.
  for (const std::uint32_t length : {8U, 12U, 15U, 269U, 10'000U}) {
    EXPECT_THAT(failure(head(length, cancel_code)), HasSubstr("a CancelRequest of " + std::to_string(length)));
  }
  EXPECT_THAT(failure(head(9, ssl_code)), HasSubstr("an SSLRequest of 9"));
  EXPECT_THAT(failure(head(12, gss_code)), HasSubstr("a GSSENCRequest of 12"));
}

TEST(PgOpening, IsKnownByItsFirstBytes) {
  EXPECT_EQ(kind_of_pg_opening(head(8, ssl_code)), kind::ssl);
  EXPECT_EQ(kind_of_pg_opening(head(8, gss_code)), kind::gss);
  EXPECT_EQ(kind_of_pg_opening(head(16, cancel_code)), kind::cancel);
  EXPECT_EQ(kind_of_pg_opening(head(8, cancel_code)), std::nullopt);
  EXPECT_EQ(kind_of_pg_opening(head(100, version_3_0)), kind::start);
  EXPECT_EQ(kind_of_pg_opening("GET / HT"), std::nullopt);
}

TEST(PgOpening, RefusesOtherProtocols) {
  EXPECT_THAT(failure(head(296, 2 << 16)), HasSubstr("protocol 2.0"));
  EXPECT_THAT(failure(head(8, 0)), HasSubstr("protocol 0.0"));
  EXPECT_THAT(failure(head(8, 4 << 16)), HasSubstr("protocol 4.0"));
  EXPECT_THAT(failure(head(8, cancel_code - 1)), HasSubstr("protocol 1234.5677"));
  EXPECT_THAT(failure(head(8, 0xFFFF'FFFF)), HasSubstr("protocol 65535.65535"));
}

TEST(PgOpening, NamesTlsAtItsFirstByte) {
  EXPECT_THAT(failure("\x16"), HasSubstr("TLS"));
  EXPECT_THAT(failure("\x16\x03\x01\x02"sv), HasSubstr("TLS"));
}

TEST(PgOpening, NamesHttpAtItsFourthByte) {
  for (const std::string_view request : {"GET / HTTP/1.1\r\n", "POST /", "PUT /", "HEAD", "DELETE /", "OPTIONS *",
                                         "PATCH /", "CONNECT x:1", "TRACE /", "PRI * HTTP/2.0"}) {
    for (std::size_t size = 0; size < 4; ++size) {
      EXPECT_EQ(failure(request.substr(0, size)), "accepted") << request;  // as far as one can see
    }
    EXPECT_THAT(failure(request.substr(0, 4)), HasSubstr("HTTP")) << request;
    EXPECT_THAT(failure(request), HasSubstr("HTTP")) << request;
  }
}

TEST(PgOpening, RefusesLengthsAtTheFourthByte) {
  for (const std::uint32_t length : {0U, 4U, 7U, 10'001U, 0x7FFF'FFFFU, 0x8000'0000U, 0xFFFF'FFFFU}) {
    EXPECT_THAT(failure(head(length, version_3_0).substr(0, 4)), HasSubstr("declares " + std::to_string(length)));
  }
  EXPECT_EQ(failure(head(10'000, version_3_0)), "accepted");
}

TEST(PgOpening, ReadsTheLongestStart) {
  const parameters sent{{"user", std::string(10'000 - 8 - 7, 'x')}};
  const std::string longest = encode_pg_start(version_3_0, sent);
  ASSERT_EQ(longest.size(), 10'000);
  const auto got = decode_pg_opening(longest);
  ASSERT_TRUE(got.has_value() && got->has_value());
  EXPECT_EQ((*got)->parameters, sent);
}

TEST(PgOpening, RefusesParametersThatDoNotEndAsTheyShould) {
  for (const std::string_view body : {""sv, "user"sv, "user\0"sv, "user\0app"sv, "user\0app\0"sv}) {
    EXPECT_THAT(failure(packet(version_3_0, body)), HasSubstr("without its")) << body;
  }
  for (const std::string_view body : {"\0x\0\0"sv, "user\0app\0\0\0"sv, "user\0app\0\0options\0x\0\0"sv}) {
    EXPECT_THAT(failure(packet(version_3_0, body)), HasSubstr("bytes behind its terminator")) << body;
  }
}

TEST(PgOpening, ANulEndsTheTextsOfAStart) {
  const std::string start = encode_pg_start(version_3_0, {{"user", "app\0options\0-c x=y"s}});
  EXPECT_EQ(decode_at_every_size(start).parameters, (parameters{{"user", "app"}}));
}

// All of these were asked of PostgreSQL 15.
TEST(PgOpening, TheLastParameterOfANameCounts) {
  const pg_opening got{.parameters = {{"options", "a"},
                                      {"options", "b"},
                                      {"OPTIONS", "c"},
                                      {"application_name", "d"},
                                      {"APPLICATION_NAME", "e"},
                                      {"_PQ_.x", "f"}}};
  EXPECT_EQ(got.parameter("options"), "b");
  EXPECT_EQ(got.parameter("application_name"), "e");
  EXPECT_EQ(got.parameter("_pq_.x"), std::nullopt);
  EXPECT_EQ(got.parameter("user"), std::nullopt);
  EXPECT_EQ(got.parameter("application-name"), std::nullopt);
}

}  // namespace
}  // namespace fencegate::wire
