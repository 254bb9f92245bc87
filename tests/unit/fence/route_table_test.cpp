#include "fence/route_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fencegate::fence {
namespace {

using namespace std::string_view_literals;
using testing::ElementsAre;
using testing::HasSubstr;

route_pattern pattern(std::string_view text) {
  auto parsed = route_pattern::parse(text);
  if (!parsed) throw std::runtime_error(parsed.error().message);
  return *parsed;
}

std::string refused(std::string_view text) {
  const auto parsed = route_pattern::parse(text);
  EXPECT_FALSE(parsed) << "accepted " << text;
  return parsed ? "" : parsed.error().message;
}

// What the names stand for, joined by '|'; "-" when the pattern does not match.
std::string captured(std::string_view text, std::string_view method, std::string_view path) {
  const auto p = pattern(text);
  route_captures captures;
  if (!p.match(method, path, captures)) return "-";
  std::string out;
  for (std::size_t i = 0; i < p.names().size(); ++i) out.append(i == 0 ? "" : "|").append(captures.values[i]);
  return out;
}

bool matches(std::string_view text, std::string_view method, std::string_view path) {
  return captured(text, method, path) != "-";
}

// The pattern that a request finds; the same in whatever order they were added.
std::string found(std::vector<std::string> patterns, std::string_view method, std::string_view path) {
  std::sort(patterns.begin(), patterns.end());
  std::optional<std::string> first;
  do {
    route_table table;
    for (const auto& text : patterns) {
      const auto added = table.add(pattern(text));
      EXPECT_TRUE(added) << text;
    }
    const auto match = table.match(method, path);
    const std::string now = match ? table.pattern(match->route).text() : "-";
    EXPECT_EQ(first.value_or(now), now);
    first = now;
  } while (std::next_permutation(patterns.begin(), patterns.end()));
  return *first;
}

TEST(RoutePattern, MatchesMethodsOfItsList) {
  EXPECT_TRUE(matches("PUT,DELETE /a", "PUT", "/a"));
  EXPECT_TRUE(matches("PUT,DELETE /a", "DELETE", "/a"));
  for (const auto* method : {"POST", "put", "", "PUT,DELETE", "PU"})
    EXPECT_FALSE(matches("PUT,DELETE /a", method, "/a"));
  for (const auto* method : {"POST", "PROPFIND"}) EXPECT_TRUE(matches("* /a", method, "/a"));
}

TEST(RoutePattern, MatchesLiteralsAndNames) {
  EXPECT_EQ(captured("PUT /", "PUT", "/"), "");
  EXPECT_EQ(captured("PUT /orders/{id}", "PUT", "/orders/5"), "5");
  EXPECT_EQ(captured("PUT /{a}/x/{b}", "PUT", "/1/x/2"), "1|2");
  EXPECT_EQ(captured("PUT /a b/\xc3\xa4", "PUT", "/a b/\xc3\xa4"), "");
  for (const auto* path : {"/orders", "/orders/", "/orders/5/", "/orders/5/6", "/Orders/5", "/", "", "orders/5"}) {
    EXPECT_FALSE(matches("PUT /orders/{id}", "PUT", path)) << path;
  }
  EXPECT_FALSE(matches("PUT /orders", "PUT", "/orders/"));
  EXPECT_TRUE(matches("PUT /orders/", "PUT", "/orders/"));
  EXPECT_FALSE(matches("PUT /orders/", "PUT", "/orders"));
}

TEST(RoutePattern, ATailTakesWhatIsLeft) {
  EXPECT_EQ(captured("* /files/{path...}", "PUT", "/files/a"), "a");
  EXPECT_EQ(captured("* /files/{path...}", "PUT", "/files/a/b/"), "a/b/");
  EXPECT_EQ(captured("* /{who}/{path...}", "PUT", "/me/a/b"), "me|a/b");
  EXPECT_EQ(captured("* /{all...}", "PUT", "/a/b"), "a/b");
  for (const auto* path : {"/files", "/files/", "/file/a"})
    EXPECT_FALSE(matches("* /files/{path...}", "PUT", path)) << path;
  EXPECT_FALSE(matches("* /{all...}", "PUT", "/"));
}

TEST(RoutePattern, KnowsItsNames) {
  EXPECT_THAT(pattern("PUT /{a}/b/{c_1...}").names(), ElementsAre("a", "c_1"));
  EXPECT_TRUE(pattern("* /").any_method());
  EXPECT_FALSE(pattern("* /").lists("PUT"));
  EXPECT_TRUE(pattern("GET,PUT /").lists("GET"));
}

TEST(RoutePattern, TypesMatchWhateverStandsThere) {
  EXPECT_EQ(captured("PUT /a/{id:int}/{key:uuid}/{rest...}", "PUT", "/a/07/B/c/d"), "07|B|c/d");
  const auto p = pattern("PUT /a/{id:int}/{key:uuid}/{name}/{rest...}");
  ASSERT_EQ(p.places().size(), 4u);
  EXPECT_EQ(p.places()[0].type, capture_type::integer);
  EXPECT_EQ(p.places()[0].segment, 1u);
  EXPECT_EQ(p.places()[1].type, capture_type::uuid);
  EXPECT_EQ(p.places()[2].segment, 3u);
  EXPECT_TRUE(p.places()[3].tail);
  route_table table;
  ASSERT_TRUE(table.add(pattern("PUT /a/{id:int}")));
  EXPECT_FALSE(table.add(pattern("PUT /a/{name}"))) << "what is no number would be the other one's";
}

TEST(RoutePattern, RefusesTypesThatThereAreNot) {
  for (const auto* text : {"PUT /{id:}", "PUT /{id:integer}", "PUT /{id:INT}", "PUT /{:int}", "PUT /{id:int:int}",
                           "PUT /{id:int...}", "PUT /{body:int}", "PUT /{id:int}/{id}"})
    EXPECT_NE(refused(text), "") << text;
  EXPECT_THAT(refused("PUT /{id:integer}"), HasSubstr("there are the types int, uuid and slug"));
}

TEST(RoutePattern, RefusesWhatCannotBeMeant) {
  for (const auto text : {""sv, "PUT"sv, "/orders"sv, "PUT orders"sv, "PUT  /a"sv, "put /a"sv, ",PUT /a"sv, "PUT, /a"sv,
                          "PUT,* /a"sv, "PUT,PUT /a"sv, "TRACE /a"sv, "PUT,CONNECT /a"sv, " /a"sv}) {
    refused(text);
  }
  for (const auto path : {"/a//b"sv,     "//"sv,     "/."sv,      "/../a"sv,    "/..;x/a"sv, "/a?b"sv,  "/a#b"sv,
                          "/a%20b"sv,    "/a\\b"sv,  "/*"sv,      "/a*"sv,      "/\xff"sv,   "/\x01"sv, "/{}"sv,
                          "/{a-b}"sv,    "/x{a}"sv,  "/{a}x"sv,   "/{a}{b}"sv,  "/{a"sv,     "/a}"sv,   "/{a}/{a}"sv,
                          "/{a...}/b"sv, "/{...}"sv, "/{body}"sv, "/{token}"sv, "/{a..}"sv}) {
    refused("PUT " + std::string(path));
  }
  EXPECT_THAT(refused("put /a"), HasSubstr("'put' in 'put /a' is not a method in upper case"));
  std::string many = "PUT ";
  for (std::size_t i = 0; i < route_captures::count_max; ++i) many += "/{n" + std::to_string(i) + "}";
  EXPECT_EQ(pattern(many).names().size(), route_captures::count_max);
  EXPECT_THAT(refused(many + "/{more}"), HasSubstr("more than 16 names"));
}

TEST(RouteTable, TheMostSpecificWinsInAnyOrder) {
  const std::vector<std::string> routes{"* /{all...}", "* /orders/{id}", "PUT /orders/{id}", "* /orders/new",
                                        "* /orders/{rest...}"};
  EXPECT_EQ(found(routes, "PUT", "/orders/5"), "PUT /orders/{id}");
  EXPECT_EQ(found(routes, "POST", "/orders/5"), "* /orders/{id}");
  EXPECT_EQ(found(routes, "PUT", "/orders/new"), "* /orders/new") << "the path counts before the method";
  EXPECT_EQ(found(routes, "PUT", "/orders/5/lines"), "* /orders/{rest...}");
  EXPECT_EQ(found(routes, "PUT", "/orders/"), "* /{all...}");
  EXPECT_EQ(found(routes, "PUT", "/"), "-");
}

TEST(RouteTable, SegmentsCountFromTheLeft) {
  EXPECT_EQ(found({"PUT /{x}/b", "PUT /a/{y}"}, "PUT", "/a/b"), "PUT /a/{y}");
  EXPECT_EQ(found({"PUT /{x}/b/c", "PUT /{x}/{y...}", "PUT /{x}/{y}/c"}, "PUT", "/1/b/c"), "PUT /{x}/b/c");
  EXPECT_EQ(found({"PUT /a/{x...}", "PUT /{x}/b/c"}, "PUT", "/a/b/c"), "PUT /a/{x...}");
}

TEST(RouteTable, MethodsChooseAmongThoseThatMatch) {
  EXPECT_EQ(found({"PUT /a/b", "* /a/{x}"}, "DELETE", "/a/b"), "* /a/{x}");
  EXPECT_EQ(found({"PUT /a", "DELETE /a", "GET,POST /a"}, "POST", "/a"), "GET,POST /a");
  EXPECT_EQ(found({"PUT /a", "DELETE /a"}, "POST", "/a"), "-");
}

TEST(RouteTable, RefusesRoutesThatMatchTheSame) {
  const auto clash = [](std::string_view a, std::string_view b) {
    route_table table;
    EXPECT_TRUE(table.add(pattern(a)));
    return !table.add(pattern(b)).has_value();
  };
  EXPECT_TRUE(clash("PUT /a/{x}", "PUT /a/{y}"));
  EXPECT_TRUE(clash("PUT,POST /a", "GET,POST /a"));
  EXPECT_TRUE(clash("* /{a...}", "* /{b...}"));
  EXPECT_FALSE(clash("PUT /a/{x}", "POST /a/{x}"));
  EXPECT_FALSE(clash("PUT /a/{x}", "* /a/{x}"));
  EXPECT_FALSE(clash("PUT /a/{x}", "PUT /b/{x}"));
  EXPECT_FALSE(clash("PUT /a", "PUT /a/"));
  EXPECT_FALSE(clash("PUT /a/{x}", "PUT /a/{x...}"));
}

TEST(RouteTable, SaysWhichRoutesClash) {
  route_table table;
  ASSERT_TRUE(table.add(pattern("PUT /a/{x}")));
  EXPECT_EQ(table.add(pattern("PUT /a/{y}")).error().message,
            "'PUT /a/{y}' matches what 'PUT /a/{x}' matches, and neither is more specific");
  EXPECT_EQ(table.size(), 1U);
}

TEST(RouteTable, CapturesAreOfTheRouteThatWon) {
  route_table table;
  ASSERT_TRUE(table.add(pattern("PUT /a/{x}/b/{y}")));
  ASSERT_TRUE(table.add(pattern("PUT /a/{x}/{y}/c")));
  const auto match = table.match("PUT", "/a/1/b/c");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->route, 0U);
  EXPECT_EQ(match->captured.values[0], "1");
  EXPECT_EQ(match->captured.values[1], "c");
}

}  // namespace
}  // namespace fencegate::fence
