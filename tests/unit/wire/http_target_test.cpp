#include "wire/http_target.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using testing::Optional;

// What goes out; or the error in brackets.
std::string canonical(std::string_view target, std::string_view method = "PUT", std::string_view host = "a.example") {
  http_target got;
  const auto parsed = parse_http_target(method, target, host, got);
  if (!parsed) {
    EXPECT_EQ(parsed.error().status, 400);
    return "[" + std::string(parsed.error().message) + "]";
  }
  std::string out;
  got.append_to(out);
  return out;
}

bool refused(std::string_view target, std::string_view method = "PUT", std::string_view host = "a.example") {
  return canonical(target, method, host).starts_with('[');
}

std::string decoded(std::string_view target) {
  http_target got;
  EXPECT_TRUE(parse_http_target("PUT", target, "", got)) << target;
  return got.decoded;
}

// The value, "-" when there is none, or the error in brackets.
std::string value(std::string_view query, std::string_view name) {
  const auto got = http_query_value(query, name);
  if (!got) return "[" + std::string(got.error().message) + "]";
  return got->value_or("-");
}

TEST(HttpTarget, PathsAreMadeCanonical) {
  struct {
    std::string_view target, path, plain;
  } const table[] = {
      {"/", "/", "/"},
      {"/orders/5", "/orders/5", "/orders/5"},
      {"/orders/", "/orders/", "/orders/"},
      {"/%6frders/%35", "/orders/5", "/orders/5"},
      {"/a%20b", "/a%20b", "/a b"},
      {"/%c3%a4", "/%C3%A4", "/\xc3\xa4"},
      {"/-._~!$&'()*+,;=:@", "/-._~!$&'()*+,;=:@", "/-._~!$&'()*+,;=:@"},
      {"/a%3bb", "/a%3Bb", "/a;b"},
      {"/%252e%252E", "/%252e%252E", "/%2e%2E"},
      {"/.../..a/.a", "/.../..a/.a", "/.../..a/.a"},
      {"/%3F%23%25", "/%3F%23%25", "/?#%"},
      {"/%7e%2D", "/~-", "/~-"},
  };
  for (const auto& [target, path, plain] : table) {
    EXPECT_EQ(canonical(target), path);
    EXPECT_EQ(canonical(path), path) << "a fixed point";
    EXPECT_EQ(decoded(target), plain);
  }
}

TEST(HttpTarget, PathsThatCouldBeTwoAreRefused) {
  for (const auto target : {"//"sv,     "//a"sv,     "/a//b"sv,  "/a//"sv,      "/."sv,       "/.."sv,      "/./a"sv,
                            "/a/.."sv,  "/a/../b"sv, "/%2e"sv,   "/%2E%2e/b"sv, "/.%2e/b"sv,  "/a%2fb"sv,   "/a%2Fb"sv,
                            "/a%5cb"sv, "/a\\b"sv,   "/..;/b"sv, "/..%3b/b"sv,  "/.;x=1/b"sv, "/%2e%2e;/"sv}) {
    EXPECT_TRUE(refused(target)) << target;
  }
}

TEST(HttpTarget, BytesOfThePathAreStrict) {
  for (const auto target :
       {"/%"sv,   "/%1"sv,      "/%g0"sv,    "/%0g"sv, "/%00"sv,    "/%0a"sv,       "/%0d"sv,       "/%1f"sv,
        "/%7f"sv, "/%c2%80"sv,  "/%c2%9f"sv, "/%ff"sv, "/%c0%af"sv, "/%e0%80%af"sv, "/%ed%a0%80"sv, "/%f4%90%80%80"sv,
        "/%c3"sv, "/%c3/%a4"sv, "/a\""sv,    "/<"sv,   "/>"sv,      "/^"sv,         "/`"sv,         "/{"sv,
        "/|"sv,   "/}"sv,       "/["sv,      "/]"sv,   "/a#b"sv,    "/a b"sv,       "/\x7f"sv,      "/\xc3\xa4"sv,
        "/\0"sv}) {
    EXPECT_TRUE(refused(target)) << target;
  }
}

TEST(HttpTarget, TheQueryGoesOutAsItCame) {
  EXPECT_EQ(canonical("/a?x=%2e/../%2F&y=+;?[]|"), "/a?x=%2e/../%2F&y=+;?[]|");
  EXPECT_EQ(canonical("/a?"), "/a?");
  for (const auto target :
       {"/a?%"sv, "/a?%g0"sv, "/a?a b"sv, "/a?#"sv, "/a?<"sv, "/a?\""sv, "/a?\xc3\xa4"sv, "/a?\x01"sv}) {
    EXPECT_TRUE(refused(target)) << target;
  }
}

TEST(HttpTarget, AnAbsoluteFormNamesTheSameHost) {
  EXPECT_EQ(canonical("http://a.example/x?y"), "/x?y");
  EXPECT_EQ(canonical("HTTP://A.Example/x"), "/x");
  EXPECT_EQ(canonical("http://a.example"), "/");
  EXPECT_EQ(canonical("http://a.example?y"), "/?y");
  EXPECT_EQ(canonical("http://b.example/x", "PUT", ""), "/x") << "HTTP/1.0 without a Host";
  for (const auto target : {"http://b.example/"sv, "http://a.example:80/"sv, "http://u@a.example/"sv, "http:///"sv,
                            "http://"sv, "https://a.example/"sv, "http:/a"sv, "ftp://a.example/"sv,
                            "http://a.example/../b"sv, "http://a.example\\x"sv}) {
    EXPECT_TRUE(refused(target)) << target;
  }
  EXPECT_TRUE(refused("http://u@b.example/", "PUT", ""));
}

TEST(HttpTarget, OtherForms) {
  EXPECT_EQ(canonical("*", "OPTIONS"), "*");
  EXPECT_EQ(canonical("http://a.example", "OPTIONS"), "*");
  EXPECT_EQ(canonical("http://a.example/", "OPTIONS"), "/");
  for (const auto target : {"*"sv, "a.example:80"sv, "orders/5"sv, ""sv, "?x"sv, "*/"sv}) {
    EXPECT_TRUE(refused(target)) << target;
  }
}

TEST(HttpTarget, ASegmentCanBePutAnew) {
  http_target target;
  ASSERT_TRUE(parse_http_target("PUT", "/a%3Bb/0%307/c%20d/?q=1", "a", target));
  target.set_segment(1, "7");
  target.set_segment(0, "longer-than-before");
  EXPECT_EQ(target.path, "/longer-than-before/7/c%20d/");
  EXPECT_EQ(target.decoded, "/longer-than-before/7/c d/");
  target.set_segment(3, "end");
  EXPECT_EQ(target.path, "/longer-than-before/7/c%20d/end");
}

TEST(HttpTarget, NothingIsLeftOfTheOneBefore) {
  http_target target;
  ASSERT_TRUE(parse_http_target("GET", "/a?b", "", target));
  ASSERT_TRUE(parse_http_target("GET", "/c", "", target));
  EXPECT_EQ(target.path + target.decoded, "/c/c");
  EXPECT_EQ(target.query, std::nullopt);
  ASSERT_TRUE(parse_http_target("OPTIONS", "*", "", target));
  EXPECT_EQ(target.path + target.decoded, "*");
}

TEST(HttpQueryValue, IsDecoded) {
  EXPECT_EQ(value("a=1&b=2", "b"), "2");
  EXPECT_EQ(value("a=x+y%20z%2B", "a"), "x y z+");
  EXPECT_EQ(value("%61=1", "a"), "1");
  EXPECT_EQ(value("a", "a"), "");
  EXPECT_EQ(value("a=", "a"), "");
  EXPECT_EQ(value("a=b=c", "a"), "b=c");
  EXPECT_EQ(value("a=%26%3d", "a"), "&=");
  EXPECT_EQ(value("a=%c3%a4%0a%09", "a"), "\xc3\xa4\n\t");
  EXPECT_EQ(value("", "a"), "-");
  EXPECT_EQ(value("&&A=1&aa=1", "a"), "-");
}

TEST(HttpQueryValue, MustBeOneText) {
  for (const auto query : {"a=1&a=1"sv, "a=1&b=2&%61=3"sv, "a&a"sv, "a=%00"sv, "a=%ff"sv, "a=%1b"sv, "a=%c2%85"sv}) {
    EXPECT_TRUE(value(query, "a").starts_with('[')) << query;
  }
  EXPECT_EQ(value("a=%ff&b=1", "b"), "1") << "what is not used is not judged";
}

}  // namespace
}  // namespace fencegate::wire
