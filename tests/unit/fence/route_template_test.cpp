#include "fence/route_template.hpp"

#include "base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::fence {
namespace {

using kind = route_template::part::kind;
using testing::HasSubstr;

const route_pattern& orders() {
  static const route_pattern pattern = route_pattern::parse("PUT /orders/{id}/{rest...}").value();
  return pattern;
}

route_captures captures_of(std::string_view path) {
  route_captures out;
  EXPECT_TRUE(orders().match("PUT", path, out));
  return out;
}

// With "<query when>" for {query.when} and so on, nothing for the field X-None.
std::optional<std::string> expanded(std::string_view text, std::string_view path = "/orders/5/a/b") {
  const auto parsed = route_template::parse(text, orders());
  if (!parsed) throw std::runtime_error(parsed.error().message);
  std::string kept;
  return parsed->expand(captures_of(path), [&kept](const route_template::part& p) -> std::optional<std::string_view> {
    if (p.text == "X-None") return std::nullopt;
    kept = p.what == kind::query    ? "<query "
           : p.what == kind::header ? "<header "
           : p.what == kind::body   ? "<body"
                                    : "<token";
    kept += p.text + ">";
    return kept;
  });
}

std::string refused(std::string_view text) {
  const auto parsed = route_template::parse(text, orders());
  return parsed ? "accepted" : parsed.error().message;
}

std::string resource(std::string_view text, std::string_view path = "/orders/5/a/b") {
  const auto parsed = route_template::parse_resource(text, orders());
  return parsed ? parsed->resource(captures_of(path)) : "[" + parsed.error().message + "]";
}

TEST(RouteTemplate, TakesPartsOfTheRequest) {
  EXPECT_EQ(expanded("{id}"), "5");
  EXPECT_EQ(expanded("a:{id}:{rest}:{id}"), "a:5:a/b:5");
  EXPECT_EQ(expanded("{query.when} {header.X-User}{body}, {token}"), "<query when> <header X-User><body>, <token>");
  EXPECT_EQ(expanded(""), "");
  EXPECT_EQ(expanded(R"(\{id\} \\ {id})"), R"({id} \ 5)");
  EXPECT_EQ(expanded("x{header.X-None}"), std::nullopt);
}

TEST(RouteTemplate, RefusesWhatCannotBeMeant) {
  for (const auto* text : {"{", "a{id", "}", "a}", "{}", "{no}", "{query.}", "{header.}", "{header.a b}", "{Id}",
                           "{rest...}", "{{id}}", "\\", "{body.x}"}) {
    EXPECT_NE(refused(text), "accepted") << text;
  }
  EXPECT_THAT(refused("order:{idd}"),
              HasSubstr("{idd} in 'order:{idd}' does not stand in 'PUT /orders/{id}/{rest...}'"));
}

TEST(RouteTemplate, NamesResources) {
  EXPECT_EQ(resource("kv"), "kv");
  EXPECT_EQ(resource("order:{id}"), "order:5");
  EXPECT_EQ(resource("{rest}"), "a/b");
  EXPECT_EQ(resource("order:{id}", "/orders/a b/c"), "order:a b") << "is for is_resource_name to refuse";
  const std::string longest(limits::resource_bytes_max, 'x');
  EXPECT_EQ(resource(longest), longest);
  EXPECT_EQ(resource("a{id}", "/orders/" + std::string(5000, 'x') + "/y").size(), limits::resource_bytes_max + 1);
}

TEST(RouteTemplate, ResourcesAreOfThePathAlone) {
  for (const std::string text : {"", "{query.a}", "{header.a}", "{body}", "{token}", "a b", "a,{id}", "{no}", "a=b"}) {
    EXPECT_TRUE(resource(text).starts_with('[')) << text;
  }
  EXPECT_TRUE(resource(std::string(limits::resource_bytes_max, 'x') + "{id}").starts_with('['));
}

TEST(RouteTemplate, KnowsWhichResourcesItCanName) {
  const auto typed = route_pattern::parse("PUT /o/{id:int}/{name}/{rest...}").value();
  const auto can = [&](std::string_view text, std::string_view resource) {
    return route_template::parse_resource(text, typed)->can_name(resource, typed);
  };
  EXPECT_TRUE(can("orders", "orders"));
  EXPECT_FALSE(can("orders", "orders2"));
  EXPECT_FALSE(can("orders", "order"));
  EXPECT_TRUE(can("order:{id}", "order:7"));
  EXPECT_FALSE(can("order:{id}", "order:07"));
  EXPECT_FALSE(can("order:{id}", "order:"));
  EXPECT_TRUE(can("{name}-{id}", "a-b-c--7"));
  EXPECT_FALSE(can("{name}-{id}", "a/b-7"));
  EXPECT_TRUE(can("x:{rest}", "x:a/b"));
  EXPECT_FALSE(can("x:{rest}", "x:/b"));
  EXPECT_TRUE(can("{name}{name}{name}{name}{name}{name}", std::string(limits::resource_bytes_max, 'a')));
}

TEST(RouteTemplate, KnowsWhatItUses) {
  const auto parsed = route_template::parse("{id}{query.a}", orders()).value();
  EXPECT_TRUE(parsed.uses(kind::path));
  EXPECT_TRUE(parsed.uses(kind::query));
  EXPECT_FALSE(parsed.uses(kind::body));
}

}  // namespace
}  // namespace fencegate::fence
