#include "fence/header_tag.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::fence {
namespace {

using testing::HasSubstr;
using fields = std::vector<header_field>;
using names = std::vector<std::string>;

// "a=1,b=2" as they came; "-" for none; the error in brackets.
std::string claims(const fields& sent, const names& resources = {"orders"},
                   std::string_view token_header = "Fencing-Token") {
  const auto read = read_token_header(sent, token_header, resources);
  if (!read) return "[" + read.error().message + "]";
  if (!*read) return "-";
  std::string out;
  for (const claim& c : **read) out += (out.empty() ? "" : ",") + c.resource + "=" + c.presented.to_string();
  return out;
}

std::string value(std::string_view text, const names& resources = {"orders"}) {
  return claims({{"Fencing-Token", text}}, resources);
}

bool malformed(const fields& sent) { return claims(sent).starts_with('['); }

TEST(HeaderTag, DigitsAreForTheResourceOfTheRoute) {
  EXPECT_EQ(value("34"), "orders=34");
  EXPECT_EQ(value("9223372036854775807"), "orders=9223372036854775807");
  EXPECT_THAT(value("34", {}), HasSubstr("no route names one"));
  EXPECT_THAT(value("34", {"a", "b"}), HasSubstr("the route names several"));
}

TEST(HeaderTag, TagsNameTheirResources) {
  EXPECT_EQ(value("orders=34"), "orders=34");
  EXPECT_EQ(value("orders=34, payments=12,\t x=0"), "orders=34,payments=12,x=0");
  EXPECT_EQ(value("orders=34 ,payments=12\t , x=0"), "orders=34,payments=12,x=0");
  EXPECT_EQ(value("payments=12", {}), "payments=12");
  for (const auto* text :
       {"orders =34", "orders= 34", "orders=3 4,x=1", "or ders=34 , x=1", "orders=34 ,", ", orders=34", " , "})
    EXPECT_TRUE(malformed({{"Fencing-Token", text}})) << text;
}

TEST(HeaderTag, RefusesOtherValues) {
  for (const auto* text : {"",
                           "034",
                           "+34",
                           "-1",
                           "34 ",
                           "3 4",
                           "0x22",
                           "34.0",
                           "9223372036854775808",
                           "\"34\"",
                           "?1",
                           "34;a",
                           "34,34",
                           "34, 35",
                           "orders",
                           "orders=",
                           "=34",
                           "orders=34,",
                           ",orders=34",
                           "orders=34,,x=1",
                           "orders =34",
                           "orders= 34",
                           "orders=34,orders=35",
                           "a b=1",
                           "orders=34;x"}) {
    EXPECT_TRUE(malformed({{"Fencing-Token", text}})) << text;
  }
}

TEST(HeaderTag, NoFieldIsNoToken) {
  EXPECT_EQ(claims({}), "-");
  EXPECT_EQ(claims({{"Fencing", "34"}, {"FencingToken", "34"}, {"X-Token", "34"}}), "-");
}

TEST(HeaderTag, NamesAreComparedLoosely) {
  for (const auto* name : {"fencing-token", "FENCING_TOKEN", "Fencing_Token", "X-Fencing-Token", "x_fencing-token"}) {
    EXPECT_EQ(claims({{name, "34"}}), "orders=34") << name;
  }
}

TEST(HeaderTag, AFieldStandsOnce) {
  EXPECT_TRUE(malformed({{"Fencing-Token", "34"}, {"fencing-token", "34"}}));
  EXPECT_TRUE(malformed({{"Fencing-Token", "34"}, {"Fencing_Token", "34"}}));
  EXPECT_TRUE(malformed({{"X-Fencing-Token", "34"}, {"X_Fencing_Token", "35"}}));
}

TEST(HeaderTag, TwoFieldsMustAgree) {
  EXPECT_EQ(claims({{"Fencing-Token", "34"}, {"X-Fencing-Token", "34"}}), "orders=34");
  EXPECT_EQ(claims({{"Fencing-Token", "34"}, {"X-Fencing-Token", "orders=34"}}), "orders=34");
  EXPECT_EQ(claims({{"Fencing-Token", "a=1,b=2"}, {"X-Fencing-Token", "b=2, a=1"}}), "b=2,a=1");
  EXPECT_TRUE(malformed({{"Fencing-Token", "34"}, {"X-Fencing-Token", "35"}}));
  EXPECT_TRUE(malformed({{"Fencing-Token", "34"}, {"X-Fencing-Token", "orders=34,x=1"}}));
  EXPECT_TRUE(malformed({{"Fencing-Token", "34"}, {"X-Fencing-Token", ""}}));
}

TEST(HeaderTag, TheHeaderIsTheOperatorsChoice) {
  EXPECT_EQ(claims({{"lease", "34"}}, {"orders"}, "Lease"), "orders=34");
  EXPECT_EQ(claims({{"X-Fencing-Token", "34"}}, {"orders"}, "Lease"), "orders=34");
  EXPECT_EQ(claims({{"Fencing-Token", "34"}}, {"orders"}, "Lease"), "-");
  EXPECT_EQ(claims({{"X-Fencing-Token", "34"}}, {"orders"}, "X-Fencing-Token"), "orders=34");
}

TEST(HeaderTag, EachResourceWantsAClaim) {
  const names resources{"a", "b"};
  const std::vector<claim> both{{"b", token(1)}, {"c", token(2)}, {"a", token(3)}};
  EXPECT_EQ(find_unclaimed(resources, both), nullptr);
  EXPECT_EQ(find_unclaimed(resources, std::span(both).first(2)), &resources[0]);
  EXPECT_EQ(find_unclaimed(resources, std::span(both).last(1)), &resources[1]);
  EXPECT_EQ(find_unclaimed({}, {}), nullptr);
}

}  // namespace
}  // namespace fencegate::fence
