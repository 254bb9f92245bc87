#include "wire/http_framing.hpp"

#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using kind = http_framing::kind;

// "none", "length 5", "chunked", "until close", followed by "!" when the connection is over; or the status of the error.
std::string named(const http_result<http_framing>& framing) {
  if (!framing) return std::to_string(framing.error().status);
  const auto end = framing->reusable ? ""s : "!"s;
  switch (framing->what) {
    case kind::none: return "none" + end;
    case kind::length: return "length " + std::to_string(framing->length) + end;
    case kind::chunked: return "chunked" + end;
    case kind::until_close: return "until close" + end;
  }
  return "";
}

std::string of_request(const std::string& fields, const std::string& version = "1.1") {
  const auto bytes = "PUT / HTTP/" + version + "\r\nHost: a\r\n" + fields + "\r\n";
  http_request_head head;
  const auto parsed = parse_request_head(bytes, head);
  EXPECT_TRUE(parsed) << fields;
  return named(request_framing(head));
}

std::string of_response(int status, const std::string& fields, const std::string& method = "GET",
                        const std::string& version = "1.1") {
  const auto bytes = "HTTP/" + version + " " + std::to_string(status) + " x\r\n" + fields + "\r\n";
  http_response_head head;
  const auto parsed = parse_response_head(bytes, head);
  EXPECT_TRUE(parsed) << fields;
  return named(response_framing(head, method));
}

TEST(HttpRequestFraming, SaysWhereABodyEnds) {
  EXPECT_EQ(of_request(""), "none");
  EXPECT_EQ(of_request("Content-Length: 0\r\n"), "length 0");
  EXPECT_EQ(of_request("content-length: 5\r\n"), "length 5");
  EXPECT_EQ(of_request("Content-Length: 007\r\n"), "length 7");
  EXPECT_EQ(of_request("Content-Length: 9223372036854775807\r\n"), "length 9223372036854775807");
  EXPECT_EQ(of_request("Transfer-Encoding: chunked\r\n"), "chunked");
  EXPECT_EQ(of_request("transfer-encoding: CHUNKED\r\n"), "chunked");
  EXPECT_EQ(of_request("Content-Length: 5\r\n", "1.0"), "length 5");
}

TEST(HttpRequestFraming, RefusesWhatCouldBeReadTwoWays) {
  for (const auto* fields :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"}) {
    EXPECT_EQ(of_request(fields), "400") << fields;
  }
}

TEST(HttpRequestFraming, LengthsAreDigits) {
  for (const auto* value : {"", "+5", "-5", "0x5", "5_0", "5 0", "5,5", "5, 5", "5;", "5.0", "1e3", "five", "\"5\"",
                            "9223372036854775808", "18446744073709551621", "00000000000000000005", "\xb2"}) {
    EXPECT_EQ(of_request("Content-Length: "s + value + "\r\n"), "400") << value;
  }
}

TEST(HttpRequestFraming, TheOnlyCodingIsChunkedOnce) {
  for (const auto* value : {"", "identity", "gzip, chunked", "chunked, gzip", "chunked, chunked", "chunked,",
                            ",chunked", "xchunked", "chunked;q=1", "\"chunked\"", "chunked chunked"}) {
    EXPECT_EQ(of_request("Transfer-Encoding: "s + value + "\r\n"), "400") << value;
  }
  EXPECT_EQ(of_request("Transfer-Encoding: chunked\r\n", "1.0"), "400");
}

TEST(HttpResponseFraming, SaysWhereABodyEnds) {
  EXPECT_EQ(of_response(200, "Content-Length: 5\r\n"), "length 5");
  EXPECT_EQ(of_response(200, "Transfer-Encoding: chunked\r\n"), "chunked");
  EXPECT_EQ(of_response(200, ""), "until close!");
  EXPECT_EQ(of_response(500, "", "PUT", "1.0"), "until close!");
  EXPECT_EQ(of_response(205, "Content-Length: 0\r\n"), "length 0");
}

TEST(HttpResponseFraming, KnowsWhichResponsesHaveNone) {
  EXPECT_EQ(of_response(200, "Content-Length: 5\r\n", "HEAD"), "none");
  EXPECT_EQ(of_response(200, "Transfer-Encoding: chunked\r\n", "HEAD"), "none");
  EXPECT_EQ(of_response(200, "", "HEAD"), "none");
  EXPECT_EQ(of_response(304, "Content-Length: 5\r\n"), "none");
  EXPECT_EQ(of_response(204, ""), "none");
  EXPECT_EQ(of_response(204, "Content-Length: 0\r\n"), "none");
  EXPECT_EQ(of_response(100, ""), "none");
  EXPECT_EQ(of_response(103, "Link: </a>\r\n"), "none");
}

TEST(HttpResponseFraming, EndsAConnectionThatAnnouncesWhatMayNotCome) {
  EXPECT_EQ(of_response(204, "Content-Length: 5\r\n"), "none!");
  EXPECT_EQ(of_response(204, "Transfer-Encoding: chunked\r\n"), "none!");
  EXPECT_EQ(of_response(100, "Content-Length: 5\r\n"), "none!");
}

TEST(HttpResponseFraming, ErrorsAreBadGateway) {
  for (const auto* method : {"GET", "HEAD"}) {
    EXPECT_EQ(of_response(200, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", method), "502");
    EXPECT_EQ(of_response(200, "Content-Length: 5\r\nContent-Length: 5\r\n", method), "502");
    EXPECT_EQ(of_response(200, "Content-Length: -1\r\n", method), "502");
    EXPECT_EQ(of_response(200, "Transfer-Encoding: gzip\r\n", method), "502");
    EXPECT_EQ(of_response(200, "Transfer-Encoding: chunked\r\n", method, "1.0"), "502");
    EXPECT_EQ(of_response(101, "Upgrade: h2c\r\n", method), "502");
  }
}

TEST(HttpFraming, IsWrittenAsOneFieldOrNone) {
  const auto written = [](const http_framing& framing) {
    std::string out;
    append_framing_field(out, framing);
    return out;
  };
  EXPECT_EQ(written({}), "");
  EXPECT_EQ(written({.what = kind::until_close}), "");
  EXPECT_EQ(written({.what = kind::length, .length = 0}), "Content-Length: 0\r\n");
  EXPECT_EQ(written({.what = kind::chunked}), "Transfer-Encoding: chunked\r\n");
}

}  // namespace
}  // namespace fencegate::wire
