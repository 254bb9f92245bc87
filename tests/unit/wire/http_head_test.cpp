#include "wire/http_head.hpp"

#include "base/limits.hpp"
#include "unit/wire/split_input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using side = http_head_finder::side;
using testing::HasSubstr;

// "begin..end", "more", or the status of the error.
std::string found(side of, const std::vector<std::string_view>& pieces) {
  http_head_finder finder(of);
  std::string input;
  for (const auto piece : pieces) {
    input += piece;
    const auto got = finder.find(input);
    if (!got) return std::to_string(got.error().status);
    if (*got) return std::to_string((*got)->begin) + ".." + std::to_string((*got)->end);
  }
  return "more";
}

std::string found(side of, std::string_view input) { return found(of, std::vector{input}); }

int status_of(std::string_view bytes) {
  http_request_head head;
  const auto parsed = parse_request_head(bytes, head);
  return parsed ? 0 : parsed.error().status;
}

int status_of_line(std::string_view line) { return status_of(std::string(line) + "\r\nHost: a\r\n\r\n"); }

int status_of_field(std::string_view field) {
  return status_of("GET / HTTP/1.1\r\nHost: a\r\n" + std::string(field) + "\r\n\r\n");
}

bool reads_response(std::string_view line) {
  http_response_head head;
  const auto parsed = parse_response_head(std::string(line) + "\r\nA: b\r\n\r\n", head);
  if (!parsed) {
    EXPECT_EQ(parsed.error().status, 502);
  }
  return parsed.has_value();
}

TEST(HttpHeadFinder, FindsTheEndAtEverySplit) {
  const auto head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"s;
  for (const auto& input : {head, head + "GET /next HTTP/1.1\r\n\r\n"}) {
    test::for_each_split(input, [&](const auto& pieces) {
      EXPECT_EQ(found(side::request, pieces), "0.." + std::to_string(head.size()));
    });
  }
  for (std::size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(found(side::request, std::string_view(head).substr(0, size)), "more") << size;
  }
}

TEST(HttpHeadFinder, FindsOneHeadBehindTheOther) {
  http_head_finder finder(side::response);
  const auto first = "HTTP/1.1 100 Continue\r\n\r\n"sv;
  const auto second = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"sv;
  EXPECT_EQ(finder.find(std::string(first) + std::string(second)).value()->end, first.size());
  EXPECT_EQ(finder.find(second).value()->end, second.size());
}

TEST(HttpHeadFinder, IgnoresOneEmptyLineBeforeARequest) {
  test::for_each_split("\r\nGET / HTTP/1.1\r\n\r\n",
                       [](const auto& pieces) { EXPECT_EQ(found(side::request, pieces), "2..20"); });
  test::for_each_split("\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                       [](const auto& pieces) { EXPECT_EQ(found(side::request, pieces), "400"); });
  EXPECT_EQ(found(side::response, "\r\nHTTP/1.1 200 OK\r\n\r\n"), "502");
}

TEST(HttpHeadFinder, SeesEarlyWhatWillNeverBeAHead) {
  for (const auto input : {"GET / HTTP/1.1\n"sv, "\n"sv, "\rG"sv, "\x16\x03\x01"sv, " GET"sv, "\0"sv,
                           "GET / HTTP/1.1\r\nHost: a\n"sv, "GET / HTTP/1.1\r\n\n"sv}) {
    test::for_each_split(input, [](const auto& pieces) { EXPECT_EQ(found(side::request, pieces), "400"); });
  }
  EXPECT_EQ(found(side::response, "SSH-2.0"), "502");
  EXPECT_EQ(found(side::response, "HTTP/1.1 200 OK\n"), "502");
}

TEST(HttpHeadFinder, BoundsHeadAndRequestLine) {
  const auto line = "GET / HTTP/1.1\r\nA: "s;
  const auto filled = line + std::string(limits::http_head_bytes_max - line.size() - 4, 'x');
  EXPECT_EQ(found(side::request, filled + "\r\n\r\n"), "0.." + std::to_string(limits::http_head_bytes_max));
  EXPECT_EQ(found(side::request, filled + "x\r\n\r\n"), "431");
  EXPECT_EQ(found(side::request, filled + "xxxxx"), "431");
  EXPECT_EQ(found(side::request, "GET /" + std::string(limits::http_target_bytes_max + 64, 'x')), "414");
  EXPECT_EQ(found(side::response, "HTTP/1.1 200 " + std::string(limits::http_head_bytes_max, 'x')), "502");
}

TEST(HttpRequestHead, IsReadWhole) {
  http_request_head head;
  ASSERT_TRUE(
      parse_request_head("M-SEARCH /a?b HTTP/1.0\r\nHOST:  a.example:80 \t\r\nX:\r\ny_z: \xff b\r\n\r\n"sv, head));
  EXPECT_EQ(head.method, "M-SEARCH");
  EXPECT_EQ(head.target, "/a?b");
  EXPECT_EQ(head.minor, 0);
  EXPECT_EQ(head.host, "a.example:80");
  ASSERT_EQ(head.fields.size(), 3U);
  EXPECT_EQ(head.fields[0].name, "HOST");
  EXPECT_EQ(head.fields[1].value, "");
  EXPECT_EQ(head.fields[2].name, "y_z");
  EXPECT_EQ(head.fields[2].value, "\xff b");
  EXPECT_EQ(find_field(head.fields, "Y_Z"), &head.fields[2]);
  EXPECT_EQ(find_field(head.fields, "y-z"), nullptr);

  ASSERT_TRUE(parse_request_head("GET / HTTP/1.1\r\nHost: b\r\n\r\n", head));
  EXPECT_EQ(head.fields.size(), 1U) << "nothing is left of the head before";
  EXPECT_EQ(head.host, "b");
}

TEST(HttpRequestHead, RequestLineIsStrict) {
  EXPECT_EQ(status_of_line("GET / HTTP/1.1"), 0);
  for (const auto line : {"GET  / HTTP/1.1"sv, "GET /  HTTP/1.1"sv, "GET / HTTP/1.1 "sv, "GET\t/ HTTP/1.1"sv, "GET /"sv,
                          "GET"sv, " GET / HTTP/1.1"sv, "GET / a HTTP/1.1"sv, "GET /\0 HTTP/1.1"sv,
                          "GET /\xc3\xa4 HTTP/1.1"sv, "G(T / HTTP/1.1"sv, "GET / HTTP/1.1\r"sv, "GET / http/1.1"sv,
                          "GET / HTTP/11"sv, "GET / HTTP/1.x"sv, "GET / HTTP/1.10"sv, "GET / HTTPS/1.1"sv, ""sv}) {
    EXPECT_EQ(status_of_line(line), 400) << line;
  }
  for (const auto line : {"GET / HTTP/2.0"sv, "GET / HTTP/1.2"sv, "GET / HTTP/0.9"sv, "PRI * HTTP/2.0"sv}) {
    EXPECT_EQ(status_of_line(line), 505) << line;
  }
  EXPECT_EQ(status_of_line("put / HTTP/1.1"), 501);
  EXPECT_EQ(status_of_line(std::string(limits::http_method_bytes_max, 'A') + " / HTTP/1.1"), 0);
  EXPECT_EQ(status_of_line(std::string(limits::http_method_bytes_max + 1, 'A') + " / HTTP/1.1"), 501);
  EXPECT_EQ(status_of_line("GET /" + std::string(limits::http_target_bytes_max - 1, 'x') + " HTTP/1.1"), 0);
  EXPECT_EQ(status_of_line("GET /" + std::string(limits::http_target_bytes_max, 'x') + " HTTP/1.1"), 414);
}

TEST(HttpRequestHead, FieldsAreStrict) {
  for (const auto field : {"A: b"sv, "A:b"sv, "A:\tb\t"sv, "!#$%&'*+-.^_`|~9: b"sv, "A: b:c"sv}) {
    EXPECT_EQ(status_of_field(field), 0) << field;
  }
  for (const auto field :
       {"A : b"sv, "A\t: b"sv, ": b"sv, "A"sv, " A: b"sv, "\tA: b"sv, "A: b\r\n c"sv, "A: \0"sv, "A: b\rc"sv,
        "A: \x7f"sv, "A: \x1b"sv, "A(: b"sv, "\xc3\xa4: b"sv, "A: b\nB: c"sv, "A: b\r\r"sv, "\r"sv}) {
    EXPECT_EQ(status_of_field(field), 400) << field;
  }
}

TEST(HttpRequestHead, BoundsTheNumberOfFields) {
  std::string fields;
  for (std::size_t i = 0; i + 2 < limits::http_fields_max; ++i) fields += "A: b\r\n";
  EXPECT_EQ(status_of_field(fields + "A: b"), 0);
  EXPECT_EQ(status_of_field(fields + "A: b\r\nA: b"), 431);
}

TEST(HttpRequestHead, WantsOneHost) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
}

TEST(HttpRequestHead, HeadsEndOnce) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\n\r\nmore"), 400);
  EXPECT_EQ(status_of(""), 400);
}

TEST(HttpHost, IsANameOrAnAddress) {
  for (const auto host :
       {"a"sv, "a.example:80"sv, "192.0.2.1"sv, "[::1]"sv, "[2001:db8::1]:8080"sv, "my_host"sv, "a:"sv}) {
    EXPECT_TRUE(is_http_host(host)) << host;
  }
  for (const auto host : {""sv, ":80"sv, "a:b"sv, "a:80:80"sv, "u@a"sv, "a/b"sv, "a,b"sv, "a%41"sv, "[::1"sv, "[]"sv,
                          "[abc]"sv, "[::1]x"sv, "[::g]"sv, "a:123456"sv, "a:+1"sv, "a#"sv, "a?"sv, "\xc3\xa4"sv}) {
    EXPECT_FALSE(is_http_host(host)) << host;
  }
}

TEST(HttpResponseHead, IsReadWhole) {
  http_response_head head;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 404 Not  Found\r\nA: b\r\n\r\n", head));
  EXPECT_EQ(head.status, 404);
  EXPECT_EQ(head.reason, "Not  Found");
  EXPECT_EQ(head.minor, 1);
  EXPECT_EQ(head.fields.size(), 1U);
}

TEST(HttpResponseHead, StatusLineIsStrict) {
  for (const auto line : {"HTTP/1.0 200 OK"sv, "HTTP/1.1 200 "sv, "HTTP/1.1 200"sv, "HTTP/1.1 599 \xe4"sv}) {
    EXPECT_TRUE(reads_response(line)) << line;
  }
  for (const auto line : {"HTTP/1.1  200 OK"sv, "HTTP/1.1 20 OK"sv, "HTTP/1.1 2000 OK"sv, "HTTP/1.1 099 OK"sv,
                          "HTTP/1.1 600 OK"sv, "HTTP/1.1 +20 OK"sv, "HTTP/1.1 200\tOK"sv, "HTTP/2.0 200 OK"sv,
                          "HTTP/1.2 200 OK"sv, "HTTP/1.1"sv, "HTTP/1.1 "sv, "HTTP/1.1200 OK"sv, "http/1.1 200 OK"sv,
                          "HTTP/1.1 200 a\x01"sv, "HTTP/1.1 200 a\rb"sv, "ICY 200 OK"sv, ""sv}) {
    EXPECT_FALSE(reads_response(line)) << line;
  }
}

TEST(HttpHead, WhatGoesOutCanBeReadBack) {
  std::string out;
  append_request_line(out, "PUT", "/a?b");
  append_header_field(out, "Host", "a");
  append_header_field(out, "Empty", "");
  out += "\r\n";
  http_request_head head;
  ASSERT_TRUE(parse_request_head(out, head));
  EXPECT_EQ(head.target, "/a?b");
  EXPECT_EQ(head.minor, 1);
  EXPECT_EQ(head.fields.size(), 2U);

  out.clear();
  append_status_line(out, 412, http_reason(412));
  out += "\r\n";
  http_response_head response;
  ASSERT_TRUE(parse_response_head(out, response));
  EXPECT_EQ(response.reason, "Precondition Failed");
  EXPECT_EQ(http_reason(299), "");
}

}  // namespace
}  // namespace fencegate::wire
