#include "gate/redis/blocking.hpp"

#include <gtest/gtest.h>

namespace fencegate::gate {
namespace {

using std::chrono::milliseconds;

std::optional<milliseconds> timeout(std::vector<std::string_view> words) { return blocking_timeout(words); }

TEST(Blocking, TheTimeoutStandsLast) {
  EXPECT_EQ(timeout({"BLPOP", "a", "b", "2"}), milliseconds(2000));
  EXPECT_EQ(timeout({"BRPOP", "a", "0.5"}), milliseconds(500));
  EXPECT_EQ(timeout({"BLMOVE", "a", "b", "LEFT", "LEFT", "1"}), milliseconds(1000));
  EXPECT_EQ(timeout({"BZPOPMIN", "a", "0"}), milliseconds(0));
}

TEST(Blocking, OrFirst) {
  EXPECT_EQ(timeout({"BLMPOP", "3", "1", "a", "LEFT"}), milliseconds(3000));
  EXPECT_EQ(timeout({"bzmpop", "0.001", "1", "a", "MIN"}), milliseconds(1));
}

TEST(Blocking, OrBehindAWord) {
  EXPECT_EQ(timeout({"XREADGROUP", "GROUP", "g", "c", "BLOCK", "250", "STREAMS", "s", ">"}), milliseconds(250));
  EXPECT_EQ(timeout({"XREADGROUP", "GROUP", "g", "c", "STREAMS", "BLOCK", ">"}), std::nullopt);  // a key of this name
  EXPECT_EQ(timeout({"XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"}), std::nullopt);
}

TEST(Blocking, ALittleIsNotForEver) { EXPECT_EQ(timeout({"BLPOP", "a", "0.0000001"}), milliseconds(1)); }

TEST(Blocking, WhatTheServerWillRefuseDoesNotBlock) {
  for (const auto* text : {"-1", "x", "", "1x", "nan", "inf", "1e400"})
    EXPECT_EQ(timeout({"BLPOP", "a", text}), std::nullopt) << text;
  EXPECT_EQ(timeout({"BLPOP", "1"}), std::nullopt);
}

TEST(Blocking, AnAgeIsForEver) { EXPECT_EQ(timeout({"BLPOP", "a", "1e15"}), milliseconds(0)); }

}  // namespace
}  // namespace fencegate::gate
