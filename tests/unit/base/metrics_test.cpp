#include "base/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace fencegate::metrics {
namespace {

using namespace std::chrono_literals;

std::uint64_t total(const histogram& h) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i <= histogram::bounds.size(); ++i) n += h.bucket(i);
  return n;
}

TEST(Histogram, CountsAValueOnABoundInThatBoundsBucket) {
  for (std::size_t i = 0; i < histogram::bounds.size(); ++i) {
    const auto bound = std::chrono::nanoseconds(std::llround(histogram::bounds[i] * 1e9));
    histogram h;
    h.observe(bound);
    EXPECT_EQ(h.bucket(i), 1u) << "bound " << histogram::bounds[i];
    h.observe(bound + 1ns);
    EXPECT_EQ(h.bucket(i + 1), 1u) << "just above bound " << histogram::bounds[i];
    EXPECT_EQ(total(h), 2u);
  }
}

TEST(Histogram, CountsWhatIsAboveAllBoundsInTheLastBucket) {
  histogram h;
  h.observe(1h);
  EXPECT_EQ(h.bucket(histogram::bounds.size()), 1u);
  EXPECT_DOUBLE_EQ(h.sum_seconds(), 3600.0);
}

TEST(Histogram, TakesANegativeDurationAsZero) {
  histogram h;
  h.observe(-5s);
  EXPECT_EQ(h.bucket(0), 1u);
  EXPECT_EQ(h.sum_seconds(), 0.0);
}

TEST(Histogram, SumsWhatItCounts) {
  histogram h;
  h.observe(1500us);
  h.observe(500us);
  EXPECT_DOUBLE_EQ(h.sum_seconds(), 0.002);
}

TEST(Histogram, LosesNothingUnderConcurrentObservers) {
  histogram h;
  counter c;
  constexpr int each = 20'000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < each; ++i) {
          h.observe(1us);
          c.add();
        }
      });
    }
  }
  EXPECT_EQ(h.bucket(0), 4u * each);
  EXPECT_EQ(c.value(), 4u * each);
  EXPECT_NEAR(h.sum_seconds(), 4.0 * each * 1e-6, 1e-12);
}

TEST(Gate, AccessorsNameTheirOwnCounter) {
  gate g("cache");
  g.requests(request_class::other).add(1);
  g.checks(check_outcome::unknown).add(2);
  g.rejected(connection_rejection::tls).add(3);
  g.protocol_errors(side::backend).add(4);
  EXPECT_EQ(g.requests_total.back().value(), 1u);
  EXPECT_EQ(g.checks_total.back().value(), 2u);
  EXPECT_EQ(g.connections_rejected_total.back().value(), 3u);
  EXPECT_EQ(g.protocol_errors_total.back().value(), 4u);
  EXPECT_EQ(g.checks(check_outcome::admitted).value(), 0u);
}

TEST(Gate, ItsBackendIsUpWhileAllOfThemAre) {
  gate one("api");
  EXPECT_EQ(one.backend_up.value(), 0);
  one.note_backend("ledger", "");
  EXPECT_EQ(one.backend_up.value(), 1);
  one.note_backend("cache", "connection refused");
  one.note_backend("ledger", "");
  EXPECT_EQ(one.backend_up.value(), 0);
  EXPECT_EQ(one.backends_said().backends.at("cache"), "connection refused");
  one.note_backend("cache", "");
  EXPECT_EQ(one.backend_up.value(), 1);
}

TEST(Gate, AFurtherDatabaseIsShownWhileItHasAProblem) {
  gate one("db");
  one.note_backend("", "");
  one.note_database("archive", "no schema");
  EXPECT_EQ(one.backend_up.value(), 1);
  EXPECT_EQ(one.backends_said().databases.at("archive"), "no schema");
  one.note_database("archive", "");
  EXPECT_TRUE(one.backends_said().databases.empty());
}

// ── several servers of one gate ─────────────────────────────────────────────────────────────────────────────────────

TEST(Totals, AreOfAllServersOfAGateAndWhatABackendSaysIsTheCurrentOnes) {
  process all;
  all.gates.push_back(std::make_shared<gate>("cache"));
  all.former = {std::make_shared<gate>("cache"), std::make_shared<gate>("removed")};
  gate &now = *all.gates[0], &before = *all.former[0];
  now.note_backend("", "");
  before.note_backend("", "it is down");
  now.connections.add(2);
  before.connections.add(1);
  now.checks(check_outcome::stale).add(3);
  before.checks(check_outcome::stale).add(4);
  before.overhead_seconds.observe(1us);
  before.pools.push_back(std::make_unique<pool>("ledger"));
  before.pools[0]->busy.set(5);

  const auto totals = totals_of(all);
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0]->connections.value(), 3);
  EXPECT_EQ(totals[0]->checks(check_outcome::stale).value(), 7u);
  EXPECT_EQ(total(totals[0]->overhead_seconds), 1u);
  EXPECT_EQ(totals[0]->backend_up.value(), 1);
  EXPECT_EQ(totals[0]->backends_said().backends.at(""), "");
  ASSERT_EQ(totals[0]->pools.size(), 1u);
  EXPECT_EQ(totals[0]->pools[0]->busy.value(), 5);
  EXPECT_EQ(totals[1]->name, "removed");
  EXPECT_EQ(now.checks(check_outcome::stale).value(), 3u);
}

TEST(Totals, WhatAServerHasCountedStaysWhenItHasGone) {
  gate now("cache"), gone("cache");
  for (auto* one : {&now, &gone}) {
    one->connections.add(1);
    one->raises_total.add(2);
    one->requests(request_class::write).add(3);
    one->takeover_seconds.observe(1ms);
  }
  now.add_counts(gone);
  EXPECT_EQ(now.connections.value(), 1);
  EXPECT_EQ(now.raises_total.value(), 4u);
  EXPECT_EQ(now.requests(request_class::write).value(), 6u);
  EXPECT_EQ(total(now.takeover_seconds), 2u);
  EXPECT_NEAR(now.takeover_seconds.sum_seconds(), 0.002, 1e-9);
}

}  // namespace
}  // namespace fencegate::metrics
