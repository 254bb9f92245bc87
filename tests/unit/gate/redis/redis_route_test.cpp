#include "gate/redis/redis_route.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>
#include <string>
#include <utility>

namespace fencegate::gate {
namespace {

using kind = route_facts::kind;
using proof = route_facts::proof;
using stand = route_facts::stand;

constexpr std::array stands{stand::plain,     stand::again,    stand::queued,
                            stand::streaming, stand::streamed, stand::called};
constexpr std::array kinds{kind::read, kind::blocking_read, kind::write, kind::blocking_write};
constexpr std::array proofs{proof::none, proof::other, proof::whole};
constexpr std::array flags{&route_facts::waits,      &route_facts::scriptable,  &route_facts::shows_data,
                           &route_facts::rejected,   &route_facts::required,    &route_facts::unraised,
                           &route_facts::refused,    &route_facts::table_known, &route_facts::ready,
                           &route_facts::watching,   &route_facts::caching,     &route_facts::unsettled,
                           &route_facts::arm_failed, &route_facts::filling,     &route_facts::reads_inside};

std::string shown(const route_facts& f) {
  std::string out = "stand " + std::to_string(static_cast<int>(f.where)) + ", kind " +
                    std::to_string(static_cast<int>(f.what)) + ", proof " + std::to_string(static_cast<int>(f.proven)) +
                    ", flags ";
  for (const auto flag : flags) out += f.*flag ? '1' : '0';
  return out;
}

// The whole product of cases; where `holds` is false, the first such case is told.
void for_each_case(const std::function<bool(const route_facts&, const routed&)>& holds) {
  route_facts f;
  for (const auto where : stands)
    for (const auto what : kinds)
      for (const auto proven : proofs)
        for (std::uint32_t bits = 0; bits < (1U << flags.size()); ++bits) {
          f.where = where;
          f.what = what;
          f.proven = proven;
          for (std::size_t i = 0; i < flags.size(); ++i) f.*flags[i] = (bits >> i & 1) != 0;
          const auto to = route_of(f);
          if (holds(f, to)) continue;
          FAIL() << shown(f) << " → route " << static_cast<int>(to.to) << ", refusal " << static_cast<int>(to.why);
        }
}

bool writes(const route_facts& f) { return f.what == kind::write || f.what == kind::blocking_write; }
bool goes_inside(route to) {
  return to == route::batch || to == route::poll || to == route::by_pieces || to == route::queue;
}

// ── the rule ────────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(RedisRoute, WhatNeedsMarksNeverGoesBare) {
  for_each_case([](const auto& f, const auto& to) { return !f.required || to.to != route::bare; });
}

TEST(RedisRoute, WhatNeedsMarksGoesInsideOnlyBehindTheProofOfAllOfThem) {
  for_each_case(
      [](const auto& f, const auto& to) { return !f.required || !goes_inside(to.to) || f.proven == proof::whole; });
}

TEST(RedisRoute, WhatIsRejectedGoesNowhere) {
  for_each_case([](const auto& f, const auto& to) { return !f.rejected || to.to == route::reject; });
}

TEST(RedisRoute, AWriteWhoseKeysNobodyKnowsGoesNowhere) {
  for_each_case([](const auto& f, const auto& to) { return !writes(f) || f.table_known || to.to == route::reject; });
}

TEST(RedisRoute, UnderARefusedClaimNothingIsArmedWrappedOrBatched) {
  for_each_case([](const auto& f, const auto& to) {
    if (!f.required || !f.refused) return true;
    if (to.to == route::reject) return true;
    // It may be refused because it was not raised yet; and what a MULTI was begun for, its EXEC judges again.
    return (to.to == route::raise_first && f.unraised) || to.to == route::queue || to.to == route::by_pieces;
  });
}

TEST(RedisRoute, AWrappedCommandHasItsMarksRaised) {
  for_each_case([](const auto& f, const auto& to) {
    return to.to != route::wrap || (f.required && f.ready && !f.unraised && !f.refused);
  });
}

// ── what each place can do ──────────────────────────────────────────────────────────────────────────────────────────

TEST(RedisRoute, EachPlaceHasItsOwnWays) {
  const auto ways = [](stand where) -> std::set<route> {
    using enum route;
    switch (where) {
      case stand::plain: return {reject, raise_first, arm_first, bare, batch, poll, wrap};
      case stand::again: return {reject, raise_first, bare, wrap};
      case stand::queued: return {reject, queue};
      case stand::streaming: return {reject, raise_first, arm_first, bare, by_pieces};
      case stand::streamed: return {reject, bare, by_pieces};
      case stand::called: return {reject, raise_first, bare, wrap};
    }
    return {};
  };
  std::set<std::pair<stand, route>> seen;
  for_each_case([&](const auto& f, const auto& to) {
    seen.emplace(f.where, to.to);
    return ways(f.where).contains(to.to);
  });
  for (const auto where : stands)
    for (const auto to : ways(where))
      EXPECT_TRUE(seen.contains({where, to})) << "no case takes it: " << static_cast<int>(to);
}

TEST(RedisRoute, OnlyARefusalHasAReason) {
  for_each_case([](const auto&, const auto& to) { return (to.to == route::reject) == (to.why != refusal::none); });
}

TEST(RedisRoute, ARaiseIsWaitedForWhereOneIsDueAndANewArmWhereItHelps) {
  for_each_case([](const auto& f, const auto& to) {
    if (to.to == route::raise_first) return f.unraised;
    if (to.to != route::arm_first) return true;
    return f.required && f.ready && f.proven != proof::whole && !f.watching && !f.arm_failed && !f.unsettled;
  });
}

TEST(RedisRoute, TheClientsOwnWatchIsNeverInTheWayOfAnArm) {
  for_each_case([](const auto& f, const auto& to) {
    const bool alone = f.where == stand::plain && f.required && f.watching;
    return !alone || (to.to != route::batch && to.to != route::poll && to.to != route::arm_first);
  });
}

TEST(RedisRoute, NothingIsPutBetweenClientCachingAndItsRead) {
  for_each_case([](const auto& f, const auto& to) {
    const bool exposed = (f.where == stand::plain || f.where == stand::streaming) && f.required && f.caching;
    return !exposed || !f.shows_data || !goes_inside(to.to);
  });
}

TEST(RedisRoute, WithoutAFenceNothingIsRefused) {
  for_each_case([](const auto& f, const auto& to) {
    const bool free = !f.rejected && !f.required && (f.table_known || !writes(f));
    return !free || to.to != route::reject;
  });
}

// What the rules admit, whose marks are proven and which nothing stands against, runs.
TEST(RedisRoute, WhatIsProvenAndGoodIsNotRefused) {
  for_each_case([](const auto& f, const auto& to) {
    const bool good = f.required && f.proven == proof::whole && f.table_known && f.ready && !f.rejected &&
                      !f.unraised && !f.refused && !f.unsettled && !f.arm_failed && !f.watching && !f.caching;
    const bool streams = f.where == stand::streaming || f.where == stand::streamed;
    const bool cannot_be_fenced = (streams && !writes(f)) || (f.what == kind::blocking_read && f.waits);
    return !good || cannot_be_fenced || goes_inside(to.to) || to.to == route::wrap;
  });
}

// What only reads, or is not fenced, joins a batch that is being gathered: the link does not leave MULTI for it. What may
// wait in the server never does.
TEST(RedisRoute, WhatIsNotFencedStaysInsideWhereItCan) {
  route_facts f;
  f.what = kind::read;
  f.proven = proof::whole;
  f.reads_inside = true;
  EXPECT_EQ(route_of(f).to, route::batch);
  f.reads_inside = false;
  EXPECT_EQ(route_of(f).to, route::bare);
  f.filling = true;
  EXPECT_EQ(route_of(f).to, route::batch);
  f.what = kind::write;
  EXPECT_EQ(route_of(f).to, route::batch);
  f.filling = false;
  EXPECT_EQ(route_of(f).to, route::bare);
  f.filling = true;
  for (const auto waiting : {kind::blocking_read, kind::blocking_write}) {
    f.what = waiting;
    EXPECT_EQ(route_of(f).to, route::bare);
  }
}

}  // namespace
}  // namespace fencegate::gate
