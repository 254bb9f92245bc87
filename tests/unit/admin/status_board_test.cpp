#include "admin/status_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class StatusBoard : public testing::Test {
 protected:
  void rises(std::string_view resource, std::int64_t mark, bool first = false) {
    board.note_rise("cache", resource, {0, mark}, first, now);
  }
  void rejects(std::string resource, std::int64_t token, std::string_view client = "10.0.0.7:4711") {
    board.note_rejections(seen(std::move(resource), token, client));
  }
  [[nodiscard]] rejection_seen seen(std::string resource, std::int64_t token, std::string_view client) const {
    rejection_seen out;
    out.at = now;
    out.gate = "cache";
    out.resource = std::move(resource);
    out.token = token;
    out.mark = 34;
    out.client = client;
    out.command = "SET";
    return out;
  }
  [[nodiscard]] std::vector<std::string> resources(std::uint64_t since = 0) const {
    std::vector<std::string> out;
    for (const auto& one : board.since(since).resources) out.push_back(one.resource);
    return out;
  }

  wall_time now = wall_time(1'700'000'000s);
  status_board board{3, 3};
};

TEST_F(StatusBoard, AMarkThatRose) {
  rises("orders", 33, true);
  now += 5s;
  rises("orders", 34);
  const auto seen = board.since(0).resources;
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].mark, 34);
  EXPECT_EQ(seen[0].rose, now);
  EXPECT_FALSE(seen[0].first);
  EXPECT_EQ(seen[0].rejected, std::nullopt);
}

TEST_F(StatusBoard, AThreadThatComesLateDoesNotLowerAMark) {
  rises("orders", 35);
  rises("orders", 34);
  EXPECT_EQ(board.since(0).resources[0].mark, 35);
}

TEST_F(StatusBoard, AMarkThatAnOperatorLoweredHasNotRisen) {
  rises("orders", 40);
  board.note_rise("cache", "orders", {1, 34}, false, now);
  EXPECT_EQ(board.since(0).resources[0].mark, 34);
  EXPECT_EQ(board.since(0).resources[0].rose, std::nullopt);
  now += 5s;
  board.note_rise("cache", "orders", {1, 35}, false, now);
  EXPECT_EQ(board.since(0).resources[0].rose, now);
}

TEST_F(StatusBoard, ARejectionIsShownWithItsResource) {
  rejects("orders", 33);
  const auto all = board.since(0);
  ASSERT_THAT(all.resources, SizeIs(1));
  EXPECT_EQ(all.resources[0].mark, 34);  // as far as it is known
  EXPECT_EQ(all.resources[0].rose, std::nullopt);
  EXPECT_EQ(all.resources[0].rejected, now);
  EXPECT_EQ(all.resources[0].token, 33);
  EXPECT_EQ(all.resources[0].rejections, 1u);
  ASSERT_THAT(all.rejections, SizeIs(1));
  EXPECT_EQ(all.rejections[0].client, "10.0.0.7:4711");
  EXPECT_EQ(all.rejections[0].mark, 34);
}

TEST_F(StatusBoard, TheSameWithinAMinuteIsOneWithACount) {
  rejects("orders", 33);
  rejects("stock", 33);
  now += 59s;
  rejects("orders", 33, "10.0.0.7:9999");  // another connection of the same writer
  auto seen = board.since(0).rejections;
  ASSERT_THAT(seen, SizeIs(2));
  EXPECT_EQ(seen[0].resource, "orders");
  EXPECT_EQ(seen[0].count, 2u);
  EXPECT_EQ(seen[0].at, now);
  EXPECT_EQ(seen[0].client, "10.0.0.7:9999");
  now += 61s;
  rejects("orders", 33);
  rejects("orders", 32);
  rejects("orders", 32, "10.0.0.8:1");
  seen = board.since(0).rejections;
  ASSERT_THAT(seen, SizeIs(3));
  for (const auto& one : seen) EXPECT_EQ(one.count, 1u);
}

TEST_F(StatusBoard, TheOldestIsForgotten) {
  for (const char* name : {"a", "b", "c"}) rises(name, 1);
  rises("a", 2);
  rises("d", 1);
  EXPECT_THAT(resources(), ElementsAre("d", "a", "c"));
  for (int i = 0; i < 5; ++i) rejects("a", i);
  EXPECT_THAT(board.since(0).rejections, SizeIs(3));
  EXPECT_EQ(board.since(0).rejections[0].token, 4);
}

TEST_F(StatusBoard, TellsWhatHasChanged) {
  rises("a", 1);
  rises("b", 1);
  const auto first = board.since(0);
  EXPECT_THAT(board.since(first.version).resources, IsEmpty());
  rises("a", 2);
  EXPECT_THAT(resources(first.version), ElementsAre("a"));
  EXPECT_EQ(board.since(first.version).resources[0].id, first.resources[1].id);
}

TEST_F(StatusBoard, SeveralAreAddedAtOnce) {
  rejects("orders", 33);
  auto many = seen("orders", 33, "10.0.0.7:1");
  many.count = 41;
  board.note_rejections(std::move(many));
  EXPECT_EQ(board.since(0).rejections[0].count, 42u);
  EXPECT_EQ(board.since(0).resources[0].rejections, 42u);
}

TEST_F(StatusBoard, WhatIsOfNoResourceIsNoResource) {
  rejects("", 33);
  EXPECT_THAT(board.since(0).resources, IsEmpty());
  EXPECT_THAT(board.since(0).rejections, SizeIs(1));
}

}  // namespace
}  // namespace fencegate::admin
