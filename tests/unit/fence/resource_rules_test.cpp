#include "fence/resource_rules.hpp"

#include "fence/token.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

namespace fencegate::fence {
namespace {

using testing::HasSubstr;
using testing::Optional;

key_rule rule(std::string_view keys, std::string_view resource) {
  auto compiled = key_rule::compile(keys, resource);
  if (!compiled) throw std::runtime_error(compiled.error().message);
  return *compiled;
}

std::optional<std::string> resource_of(std::string_view keys, std::string_view resource, std::string_view key) {
  return rule(keys, resource).match(key);
}

bool matches(std::string_view keys, std::string_view key) { return rule(keys, "r").match(key).has_value(); }

std::string refused(std::string_view keys, std::string_view resource) {
  const auto compiled = key_rule::compile(keys, resource);
  EXPECT_FALSE(compiled) << "accepted '" << keys << "' -> '" << resource << "'";
  return compiled ? "" : compiled.error().message;
}

TEST(KeyRule, LiteralMatchesThatKeyOnly) {
  EXPECT_TRUE(matches("orders", "orders"));
  for (const auto* key : {"", "order", "orders1", "xorders", "Orders", "orders "})
    EXPECT_FALSE(matches("orders", key)) << key;
}

TEST(KeyRule, StarTakesAnyRunAlsoNone) {
  for (const auto* key : {"", "a", "anything at all\n"}) EXPECT_TRUE(matches("*", key));
  EXPECT_TRUE(matches("*", std::string_view("\0\xff", 2)));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_TRUE(matches("a*", "abc"));
  EXPECT_FALSE(matches("a*", "ba"));
  EXPECT_TRUE(matches("*a", "a"));
  EXPECT_TRUE(matches("*a", "aaa"));
  EXPECT_FALSE(matches("*a", "ab"));
  EXPECT_TRUE(matches("a*b", "ab"));
  EXPECT_TRUE(matches("a*b", "abab"));
  EXPECT_FALSE(matches("a*a", "a"));  // the same byte cannot serve twice
  EXPECT_TRUE(matches("*ab*ab*", "xabyabz"));
  EXPECT_FALSE(matches("*ab*ab*", "xabyb"));
  EXPECT_TRUE(matches("a*bc*d", "abbcd"));
  EXPECT_FALSE(matches("*aba", "ab"));
  EXPECT_FALSE(matches("ab*ba", "aba"));
}

TEST(KeyRule, SeveralStarsAreOne) {
  EXPECT_TRUE(matches("a**b***", "axb"));
  EXPECT_TRUE(matches("**", ""));
  EXPECT_FALSE(matches("a**b", "a"));
}

TEST(KeyRule, CaptureNamesTheResource) {
  EXPECT_THAT(resource_of("acct:{id}:*", "acct:{id}", "acct:7:balance"), Optional(std::string("acct:7")));
  EXPECT_THAT(resource_of("{tenant}/{kind}/*", "{kind}-of-{tenant}", "eu/cart/1"), Optional(std::string("cart-of-eu")));
  EXPECT_THAT(resource_of("{id}", "x:{id}:{id}", "7"), Optional(std::string("x:7:7")));
  EXPECT_THAT(resource_of("user:{id}", "users", "user:7"), Optional(std::string("users")));
  EXPECT_THAT(resource_of("*:{id}", "{id}", "a:b"), Optional(std::string("b")));
}

TEST(KeyRule, CaptureEndsAtTheFirstStop) {
  EXPECT_THAT(resource_of("{a}:*", "{a}", "x:y:z"), Optional(std::string("x")));
  EXPECT_EQ(resource_of("{a}:z", "{a}", "x:y:z"), std::nullopt);  // no second try
  EXPECT_THAT(resource_of("k:{a}", "{a}", "k:x:y:z"), Optional(std::string("x:y:z")));
  EXPECT_THAT(resource_of("{a}--{b}", "{b}", "x--y"), Optional(std::string("y")));
  EXPECT_EQ(resource_of("{a}--{b}", "{b}", "x-y--z"), std::nullopt);
}

TEST(KeyRule, CaptureTakesOneByteAtLeast) {
  EXPECT_EQ(resource_of("acct:{id}:*", "acct:{id}", "acct::balance"), std::nullopt);
  EXPECT_EQ(resource_of("acct:{id}", "acct:{id}", "acct:"), std::nullopt);
  EXPECT_EQ(resource_of("{id}", "{id}", ""), std::nullopt);
  EXPECT_EQ(resource_of("acct:{id}:*", "acct:{id}", "acct:7"), std::nullopt);  // the stop is missing
}

TEST(KeyRule, StarBeforeACaptureIsAsShortAsItCanBe) {
  EXPECT_THAT(resource_of("*:{id}:*", "{id}", "a:b:c:d"), Optional(std::string("b")));
  EXPECT_THAT(resource_of("*:{id}:end", "{id}", "a:b:c:end"), Optional(std::string("c")));
  EXPECT_THAT(resource_of("*#{id}", "{id}", "a#b#c"), Optional(std::string("b#c")));
  EXPECT_THAT(resource_of("*a{x}b{y}c", "{x}.{y}", "a1b2ca3b4c"), Optional(std::string("3.4")));
}

TEST(KeyRule, BackslashTakesTheNextByteLiterally) {
  EXPECT_TRUE(matches(R"(a\*b)", "a*b"));
  EXPECT_FALSE(matches(R"(a\*b)", "axb"));
  EXPECT_TRUE(matches(R"(\{user\}:7)", "{user}:7"));
  EXPECT_TRUE(matches(R"(a\\b)", R"(a\b)"));
  EXPECT_TRUE(matches(R"(\a)", "a"));
  EXPECT_THAT(resource_of(R"(\{{id}\}:*)", "{id}", "{7}:cart"), Optional(std::string("7")));
  EXPECT_THAT(resource_of(R"({a}\*{b})", "{a}.{b}", "x*y"), Optional(std::string("x.y")));
}

TEST(KeyRule, KeysAreBinary) {
  const std::string_view key("k\0\xff\r\n", 5);
  EXPECT_TRUE(matches(std::string_view("k\0*", 3), key));
  EXPECT_FALSE(matches(std::string_view("k*\0", 3), key));
}

TEST(KeyRule, CapturedBytesMayMakeABadName) {
  for (const auto* captured : {"a b", "a=1", "a,b", "a}b", "a\r\nb", "\xc3\xa9", "*"}) {
    const auto name = resource_of("acct:{id}", "acct:{id}", "acct:" + std::string(captured));
    ASSERT_TRUE(name) << captured;
    EXPECT_EQ(*name, "acct:" + std::string(captured));
    EXPECT_FALSE(is_resource_name(*name)) << captured;
  }
  EXPECT_FALSE(is_resource_name(*resource_of("{id}", "{id}", std::string_view("a\0", 2))));
}

TEST(KeyRule, TooLongNamesAreBadAndCut) {
  EXPECT_TRUE(is_resource_name(*resource_of("k:{id}", "k:{id}", "k:" + std::string(198, 'x'))));
  EXPECT_FALSE(is_resource_name(*resource_of("k:{id}", "k:{id}", "k:" + std::string(199, 'x'))));
  const auto name = resource_of("{id}", "{id}{id}tail", std::string(1 << 20, 'x'));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->size(), 201u);
  EXPECT_FALSE(is_resource_name(*name));
}

TEST(KeyRule, RefusesBrokenPatterns) {
  EXPECT_THAT(refused("a{id", "r"), HasSubstr("without '}'"));
  EXPECT_THAT(refused("a{", "r"), HasSubstr("without '}'"));
  EXPECT_THAT(refused("a}b", "r"), HasSubstr("without '{'"));
  EXPECT_THAT(refused("a{{id}}", "r"), HasSubstr("is not a name"));
  EXPECT_THAT(refused("a{}b", "r"), HasSubstr("is not a name"));
  EXPECT_THAT(refused("a{i d}b", "r"), HasSubstr("is not a name"));
  EXPECT_THAT(refused("a{i*}b", "r"), HasSubstr("is not a name"));
  EXPECT_THAT(refused("a\\", "r"), HasSubstr("at the end"));
  EXPECT_THAT(refused("", "r"), HasSubstr("empty"));
  EXPECT_THAT(refused("{a}:{b}:{a}", "r"), HasSubstr("twice"));
}

TEST(KeyRule, RefusesAmbiguousPatterns) {
  for (const auto* keys : {"{a}{b}", "x{a}{b}y", "{a}*", "x:{a}*y", "*{a}", "x:*{a}:y", "{a}**{b}"}) {
    EXPECT_THAT(refused(keys, "r"), HasSubstr("needs a literal between")) << keys;
  }
}

TEST(KeyRule, RefusesBadResources) {
  EXPECT_THAT(refused("{id}", ""), HasSubstr("empty"));
  EXPECT_THAT(refused("{id}", "a{other}"), HasSubstr("does not stand in its keys"));
  EXPECT_THAT(refused("k", "{id}"), HasSubstr("does not stand in its keys"));
  EXPECT_THAT(refused("{id}", "a{id"), HasSubstr("without '}'"));
  for (const auto* resource : {"a b", "a*", "a=1", "a,b", "a}", "a\\{", "\xc3\xa9", "a\n"}) {
    EXPECT_THAT(refused("{id}", resource), HasSubstr("cannot stand in a resource name")) << resource;
  }
}

TEST(KeyRule, RefusesResourcesThatAreAlwaysTooLong) {
  EXPECT_TRUE(key_rule::compile("{id}", std::string(199, 'r') + "{id}"));
  EXPECT_THAT(refused("{id}", std::string(200, 'r') + "{id}"), HasSubstr("longer than 200"));
}

TEST(KeyRule, HasNoMoreThan16Captures) {
  std::string keys = "{c0}";
  std::string key = "v";
  std::string resource = "{c0}";
  for (int i = 1; i < 16; ++i) {
    keys += ":{c" + std::to_string(i) + "}";
    resource += "{c" + std::to_string(i) + "}";
    key += ":" + std::string(1, static_cast<char>('a' + i));
  }
  EXPECT_THAT(resource_of(keys, resource, key), Optional(std::string("vbcdefghijklmnop")));
  EXPECT_THAT(refused(keys + ":{one_more}", "r"), HasSubstr("more than 16"));
}

TEST(KeyRule, KeepsItsPolicy) {
  const policy strict{.equal = equal_token::reject, .max_step = 100};
  EXPECT_EQ(key_rule::compile("a", "r", strict)->rules(), strict);
  EXPECT_EQ(rule("a", "r").rules(), policy{});
}

TEST(FirstMatch, IsTheFirstNotTheBest) {
  const std::vector<key_rule> rules{rule("acct:*", "all"), rule("acct:{id}", "acct:{id}"), rule("{x}", "other")};
  const auto first = first_match(rules, "acct:7");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->rule, &rules[0]);
  EXPECT_EQ(first->resource, "all");
  EXPECT_EQ(first_match(rules, "cart")->rule, &rules[2]);
  EXPECT_FALSE(first_match(rules, ""));
  EXPECT_FALSE(first_match({}, "acct:7"));
}

// An invalid name is not passed over: a client could otherwise choose its rule by the bytes in its key.
TEST(FirstMatch, InvalidNameStaysWithItsRule) {
  const std::vector<key_rule> rules{rule("acct:{id}", "acct:{id}"), rule("*", "rest")};
  const auto first = first_match(rules, "acct:a b");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->rule, &rules[0]);
  EXPECT_FALSE(is_resource_name(first->resource));
}

// The definition, spelled out with backtracking: stars take as little as possible, captures have no choice.
class reference_matcher {
 public:
  static std::optional<std::string> match(std::string_view keys, std::string_view key) {
    reference_matcher m;
    if (!m.rest_matches(keys, key)) return std::nullopt;
    return m.captured_;
  }

 private:
  bool rest_matches(std::string_view keys, std::string_view key) {
    if (keys.empty()) return key.empty();
    if (keys.front() == '*') {
      for (std::size_t taken = 0; taken <= key.size(); ++taken) {
        if (rest_matches(keys.substr(1), key.substr(taken))) return true;
      }
      return false;
    }
    if (keys.front() == '{') {
      const auto rest = keys.substr(keys.find('}') + 1);
      const auto end = rest.empty() ? key.size() : key.find(rest.front());
      if (end == std::string_view::npos || end == 0) return false;
      if (!rest_matches(rest, key.substr(end))) return false;
      captured_ = std::string(key.substr(0, end)) + "." + captured_;
      return true;
    }
    return !key.empty() && key.front() == keys.front() && rest_matches(keys.substr(1), key.substr(1));
  }

  std::string captured_;
};

TEST(KeyRule, AgreesWithBacktrackingOnSmallKeys) {
  std::mt19937 random(20'240'611);
  const auto pick = [&random](std::size_t n) { return random() % n; };
  int matched = 0;
  int compiled = 0;
  for (int round = 0; round < 60'000; ++round) {
    std::string keys;
    std::string resource;
    const auto parts = 1 + pick(7);
    for (std::size_t i = 0; i < parts; ++i) {
      const auto kind = pick(5);
      if (kind == 0) {
        keys += '*';
      } else if (kind == 1) {
        keys += "{c" + std::to_string(i) + "}";
        resource += "{c" + std::to_string(i) + "}.";
      } else {
        keys += static_cast<char>('a' + pick(2));
      }
    }
    auto rule_under_test = key_rule::compile(keys, resource.empty() ? "." : resource);
    if (!rule_under_test) continue;
    ++compiled;
    std::string key;
    for (auto n = pick(12); n > 0; --n) key += static_cast<char>('a' + pick(2));
    auto expected = reference_matcher::match(keys, key);
    if (expected && resource.empty()) expected = ".";
    ASSERT_EQ(rule_under_test->match(key), expected) << "keys " << keys << " key " << key;
    matched += expected ? 1 : 0;
  }
  // The generator must not have drifted into cases that say nothing.
  EXPECT_GT(compiled, 20'000);
  EXPECT_GT(matched, 2'000);
}

TEST(KeyRule, KnowsWhichRulesNameOnlyWhatItCanName) {
  const auto all = rule("k:{x}", "r:{x}");
  EXPECT_TRUE(all.can_name_all_of(rule("l:{y}:m", "r:{y}")));
  EXPECT_TRUE(all.can_name_all_of(rule("l:*", "r:7")));
  EXPECT_TRUE(all.can_name_all_of(rule("l:{y}:m", "r:{y}:7")));
  EXPECT_FALSE(all.can_name_all_of(rule("l:*", "r:")));
  EXPECT_FALSE(all.can_name_all_of(rule("l:{y}", "{y}")));
  EXPECT_FALSE(rule("l:*", "r:7").can_name_all_of(all));
  EXPECT_TRUE(rule("a", "r").can_name_all_of(rule("b", "r")));
  const std::string longest(199, 'x');
  EXPECT_TRUE(rule("a{i}", longest + "{i}").can_name_all_of(rule("b{j}", longest + "{j}")));
}

std::chrono::duration<double> time_of(const key_rule& r, std::string_view key) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(r.match(key));
  return std::chrono::steady_clock::now() - start;
}

// With backtracking, each of these takes from hours to for ever on 1 MB: a bound of seconds is far from both.
TEST(KeyRule, AdversarialKeysTakeLinearTime) {
  std::string many_stars;
  for (int i = 0; i < 50; ++i) many_stars += "a*";
  const std::string a(1 << 20, 'a');
  const std::string ab = [] {
    std::string text;
    while (text.size() < (1 << 20)) text += "ab";
    return text;
  }();
  struct attack {
    std::string keys;
    std::string key;
  };
  const attack attacks[] = {
      {many_stars + "b", a},         // the classic
      {"*" + many_stars + "b*", a},  // not anchored
      {"*aaaaaaaaaaaaaaab*c", a},    // nearly matching literals
      {"*a{x}b", a},                 // a capture whose stop never comes, begun at each byte
      {"*a{x}bc", a + "b"},          // ... and whose stop comes late and is not followed rightly
      {"*a{x}b{y}cd", ab + "c"},     // the second capture's stop comes late
      {"*a{x}b{y}a{z}cd*e", ab + "c"},
      {"{x}b*a{y}bb*a", ab},
  };
  for (const auto& [keys, key] : attacks) {
    EXPECT_LT(time_of(rule(keys, "r"), key).count(), 5.0) << keys;
  }
}

}  // namespace
}  // namespace fencegate::fence
