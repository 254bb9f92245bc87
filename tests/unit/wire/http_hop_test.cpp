#include "wire/http_hop.hpp"

#include "base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace fencegate::wire {
namespace {

using testing::ElementsAre;

constexpr std::array<std::string_view, 2> fence_fields{"Fencing-Token", "X-Fencing-Token"};

struct request {
  explicit request(const std::string& fields, const std::string& line = "PUT / HTTP/1.1")
      : bytes(line + "\r\nHost: a\r\n" + fields + "\r\n") {
    const auto parsed = parse_request_head(bytes, head);
    EXPECT_TRUE(parsed) << bytes;
    const auto read = read_request_hop(head, fence_fields, hop);
    if (!read) status = read.error().status;
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;

  std::string bytes;
  http_request_head head;
  http_hop hop;
  int status = 0;
};

int status_of(const std::string& fields) { return request(fields).status; }

TEST(HttpHop, SaysWhetherTheConnectionGoesOn) {
  EXPECT_TRUE(request("").hop.keep_alive);
  EXPECT_TRUE(request("Connection: keep-alive\r\n").hop.keep_alive);
  EXPECT_FALSE(request("Connection: Close\r\n").hop.keep_alive);
  EXPECT_FALSE(request("Connection: keep-alive, close\r\n").hop.keep_alive);
  EXPECT_FALSE(request("Connection: keep-alive\r\nConnection: close\r\n").hop.keep_alive);
  EXPECT_FALSE(request("", "PUT / HTTP/1.0").hop.keep_alive);
  EXPECT_TRUE(request("Connection: Keep-Alive\r\n", "PUT / HTTP/1.0").hop.keep_alive);
}

TEST(HttpHop, WhatConnectionListsStaysBehind) {
  const request got("Connection: , X-Mine ,close,\tTE\r\n");
  ASSERT_EQ(got.status, 0);
  EXPECT_THAT(got.hop.listed, ElementsAre("X-Mine", "TE"));
  EXPECT_FALSE(travels_on("x-mine", got.hop));
  EXPECT_TRUE(travels_on("X_Mine", got.hop));
  EXPECT_TRUE(travels_on("Accept", got.hop));
}

TEST(HttpHop, WhatIsBetweenNeighboursStaysBehind) {
  const http_hop none;
  for (const auto* name : {"connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "HTTP2-Settings",
                           "Content-Length", "Transfer-Encoding", "Expect"}) {
    EXPECT_FALSE(travels_on(name, none)) << name;
  }
  for (const auto* name : {"Authorization", "Fencing-Token", "Content-Type", "Host"}) {
    EXPECT_TRUE(travels_on(name, none)) << name;
  }
}

TEST(HttpHop, ConnectionMayNotNameWhatCounts) {
  for (const auto* name :
       {"Fencing-Token", "x_fencing_token", "FENCING_TOKEN", "Authorization", "Cookie", "Host", "Content-Length",
        "Transfer-Encoding", "transfer_encoding", "X-Forwarded-For", "Connection"}) {
    EXPECT_EQ(status_of("Connection: close, " + std::string(name) + "\r\n"), 400) << name;
  }
}

TEST(HttpHop, ConnectionIsAListOfNames) {
  for (const auto* value : {"a b", "a;b", "\"close\"", "a=b", "(x)"}) {
    EXPECT_EQ(status_of("Connection: " + std::string(value) + "\r\n"), 400) << value;
  }
  std::string names = "a";
  for (std::size_t i = 1; i < limits::http_connection_options_max; ++i) names += ",a";
  EXPECT_EQ(status_of("Connection: " + names + "\r\n"), 0);
  EXPECT_EQ(status_of("Connection: " + names + ",a\r\n"), 400);
  EXPECT_EQ(status_of("Connection: " + names + "\r\nConnection: a\r\n"), 400);
}

TEST(HttpHop, ExpectationsAreOneOrNone) {
  EXPECT_TRUE(request("Expect: 100-Continue\r\n").hop.expects_continue);
  EXPECT_FALSE(request("").hop.expects_continue);
  EXPECT_EQ(status_of("Expect: 200-ok\r\n"), 417);
  EXPECT_EQ(status_of("Expect:\r\n"), 417);
  EXPECT_EQ(status_of("Expect: 100-continue\r\nExpect: x\r\n"), 417);
  const request old("Expect: 100-continue\r\n", "PUT / HTTP/1.0");
  EXPECT_EQ(old.status, 0);
  EXPECT_FALSE(old.hop.expects_continue);
}

TEST(HttpHop, RefusesOtherProtocolsAndDisguises) {
  EXPECT_EQ(request("", "CONNECT a:80 HTTP/1.1").status, 501);
  EXPECT_EQ(request("", "TRACE / HTTP/1.1").status, 501);
  for (const auto* field :
       {"Upgrade: websocket", "Upgrade: h2c, websocket", "Upgrade: h2c\r\nUpgrade: foo/1", "Upgrade: h2",
        "Upgrade: TLS/", "Upgrade: TLS", "Upgrade: TLS/1 0", "Upgrade:", "Transfer_Encoding: chunked",
        "content_length: 5", "Content_Length: 5", "X-HTTP-Method-Override: DELETE", "x_http_method_override: DELETE",
        "X-HTTP-Method: PUT", "X-Method-Override: PUT", "X-Original-URL: /admin", "X-Rewrite-Url: /admin"}) {
    EXPECT_EQ(status_of(std::string(field) + "\r\n"), 400) << field;
  }
}

TEST(HttpHop, OffersThatNobodyTakesUpAreDropped) {
  for (const auto* fields : {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n",
                             "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n", "Upgrade: H2C, tls/1.0\r\nUpgrade: h2c\r\n",
                             "HTTP2-Settings: AAMA\r\n"}) {
    request got(fields);
    EXPECT_EQ(got.status, 0) << fields;
    EXPECT_TRUE(got.hop.keep_alive) << fields;
    for (const auto* name : {"Upgrade", "HTTP2-Settings", "Connection"})
      EXPECT_FALSE(travels_on(name, got.hop)) << name;
  }
}

TEST(HttpHop, NothingIsLeftOfTheRequestBefore) {
  request got("Connection: close, a\r\nExpect: 100-continue\r\n");
  ASSERT_TRUE(read_request_hop(request("").head, fence_fields, got.hop));
  EXPECT_TRUE(got.hop.keep_alive);
  EXPECT_FALSE(got.hop.expects_continue);
  EXPECT_TRUE(got.hop.listed.empty());
}

TEST(HttpHop, OfResponses) {
  const auto read = [](const std::string& line, const std::string& value, http_hop& out) {
    const auto bytes = line + "\r\nConnection: " + value + "\r\n\r\n";
    http_response_head head;
    EXPECT_TRUE(parse_response_head(bytes, head));
    const auto got = read_response_hop(head, out);
    return got ? 0 : got.error().status;
  };
  http_hop hop;
  EXPECT_EQ(read("HTTP/1.1 200 OK", "x", hop), 0);
  EXPECT_TRUE(hop.keep_alive);
  EXPECT_EQ(read("HTTP/1.1 200 OK", "close", hop), 0);
  EXPECT_FALSE(hop.keep_alive);
  EXPECT_EQ(read("HTTP/1.0 200 OK", "x", hop), 0);
  EXPECT_FALSE(hop.keep_alive);
  EXPECT_EQ(read("HTTP/1.1 200 OK", "a b", hop), 502);
}

}  // namespace
}  // namespace fencegate::wire
