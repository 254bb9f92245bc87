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

TEST(ConfigAddress, ReadsEachForm) {
  EXPECT_EQ(*parse_address("127.0.0.1:6380"), (settings::address{"127.0.0.1", 6380, ""}));
  EXPECT_EQ(*parse_address("[::1]:6380"), (settings::address{"::1", 6380, ""}));
  EXPECT_EQ(*parse_address(":6380"), (settings::address{"::", 6380, ""}));
  EXPECT_EQ(*parse_address("localhost:65535"), (settings::address{"localhost", 65535, ""}));
  EXPECT_EQ(*parse_address("unix:/run/x.sock"), (settings::address{"", 0, "/run/x.sock"}));
}

TEST(ConfigAddress, RejectsWhatCannotBeListenedOn) {
  const std::string path_too_long = "unix:/" + std::string(107, 'x');
  for (const auto& text : {std::string(""),
                           std::string("6380"),
                           std::string("host"),
                           std::string("host:"),
                           std::string("host:0"),
                           std::string("host:65536"),
                           std::string("host:x"),
                           std::string("::1:6380"),
                           std::string("[::1]"),
                           std::string("[host]:1"),
                           std::string("[]:1"),
                           std::string("10.0.0.256:1"),
                           std::string("127.1:1"),
                           std::string("a b:1"),
                           std::string("a/b:1"),
                           std::string("redis://h:1"),
                           std::string("unix:"),
                           std::string("unix:x.sock"),
                           std::string("127.0.0.1\0.evil:1", 17),
                           std::string("unix:/a\0b", 9),
                           path_too_long})
    EXPECT_FALSE(parse_address(text)) << text;
  EXPECT_TRUE(parse_address(path_too_long.substr(0, path_too_long.size() - 1)));
}

TEST(ConfigAddress, IsWrittenAsItIsRead) {
  for (const auto* text : {"127.0.0.1:6380", "[::1]:6380", "unix:/run/x.sock"})
    EXPECT_EQ(to_string(*parse_address(text)), text);
}

TEST(ConfigAddress, KnowsWhichListenersCollide) {
  const auto collide = [](const char* a, const char* b) { return overlap(*parse_address(a), *parse_address(b)); };
  EXPECT_TRUE(collide("127.0.0.1:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide(":1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("127.0.0.1:1", "0.0.0.0:1"));
  EXPECT_TRUE(collide("LOCALHOST:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("[::1]:1", "[0:0::1]:1"));
  EXPECT_TRUE(collide("unix:/a", "unix:/a"));
  EXPECT_FALSE(collide("127.0.0.1:1", "127.0.0.1:2"));
  EXPECT_FALSE(collide("127.0.0.1:1", "127.0.0.2:1"));
  EXPECT_FALSE(collide("unix:/a", "unix:/b"));
  EXPECT_FALSE(collide(":1", "unix:/a"));
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
