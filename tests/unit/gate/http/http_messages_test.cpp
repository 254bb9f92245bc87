// What the gate says about the client to the upstream, and about itself to the client.
#include "gate/http/http_messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::gate {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// The fields that a request from this client goes on with.
std::string forwarded(std::string_view client, const std::string& fields = "", const std::string& version = "1.1") {
  const std::string bytes = "PUT /a HTTP/" + version + "\r\nHost: a\r\n" + fields + "\r\n";
  wire::http_request_head head;
  wire::http_target target;
  wire::http_hop hop;
  EXPECT_TRUE(wire::parse_request_head(bytes, head));
  EXPECT_TRUE(wire::parse_http_target(head.method, head.target, head.host, target));
  EXPECT_TRUE(wire::read_request_hop(head, {}, hop));
  std::string out;
  append_forwarded(out, {head, target, hop, {}, client});
  return out;
}

TEST(HttpForwarded, TellsWhoAsks) {
  EXPECT_THAT(forwarded("192.0.2.7"), HasSubstr("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n"
                                                "Forwarded: for=192.0.2.7;proto=http\r\nVia: 1.1 fencegate\r\n"));
  EXPECT_THAT(forwarded("2001:db8::1"), AllOf(HasSubstr("X-Forwarded-For: 2001:db8::1\r\n"),
                                              HasSubstr("Forwarded: for=\"[2001:db8::1]\";proto=http\r\n")));
}

TEST(HttpForwarded, AUnixSocketHasNoAddress) {
  EXPECT_THAT(forwarded(""),
              AllOf(Not(HasSubstr("X-Forwarded-For")), HasSubstr("Forwarded: for=unknown;proto=http\r\n")));
}

TEST(HttpForwarded, StandsBehindWhatEarlierProxiesHaveSaid) {
  const auto out = forwarded("192.0.2.7",
                             "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: https\r\n"
                             "Forwarded: for=198.51.100.1;proto=https\r\nVia: 1.1 edge\r\n",
                             "1.0");
  EXPECT_THAT(out,
              HasSubstr("X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: https\r\n"
                        "Forwarded: for=198.51.100.1;proto=https\r\nVia: 1.1 edge\r\nX-Forwarded-For: 192.0.2.7\r\n"
                        "Forwarded: for=192.0.2.7;proto=http\r\nVia: 1.0 fencegate\r\n"));
  EXPECT_THAT(out, Not(HasSubstr("X-Forwarded-Proto: http\r\n")));
}

TEST(HttpAnswers, SayWhenToAskAgain) {
  const auto answered = [](int status) {
    std::string out;
    append_refusal(out, status, "why");
    return out;
  };
  EXPECT_THAT(answered(503), HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(answered(504), Not(HasSubstr("Retry-After")));
  EXPECT_THAT(answered(503), AllOf(HasSubstr("Connection: close\r\n\r\n{"), EndsWith("\"applied\":\"no\"}")));
}

}  // namespace
}  // namespace fencegate::gate
