#include "wire/http_chunks.hpp"

#include "base/limits.hpp"
#include "unit/wire/split_input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using status = http_chunk_decoder::step::status;

// The body, followed by "|" and what was left over when it is complete; "…" when more is to come; the error in brackets.
std::string decoded(const std::vector<std::string_view>& pieces) {
  http_chunk_decoder decoder;
  std::string body;
  std::string left;
  bool over = false;
  for (std::string_view piece : pieces) {
    while (!over && !piece.empty()) {
      const auto got = decoder.advance(piece);
      EXPECT_LE(got.consumed, piece.size());
      EXPECT_GT(got.consumed, 0U);
      if (got.what == status::malformed) return body + "[" + std::string(got.message) + "]";
      body += got.data;
      piece.remove_prefix(got.consumed);
      over = got.what == status::complete;
    }
    left += piece;
  }
  return body + (over ? "|" + left : "…");
}

std::string decoded_at_every_split(std::string_view input) {
  const auto whole = decoded({input});
  test::for_each_split(input, [&](const auto& pieces) { EXPECT_EQ(decoded(pieces), whole); });
  return whole;
}

bool is_malformed(std::string_view input) { return decoded_at_every_split(input).ends_with(']'); }

TEST(HttpChunks, GivesTheBody) {
  EXPECT_EQ(decoded_at_every_split("5\r\nhello\r\n0\r\n\r\n"), "hello|");
  EXPECT_EQ(decoded_at_every_split("0\r\n\r\n"), "|");
  EXPECT_EQ(decoded_at_every_split("2\r\na\r\r\n1\r\n\n\r\n0\r\n\r\nGET /"), "a\r\n|GET /");
  EXPECT_EQ(decoded_at_every_split("a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n"), "01234567890123456789|");
  EXPECT_EQ(decoded_at_every_split("0000000000000001\r\nx\r\n"), "x…");
}

TEST(HttpChunks, DropsExtensionsAndTrailers) {
  EXPECT_EQ(decoded_at_every_split("1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n"), "x|");
  EXPECT_EQ(decoded_at_every_split("1\r\nx\r\n0\r\nA: b\r\nFencing-Token: 99\r\nC:\r\n\r\n"), "x|");
}

// The trailers of a body whose decoder keeps them.
std::string trailers_at_every_split(std::string_view input) {
  const auto kept = [](const auto& pieces) {
    http_chunk_decoder decoder;
    decoder.keep_trailers();
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        const auto got = decoder.advance(piece);
        if (got.what == status::complete) return std::string(decoder.trailers());
        if (got.what == status::malformed) return "[" + std::string(got.message) + "]";
        piece.remove_prefix(got.consumed);
      }
    }
    return "…"s;
  };
  const auto whole = kept(std::vector{input});
  test::for_each_split(input, [&](const auto& pieces) { EXPECT_EQ(kept(pieces), whole); });
  return whole;
}

TEST(HttpChunks, KeepsTrailersWhereTheyAreWanted) {
  EXPECT_EQ(trailers_at_every_split("1\r\nx\r\n0;z\r\nA: b\r\nC:\r\n\r\n0\r\nD: e\r\n\r\n"), "A: b\r\nC:\r\n");
  EXPECT_EQ(trailers_at_every_split("3\r\nA:b\r\n0\r\n\r\n"), "");
  EXPECT_EQ(trailers_at_every_split("0\r\nA: b\r\n"), "…");
  for (const auto input : {"0\r\n A: b\r\n\r\n"sv, "0\r\nA: b\r\n c\r\n\r\n"sv, "0\r\nA: b\n\r\n"sv,
                           "0\r\nA: \0\r\n\r\n"sv, "0\r\nA : b\r\n\r\n"sv, "0\r\nA: b\r\nC\r\n\r\n"sv}) {
    EXPECT_THAT(trailers_at_every_split(input), testing::StartsWith("[")) << input;
  }
}

TEST(HttpChunks, SizesAreHexadecimalDigits) {
  for (const auto input :
       {"\r\n"sv, "+1\r\nx"sv, "-1\r\nx"sv, "0x1\r\nx"sv, " 1\r\nx"sv, "1 \r\nx"sv, "1\t\r\nx"sv, "1_0\r\nx"sv,
        "g\r\nx"sv, ";a\r\nx"sv, "1\nx"sv, "1\rx"sv, "1\0\r\nx"sv, "\xb2\r\n"sv, "1 ;a\r\nx"sv,
        "8000000000000000\r\n"sv, "ffffffffffffffff\r\n"sv, "00000000000000001\r\nx"sv, "10000000000000001\r\nx"sv}) {
    EXPECT_TRUE(is_malformed(input)) << input;
  }
  EXPECT_EQ(decoded_at_every_split("7fffffffffffffff\r\nx"), "x…");
}

TEST(HttpChunks, LineEndsAreCrLf) {
  for (const auto input :
       {"1\r\nx\n0\r\n\r\n"sv, "1\r\nx0\r\n\r\n"sv, "1\r\nx\r0\r\n\r\n"sv, "1\r\nxy\r\n0\r\n\r\n"sv, "0\n\n"sv,
        "0\r\n\n"sv, "0\r\n\rx"sv, "1;a\nx"sv, "1;a\rb\r\nx"sv, "0\r\nA: b\n\r\n"sv, "0\r\nA: b\rc\r\n\r\n"sv}) {
    EXPECT_TRUE(is_malformed(input)) << input;
  }
}

TEST(HttpChunks, ExtensionsAndTrailersAreStrict) {
  for (const auto input :
       {"1;\0\r\nx"sv, "1;\x7f\r\nx"sv, "1;\xc3\xa4\r\nx"sv, "0\r\n A: b\r\n\r\n"sv, "0\r\n: b\r\n\r\n"sv,
        "0\r\nA : b\r\n\r\n"sv, "0\r\nA\r\n\r\n"sv, "0\r\nA: \0\r\n\r\n"sv, "0\r\nA: b\r\n c\r\n\r\n"sv}) {
    EXPECT_TRUE(is_malformed(input)) << input;
  }
}

TEST(HttpChunks, ExtensionsAndTrailersAreBounded) {
  const auto extended = [](std::size_t bytes) { return "1;" + std::string(bytes, 'e') + "\r\nx\r\n"; };
  const auto last = "0\r\n\r\n"s;
  constexpr auto of_one = limits::http_chunk_extension_bytes_max;
  EXPECT_EQ(decoded({extended(of_one) + last}), "x|");
  EXPECT_NE(decoded({extended(of_one + 1) + last}), "x|");

  std::string chunks;
  for (std::size_t left = limits::http_chunk_extensions_bytes_max; left > 0; left -= of_one) chunks += extended(of_one);
  EXPECT_TRUE(decoded({chunks + last}).ends_with('|'));
  EXPECT_TRUE(decoded({chunks + extended(1) + last}).ends_with(']'));

  const auto trailer = [](std::size_t bytes) { return "0\r\nA:" + std::string(bytes - 5, 'b') + "\r\n\r\n"; };
  EXPECT_EQ(decoded({trailer(limits::http_trailer_bytes_max)}), "|");
  EXPECT_TRUE(decoded({trailer(limits::http_trailer_bytes_max + 1)}).ends_with(']'));

  std::string most = "0\r\n";
  for (std::size_t i = 0; i < limits::http_fields_max; ++i) most += "A:\r\n";
  EXPECT_EQ(decoded({most + "\r\n"}), "|");
  EXPECT_TRUE(decoded({most + "A:\r\n\r\n"}).ends_with(']'));
}

TEST(HttpChunks, WhatGoesOutCanBeReadBack) {
  std::string out;
  for (const std::size_t size : {1, 15, 16, 4096}) {
    append_chunk_head(out, size);
    out += std::string(size, 'x');
    out += http_chunk_end;
  }
  out.append(http_last_chunk).append("\r\n");
  EXPECT_EQ(decoded({out}), std::string(1 + 15 + 16 + 4096, 'x') + "|");
  out.clear();
  append_chunk_head(out, UINT64_MAX);
  EXPECT_EQ(out, "ffffffffffffffff\r\n");
}

}  // namespace
}  // namespace fencegate::wire
