#include "base/json_check.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fencegate {
namespace {

TEST(JsonCheck, TakesEveryKindOfValue) {
  for (const auto* text : {"0", "-1.5e+3", "true", "false", "null", "\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\\/\"", "[]",
                           "{}", " [ 1 , [ ] , { } , \"x\" ] ", "{\"a\":{\"b\":[{}]},\"a\":1}\t\r\n", "\"\xC3\xA9\"",
                           "[[[[]]],[]]", "[123456789012345678901234567890]"})
    EXPECT_TRUE(is_json(text)) << text;
}

TEST(JsonCheck, RefusesEverythingElse) {
  for (const auto* text : {"",
                           " ",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "-",
                           "1e",
                           "nul",
                           "True",
                           "nullx",
                           "1 2",
                           "[",
                           "]",
                           "[1",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "[1}",
                           "{",
                           "{\"a\"",
                           "{\"a\":",
                           "{\"a\":1",
                           "{\"a\"}",
                           "{a:1}",
                           "{\"a\":1,}",
                           "{,\"a\":1}",
                           "{1:2}",
                           "{\"a\",1}",
                           "{\"a\":1]",
                           "\"",
                           "\"a",
                           "\"\\\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"\n\"",
                           "\"\xFF\"",
                           "'a'",
                           "[1]]",
                           "{}{}",
                           "[]\x01",
                           "NaN",
                           "Infinity",
                           "/**/1"})
    EXPECT_FALSE(is_json(text)) << text;
  EXPECT_FALSE(is_json(std::string_view("1\0", 2)));
}

TEST(JsonCheck, GoesAsDeepAsItWants) {
  constexpr std::size_t levels = 1'000'000;
  const std::string open(levels, '['), close(levels, ']');
  EXPECT_TRUE(is_json(open + close));
  EXPECT_FALSE(is_json(open + close.substr(1)));
  EXPECT_FALSE(is_json(open + close + "]"));
}

}  // namespace
}  // namespace fencegate
