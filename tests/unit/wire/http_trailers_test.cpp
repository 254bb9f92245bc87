#include "wire/http_trailers.hpp"

#include <gtest/gtest.h>

#include <array>

namespace fencegate::wire {
namespace {

constexpr std::array<std::string_view, 2> fence_fields{"Order-Token", "X-Fencing-Token"};
constexpr std::array<std::string_view, 1> listed{"X-Hop"};
constexpr http_trailer_rules rules{fence_fields, listed};

bool wants(const std::string& fields, const std::string& line = "GET / HTTP/1.1") {
  const auto bytes = line + "\r\nHost: a\r\n" + fields + "\r\n";
  http_request_head head;
  EXPECT_TRUE(parse_request_head(bytes, head)) << bytes;
  return wants_trailers(head);
}

TEST(HttpTrailers, AreForWhoSaysSo) {
  for (const auto* value : {"trailers", "Trailers", "gzip;q=0.5, trailers", ",trailers,", "deflate,\ttrailers "})
    EXPECT_TRUE(wants("TE: " + std::string(value) + "\r\n")) << value;
  EXPECT_TRUE(wants("te: gzip\r\nTE: trailers\r\nConnection: TE\r\n"));
  for (const auto* value : {"", "gzip", "trailers;q=0", "trailers;q=1", "x-trailers", "trailer", "trailers gzip",
                            "a;b=\"x, trailers, y\"", "trailers, a;b=\"\""})
    EXPECT_FALSE(wants("TE: " + std::string(value) + "\r\n")) << value;
  EXPECT_FALSE(wants(""));
  EXPECT_FALSE(wants("T_E: trailers\r\nTrailer: trailers\r\n"));
  EXPECT_FALSE(wants("TE: trailers\r\n", "GET / HTTP/1.0"));
}

TEST(HttpTrailers, WhatMeansSomethingInAHeadIsNone) {
  for (const auto* name : {"Transfer-Encoding",
                           "Content-Length",
                           "Host",
                           "Connection",
                           "Keep-Alive",
                           "Proxy-Connection",
                           "TE",
                           "Trailer",
                           "Upgrade",
                           "Max-Forwards",
                           "Authorization",
                           "WWW-Authenticate",
                           "Proxy-Authenticate",
                           "Authentication-Info",
                           "Cookie",
                           "Set-Cookie",
                           "If-Match",
                           "If-None-Match",
                           "Range",
                           "Expect",
                           "Accept-Encoding",
                           "Cache-Control",
                           "Expires",
                           "Date",
                           "Age",
                           "Location",
                           "Retry-After",
                           "Vary",
                           "Warning",
                           "Pragma",
                           "Content-Type",
                           "Content-Encoding",
                           "Content-Range",
                           "Content-Location",
                           "Access-Control-Allow-Origin",
                           "Sec-WebSocket-Accept",
                           "Strict-Transport-Security",
                           "content_length",
                           "TRANSFER_ENCODING",
                           "set_cookie",
                           "IF_MATCH"}) {
    EXPECT_FALSE(may_be_trailer(name, rules)) << name;
  }
}

TEST(HttpTrailers, WhatTheGateOrTheFenceWritesOrReadsIsNone) {
  for (const auto* name :
       {"Fencing-Mark", "Fencing-Token", "X-Fencing-Token", "fencing_mark", "Fencing-Anything", "Via", "Forwarded",
        "X-Forwarded-For", "x_forwarded_host", "X-Real-IP", "Order-Token", "order_token", "X-Hop", "x_hop"}) {
    EXPECT_FALSE(may_be_trailer(name, rules)) << name;
  }
  EXPECT_TRUE(may_be_trailer("Order-Token", {}));
}

TEST(HttpTrailers, WhatIsKnownOnlyAtTheEndIsOne) {
  for (const auto* name : {"Server-Timing", "Content-Digest", "Repr-Digest", "Content-MD5", "ETag", "Accept-Ranges",
                           "grpc-status", "X-Checksum", "Fence", "Contents", "I", "X"}) {
    EXPECT_TRUE(may_be_trailer(name, rules)) << name;
  }
}

TEST(HttpTrailers, LinesAreWrittenAnew) {
  std::string out;
  append_trailers(
      out, "X-Sum:1\r\nfencing_mark: 99\r\nX-HOP: 1\r\nContent-Length: 0\r\nB: \t c d \r\nE:\r\nX-Sum: 2\r\n", rules);
  EXPECT_EQ(out, "X-Sum: 1\r\nB: c d\r\nE: \r\nX-Sum: 2\r\n");
  out.clear();
  append_trailers(out, "", rules);
  EXPECT_EQ(out, "");
}

std::string names_of(std::vector<header_field> fields) {
  std::string out;
  append_trailer_names(out, fields, rules);
  return out;
}

TEST(HttpTrailers, OnlyNamesOfThoseThatGoOnAreAnnounced) {
  EXPECT_EQ(names_of({{"Trailer", "X-Sum, Expires,, x_hop"}, {"A", "b"}, {"trailer", "B"}}), "Trailer: X-Sum, B\r\n");
  EXPECT_EQ(names_of({{"Trailer", "Fencing-Mark"}}), "");
  EXPECT_EQ(names_of({{"Trailer", ""}}), "");
  EXPECT_EQ(names_of({{"Trailer", "X-Sum"}, {"Trailer", "a b"}}), "");
  EXPECT_EQ(names_of({{"Trailer", "X-Sum, \"B\""}}), "");
  EXPECT_EQ(names_of({{"Trailers", "X-Sum"}}), "");
}

}  // namespace
}  // namespace fencegate::wire
