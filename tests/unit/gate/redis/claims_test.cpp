#include "gate/redis/claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace fencegate::gate {
namespace {

using fence::reason;

struct bench {
  settings::redis_gate settings;
  backend::mark_memory memory;
  claims bound{settings};

  void rule(std::string_view keys, std::string_view resource, fence::policy rules = {}) {
    settings.resources.push_back(fence::key_rule::compile(keys, resource, rules).value());
  }
  // Every claim is held, as after a raise.
  void bind(std::string_view tag) {
    bound.bind(fence::parse_tag(tag).value(), memory);
    for (auto& one : bound.items()) one.status = claim_status::held;
  }
  // "pass", "fenced <mask>", "<reason> <resource>", "would be <reason>".
  std::string judge(std::vector<std::string_view> arguments, std::vector<std::size_t> keys, bool read = false) {
    const auto verdict = read ? bound.judge_read(arguments, keys) : bound.judge(arguments, keys);
    const auto text = [](const fence::rejection& r) {
      return std::string(fence::terms_of(r.why).name) + (r.resource.empty() ? "" : " " + r.resource);
    };
    if (verdict.rejected) return text(*verdict.rejected);
    if (verdict.would_be) return "would be " + text(*verdict.would_be);
    return verdict.required == 0 ? "pass" : "fenced " + std::to_string(verdict.required);
  }
  std::string set(std::string_view key) { return judge({"SET", key, "v"}, {1}); }
  std::string get(std::string_view key) { return judge({"GET", key}, {1}, true); }
};

TEST(Claims, WithoutATokenAWriteIsMissing) {
  bench b;
  EXPECT_EQ(b.set("k"), "missing");
  EXPECT_EQ(b.get("k"), "pass");
  b.settings.policy.missing = fence::missing_token::allow;
  EXPECT_EQ(b.set("k"), "pass");
  b.settings.policy.missing = fence::missing_token::read_only;
  EXPECT_EQ(b.set("k"), "missing");
}

TEST(Claims, AUsedTokenStillReads) {
  bench b;
  b.settings.policy.read = fence::reads::fence;
  b.settings.policy.equal = fence::equal_token::reject;
  b.bind("orders=34");
  b.bound.items()[0].status = claim_status::used;
  EXPECT_EQ(b.set("k"), "equal orders");
  EXPECT_EQ(b.get("k"), "fenced 1");
  EXPECT_EQ(b.bound.armable(), 1u);
  b.bound.items()[0].status = claim_status::stale;
  EXPECT_EQ(b.get("k"), "stale orders");
  EXPECT_EQ(b.bound.armable(), 0u);
}

TEST(Claims, WithoutRulesTheWholeTagFencesEveryWrite) {
  bench b;
  b.bind("orders=34,payments=12");
  EXPECT_EQ(b.set("k"), "fenced 3");
  EXPECT_EQ(b.judge({"PUBLISH", "c", "m"}, {}), "fenced 3");
}

TEST(Claims, ARuleNamesTheResource) {
  bench b;
  b.rule("acct:{id}:*", "acct:{id}");
  b.bind("acct:7=34,orders=12");
  EXPECT_EQ(b.set("acct:7:x"), "fenced 1");
  EXPECT_EQ(b.set("acct:8:x"), "missing acct:8");
  EXPECT_EQ(b.set("other"), "fenced 3");  // unmatched: tag
  EXPECT_EQ(b.judge({"MSET", "acct:7:a", "1", "acct:8:a", "1"}, {1, 3}), "missing acct:8");
  EXPECT_EQ(b.judge({"MSET", "acct:7:a", "1", "x", "1"}, {1, 3}), "fenced 3");
}

TEST(Claims, UnmatchedKeysFollowTheirPolicy) {
  bench b;
  b.rule("acct:*", "acct");
  b.bind("orders=1");
  b.settings.unmatched = fence::unmatched::pass;
  EXPECT_EQ(b.set("x"), "pass");
  EXPECT_EQ(b.judge({"MSET", "x", "1", "acct:1", "1"}, {1, 3}), "missing acct");
  b.settings.unmatched = fence::unmatched::reject;
  EXPECT_EQ(b.set("x"), "missing");
  EXPECT_EQ(b.judge({"PUBLISH", "c", "m"}, {}), "missing");  // no keys are no way out
}

TEST(Claims, AKeyWhoseResourceCannotBeOneIsMalformed) {
  bench b;
  b.rule("acct:{id}", "acct:{id}");
  b.settings.policy.missing = fence::missing_token::allow;
  EXPECT_EQ(b.set("acct:a b"), "malformed");
}

TEST(Claims, AMalformedTagIsNotAnAbsentOne) {
  bench b;
  b.settings.policy.missing = fence::missing_token::allow;
  b.bound.bind_unusable(reason::malformed, "not a tag");
  EXPECT_EQ(b.set("k"), "malformed");
  EXPECT_EQ(b.get("k"), "pass");
  b.bind("orders=1");
  EXPECT_EQ(b.set("k"), "fenced 1");
}

TEST(Claims, EachStatusHasItsReason) {
  bench b;
  b.bind("orders=34");
  for (const auto& [status, text] : std::map<claim_status, std::string>{{claim_status::stale, "stale orders"},
                                                                        {claim_status::used, "equal orders"},
                                                                        {claim_status::jump, "jump orders"},
                                                                        {claim_status::held, "fenced 1"},
                                                                        {claim_status::unraised, "fenced 1"}}) {
    b.bound.items()[0].status = status;
    EXPECT_EQ(b.set("k"), text);
  }
}

TEST(Claims, OnlyWhatIsHeldIsArmed) {
  bench b;
  b.bind("a=1,b=2,c=3");
  b.bound.items()[1].status = claim_status::stale;
  EXPECT_EQ(b.bound.held(), 0b101u);
  EXPECT_EQ(b.bound.refusal(0b101), std::nullopt);
  EXPECT_EQ(b.bound.refusal(0b111)->why, reason::stale);
}

TEST(Claims, MemoryMakesStaleButNeverFresh) {
  bench b;
  b.bind("orders=34");
  b.memory.cell("orders")->saw(fence::token(34));
  b.bound.learn_from_memory();
  EXPECT_EQ(b.set("k"), "fenced 1");
  b.memory.cell("orders")->saw(fence::token(35));
  b.bound.learn_from_memory();
  EXPECT_EQ(b.set("k"), "stale orders");
  EXPECT_EQ(b.bound.items()[0].mark, fence::token(35));
}

TEST(Claims, ReadsAreFencedOnlyWhereThePolicySaysSo) {
  bench b;
  b.rule("hot:*", "hot", {.read = fence::reads::fence});
  b.bind("hot=5");
  EXPECT_EQ(b.get("cold"), "pass");
  EXPECT_EQ(b.get("hot:1"), "fenced 1");
  b.bound.items()[0].status = claim_status::stale;
  EXPECT_EQ(b.get("hot:1"), "stale hot");
  b.bound.clear();
  EXPECT_EQ(b.get("hot:1"), "pass");  // a reader without a token is no stale one
}

TEST(Claims, ReadsOfOtherRulesPass) {
  bench b;
  b.rule("hot:*", "hot", {.read = fence::reads::fence});
  b.rule("cold:*", "cold");
  b.bind("hot=5,cold=5");
  for (auto& one : b.bound.items()) one.status = claim_status::stale;
  EXPECT_EQ(b.get("cold:1"), "pass");
  EXPECT_EQ(b.get("hot:1"), "stale hot");
  EXPECT_EQ(b.set("cold:1"), "stale cold");
}

TEST(Claims, MonitorModeOnlyNotes) {
  bench b;
  b.settings.policy.mode = fence::enforcement::monitor;
  EXPECT_EQ(b.set("k"), "would be missing");
  b.bind("orders=34");
  b.bound.items()[0].status = claim_status::stale;
  EXPECT_EQ(b.set("k"), "would be stale orders");
}

TEST(Claims, ARulesPolicyBelongsToItsResources) {
  bench b;
  b.rule("once:{n}", "once:{n}", {.equal = fence::equal_token::reject});
  b.bind("once:1=5,orders=6");
  EXPECT_EQ(b.bound.items()[0].rules.equal, fence::equal_token::reject);
  EXPECT_EQ(b.bound.items()[1].rules.equal, fence::equal_token::accept);
}

// One resource under two rules, of which the second enforces it: a script can write to that one's keys, too.
TEST(Claims, AScriptNeedsWhatSomeKeysRuleEnforces) {
  bench b;
  fence::policy watched;
  watched.mode = fence::enforcement::monitor;
  b.rule("report:*", "orders", watched);
  b.rule("tally:*", "tally", watched);
  b.rule("acct:{id}", "{id}", {});
  b.bind("orders=1");
  EXPECT_EQ(b.set("report:1"), "pass");
  EXPECT_EQ(b.judge({"EVAL", "script", "1", "report:1"}, {3}), "fenced 1");
  b.bound.items()[0].status = claim_status::stale;
  EXPECT_EQ(b.set("report:1"), "would be stale orders");
  EXPECT_EQ(b.judge({"EVAL", "script", "0"}, {}), "stale orders");
}

TEST(Claims, FenceSetAddsAndReplacesUpToTheLimit) {
  bench b;
  b.bound.set({"orders", fence::token(1)}, b.memory);
  b.bound.set({"orders", fence::token(2)}, b.memory);
  ASSERT_EQ(b.bound.items().size(), 1u);
  EXPECT_EQ(b.bound.items()[0].digits, "2");
  for (std::size_t i = 1; i < limits::tag_resources_max; ++i)
    b.bound.set({"r" + std::to_string(i), fence::token(1)}, b.memory);
  EXPECT_FALSE(b.bound.has_room({{"one-more", fence::token(1)}}));
  EXPECT_FALSE(b.bound.has_room({{"orders", fence::token(3)}, {"one-more", fence::token(1)}}));
  EXPECT_TRUE(b.bound.has_room({{"orders", fence::token(3)}}));
}

TEST(Claims, WhatCouldNotBeBoundRejectsUntilAllOfItIsBound) {
  bench b;
  b.bind("orders=1");
  b.bound.add_unusable(reason::malformed, "no", {"a", "b"});
  b.bound.add_unusable(reason::malformed, "no", {});
  EXPECT_EQ(b.set("k"), "malformed");
  b.bound.set({"a", fence::token(1)}, b.memory);
  EXPECT_EQ(b.set("k"), "malformed");
  b.bound.set({"b", fence::token(1)}, b.memory);
  EXPECT_EQ(b.set("k"), "fenced 7");
  b.bound.add_unusable(reason::malformed, "no", {""});
  b.bound.set({"b", fence::token(1)}, b.memory);
  EXPECT_EQ(b.set("k"), "malformed");
  b.bound.clear();
  EXPECT_EQ(b.set("k"), "missing");
}

TEST(Claims, WhatAnOperatorHasLoweredIsRaisedAnew) {
  bench b;
  b.bind("orders=42");
  const auto cell = b.memory.cell("orders");
  cell->saw(fence::token(99));
  b.bound.learn_from_memory();
  EXPECT_EQ(b.set("k"), "stale orders");
  b.bound.learn_from_memory();
  EXPECT_EQ(b.bound.items()[0].status, claim_status::stale);
  b.memory.saw(*cell, fence::token(41), 1);
  b.bound.learn_from_memory();
  EXPECT_EQ(b.bound.items()[0].status, claim_status::unraised);
  cell->saw(fence::token(43));
  b.bound.learn_from_memory();
  EXPECT_EQ(b.set("k"), "stale orders");
}

TEST(Claims, AHeldOneWhoseMarkWasLoweredIsRaisedAnew) {
  bench b;
  b.bind("orders=42,stock=42");
  const auto cell = b.memory.cell("orders");
  b.bound.on_lowered(*cell, fence::token(42));
  EXPECT_EQ(b.bound.held(), 3u);
  b.bound.on_lowered(*cell, fence::token(41));
  EXPECT_EQ(b.bound.held(), 2u);
  EXPECT_EQ(b.bound.items()[0].status, claim_status::unraised);
}

}  // namespace
}  // namespace fencegate::gate
