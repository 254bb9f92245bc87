#include "cli/config_values.hpp"

#include <gtest/gtest.h>

#include <array>

namespace fencegate::cli {
namespace {

std::optional<std::string> test_variable(const std::string& name) {
  if (name == "NAME") return "va$lue";
  if (name == "SECRET") return "p@ss/w:rd%";
  if (name == "EMPTY") return "";
  return std::nullopt;
}

std::string expanded(std::string_view text) {
  const auto out = expand(text, test_variable);
  return out ? *out : "error: " + out.error().message;
}

TEST(ConfigExpand, ReplacesVariablesAndDollarSigns) {
  EXPECT_EQ(expanded("plain"), "plain");
  EXPECT_EQ(expanded("a${NAME}b${EMPTY}c"), "ava$luebc");
  EXPECT_EQ(expanded("$${NAME}$$"), "${NAME}$");
}

TEST(ConfigExpand, DoesNotExpandWhatAVariableHolds) {
  const auto twice = [](const std::string& name) -> std::optional<std::string> { return name == "A" ? "${B}" : "no"; };
  EXPECT_EQ(*expand("${A}", twice), "${B}");
}

TEST(ConfigExpand, RejectsUnknownVariablesAndLoneDollarSigns) {
  EXPECT_EQ(expanded("${NOPE}"), "error: the environment variable NOPE is not set");
  for (const auto* text : {"$NAME", "a$", "${", "${NAME", "${}", "${1A}", "${A-B}", "${NAME:-x}"})
    EXPECT_TRUE(expanded(text).starts_with("error: ")) << text;
}

TEST(ConfigExpand, EncodesVariablesInTheUserAndPasswordOfAUrl) {
  EXPECT_EQ(*expand_url("redis://u:${SECRET}@h:1", test_variable), "redis://u:p%40ss%2Fw%3Ard%25@h:1");
  EXPECT_EQ(*expand_url("redis://${SECRET}", test_variable), "redis://p@ss/w:rd%");
  EXPECT_EQ(*expand_url("${SECRET}://u@h", test_variable), "p@ss/w:rd%://u@h");
}

TEST(ConfigSuggestion, NamesTheNearestWord) {
  constexpr std::array<std::string_view, 3> words{"listen", "upstream", "policy"};
  EXPECT_EQ(suggestion("lisen", words), " (did you mean \"listen\"?)");
  EXPECT_EQ(suggestion("upstraem", words), " (did you mean \"upstream\"?)");
  EXPECT_EQ(suggestion("Policy", words), " (did you mean \"policy\"?)");
  EXPECT_EQ(suggestion("zebra", words), "");
  EXPECT_EQ(suggestion(std::string(100'000, 'p'), words), "");
}

}  // namespace
}  // namespace fencegate::cli
