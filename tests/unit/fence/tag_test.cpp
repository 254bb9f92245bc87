#include "fence/tag.hpp"

#include "base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::fence {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

claim holds(std::string resource, std::int64_t value) { return {std::move(resource), token(value)}; }

std::vector<claim> parsed(std::string_view text) {
  auto claims = parse_tag(text);
  EXPECT_TRUE(claims) << text << ": " << (claims ? "" : claims.error().message);
  return claims ? *claims : std::vector<claim>{};
}

std::string refused(std::string_view text) {
  auto claims = parse_tag(text);
  EXPECT_FALSE(claims) << "accepted '" << text << "'";
  return claims ? "" : claims.error().message;
}

std::vector<claim> found(std::string_view name) {
  auto tag = find_tag(name);
  EXPECT_TRUE(tag && *tag) << "no good tag in '" << name << "'";
  return tag && *tag ? **tag : std::vector<claim>{};
}

bool carries_bad_tag(std::string_view name) {
  const auto tag = find_tag(name);
  return tag && !*tag;
}

std::string tag_of(std::size_t resources) {
  std::string text;
  for (std::size_t i = 0; i < resources; ++i)
    text += (i == 0 ? "r" : ",r") + std::to_string(i) + "=" + std::to_string(i);
  return text;
}

TEST(Tag, CarriesOneOrSeveralClaimsInOrder) {
  EXPECT_THAT(parsed("orders=34"), ElementsAre(holds("orders", 34)));
  EXPECT_THAT(parsed("orders=34,payments=12"), ElementsAre(holds("orders", 34), holds("payments", 12)));
  EXPECT_THAT(parsed("b=2,a=1"), ElementsAre(holds("b", 2), holds("a", 1)));
}

TEST(Tag, KeepsTokensExact) {
  EXPECT_THAT(parsed("a=9007199254740993"), ElementsAre(holds("a", 9007199254740993)));
  EXPECT_THAT(parsed("a=9223372036854775807"), ElementsAre(holds("a", 9223372036854775807)));
  EXPECT_THAT(refused("a=9223372036854775808"), HasSubstr("9223372036854775807"));
}

TEST(Tag, ResourceMayUseItsWholeAlphabet) {
  EXPECT_THAT(parsed("acct:7/eu-west.A_b=1"), ElementsAre(holds("acct:7/eu-west.A_b", 1)));
}

TEST(Tag, SameClaimTwiceIsOne) { EXPECT_THAT(parsed("a=1,b=2,a=1"), ElementsAre(holds("a", 1), holds("b", 2))); }

TEST(Tag, TwoTokensForOneResourceAreRefused) {
  EXPECT_THAT(refused("a=1,b=2,a=3"), AllOf(HasSubstr("a twice"), HasSubstr("1"), HasSubstr("3")));
  refused("a=9007199254740992,a=9007199254740993");
}

TEST(Tag, RefusesWhatIsNotATag) {
  for (const auto* text : {"",     "=",     ",",     "a",       "a=",    "=1",   "a=1,",     ",a=1",   "a=1,,b=2",
                           "a==1", "a=1=2", "a =1",  "a= 1",    " a=1",  "a=1 ", "a=1, b=2", "a=01",   "a=+1",
                           "a=-0", "a=-1",  "a=1.0", "a=1;b=2", "a=0x1", "é=1",  "a=1\r\n",  "a{b}=1", "a=1,b"}) {
    refused(text);
  }
  refused(std::string_view("a=1\0", 4));
  refused(std::string_view("a\0=1", 4));
}

TEST(Tag, ResourceEndsAt200Bytes) {
  EXPECT_EQ(parsed(std::string(200, 'r') + "=1").size(), 1u);
  EXPECT_THAT(refused(std::string(201, 'r') + "=1"), HasSubstr("not a resource name"));
}

TEST(Tag, HasNoMoreThan32Resources) {
  ASSERT_EQ(limits::tag_resources_max, 32u);
  EXPECT_EQ(parsed(tag_of(32)).size(), 32u);
  EXPECT_EQ(parsed(tag_of(32) + ",r0=0").size(), 32u);  // a repeated one is not another one
  EXPECT_THAT(refused(tag_of(33)), HasSubstr("more than 32"));
}

TEST(Tag, ErrorsOfHugeTagsAreShortAndPrintable) {
  for (const auto& text :
       {std::string(1 << 20, '\n'), "a=" + std::string(1 << 20, '\xff'), std::string(1 << 20, 'a') + "=1"}) {
    const auto message = refused(text);
    EXPECT_LT(message.size(), 300u);
    for (const char c : message) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
  }
}

TEST(FindTag, WithoutTagIsNothing) {
  for (const auto* name : {"", "worker-7", "fence", "fence=1", "orders=34", "fence :a=1", "noFence:a=1"}) {
    EXPECT_FALSE(find_tag(name)) << name;
  }
}

TEST(FindTag, IsTheNameOrStandsInIt) {
  EXPECT_THAT(found("fence:orders=34"), ElementsAre(holds("orders", 34)));
  EXPECT_THAT(found("worker-7 fence:orders=34"), ElementsAre(holds("orders", 34)));
  EXPECT_THAT(found("fence:orders=34,payments=12 worker"), ElementsAre(holds("orders", 34), holds("payments", 12)));
  EXPECT_THAT(found("[fence:orders=34]"), ElementsAre(holds("orders", 34)));
}

// A name that was meant as a tag and taken for none would pass where missing tokens are allowed.
TEST(FindTag, ItsPrefixIsRecognisedInAnyCase) {
  for (const auto* name : {"Fence:Orders=34", "FENCE:Orders=34", "app/fEnCe:Orders=34"}) {
    EXPECT_THAT(found(name), ElementsAre(holds("Orders", 34))) << name;
  }
  EXPECT_TRUE(carries_bad_tag("fence:a=1 Fence:a=2"));
  EXPECT_TRUE(carries_bad_tag("FENCE:"));
}

TEST(FindTag, BeginsAtAWordsStart) {
  for (const auto* before : {" ", ":", "/", "-", "=", ",", ";", "(", "\xc3\xa9", "\n"}) {
    EXPECT_THAT(found(std::string("app") + before + "fence:a=1"), ElementsAre(holds("a", 1))) << before;
  }
  for (const auto* before : {"x", "X", "7", "_", "."}) {
    EXPECT_FALSE(find_tag(std::string("app") + before + "fence:a=1")) << before;
  }
}

TEST(FindTag, PrefixInsideAWordDoesNotHideATrueOne) {
  EXPECT_THAT(found("nofence:b=2 fence:a=1"), ElementsAre(holds("a", 1)));
  EXPECT_THAT(found("nofence:fence:a=1"), ElementsAre(holds("a", 1)));
}

TEST(FindTag, EndsAtTheFirstByteThatNoTagHas) {
  for (const auto* behind : {" ", ";", ")", "]", "'", "\"", "\t", "\r\n", "\xc3\xa9", "@host"}) {
    EXPECT_THAT(found(std::string("fence:a=1") + behind + "2"), ElementsAre(holds("a", 1))) << behind;
  }
  EXPECT_THAT(found(std::string_view("fence:a=1\0002", 11)), ElementsAre(holds("a", 1)));
}

// A refused tag must be seen as one: taken for none, `missing_token: allow` would let its writes pass.
TEST(FindTag, MalformedIsAnErrorNotNothing) {
  for (const auto* name :
       {"fence:", "x fence:", "fence: a=1", "fence:a", "fence:a=", "fence:a=01", "fence:a=+1", "fence:a=1,",
        "fence:a=1,a=2", "fence:a=9223372036854775808", "fence:a=1-worker", "fence:a=1/7", "fence:a=1:b"}) {
    EXPECT_TRUE(carries_bad_tag(name)) << name;
  }
}

TEST(FindTag, TwoThatDifferAreAnError) {
  EXPECT_TRUE(carries_bad_tag("fence:a=1 fence:a=2"));
  EXPECT_TRUE(carries_bad_tag("fence:a=1 fence:b=1"));
  EXPECT_TRUE(carries_bad_tag("fence:a=1 fence:a=1,b=1"));
  EXPECT_TRUE(carries_bad_tag("fence:a=1 fence:"));
  EXPECT_TRUE(carries_bad_tag("fence:x fence:a=1"));
}

TEST(FindTag, TwoThatSayTheSameAreOne) {
  EXPECT_THAT(found("fence:a=1 fence:a=1"), ElementsAre(holds("a", 1)));
  EXPECT_THAT(found("fence:a=1,b=2 fence:b=2,a=1"), ElementsAre(holds("a", 1), holds("b", 2)));
}

TEST(FindTag, PrefixInsideATagBelongsToIt) {
  EXPECT_THAT(found("fence:fence:a=1"), ElementsAre(holds("fence:a", 1)));
  EXPECT_TRUE(carries_bad_tag("fence:a=1:fence:a=1"));
}

TEST(FindTag, HugeNamesOfPrefixesEnd) {
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "fence:a=1 ";
  EXPECT_THAT(found(name), ElementsAre(holds("a", 1)));
}

TEST(HiddenTag, IsInsideALongerWord) {
  EXPECT_TRUE(hides_tag("app_fence:orders=33"));
  EXPECT_TRUE(hides_tag("app.Fence:orders=33"));
  EXPECT_FALSE(hides_tag("app fence:orders=33"));
  EXPECT_FALSE(hides_tag("app_fence:orders=33 fence:orders=33"));
  EXPECT_FALSE(hides_tag("fence:nothing"));
  EXPECT_FALSE(hides_tag("app"));
}

TEST(TagOfListener, TakesNoOther) {
  const claims_list own{{"orders", token(34)}, {"payments", token(12)}};
  EXPECT_EQ(disagreement(own, {}), std::nullopt);
  EXPECT_EQ(disagreement(own, own), std::nullopt);
  EXPECT_EQ(disagreement(own, {{"payments", token(12)}}), std::nullopt);
  EXPECT_EQ(disagreement({}, own), std::nullopt);
  EXPECT_NE(disagreement(own, {{"orders", token(35)}}), std::nullopt);
  EXPECT_NE(disagreement(own, {{"orders", token(34)}, {"stock", token(34)}}), std::nullopt);
  EXPECT_EQ(write_tag(own), "orders=34,payments=12");
}

}  // namespace
}  // namespace fencegate::fence
