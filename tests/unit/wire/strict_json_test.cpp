#include "wire/strict_json.hpp"

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

// The value written again, or the error.
std::string read(std::string_view text) {
  const auto parsed = parse_strict_json(text, 3);
  return parsed ? boost::json::serialize(*parsed) : parsed.error().message;
}

TEST(StrictJson, ReadsEveryKindOfValue) {
  EXPECT_EQ(read(" { \"a\" : [1, -2, true, null, \"t\\u0041\"], \"b\": {} } "),
            R"({"a":[1,-2,true,null,"tA"],"b":{}})");
}

TEST(StrictJson, WholeNumbersAreExact) {
  const auto most = parse_strict_json("9223372036854775807", 1);
  ASSERT_TRUE(most);
  EXPECT_EQ(most->as_int64(), INT64_MAX);
  EXPECT_FALSE(parse_strict_json("9223372036854775808", 1)->is_int64());
  EXPECT_FALSE(parse_strict_json("35.0", 1)->is_int64());
  EXPECT_FALSE(parse_strict_json("3e1", 1)->is_int64());
}

TEST(StrictJson, RefusesANameThatIsThereTwice) {
  EXPECT_EQ(read(R"({"a":1,"b":2,"a":3})"), "the member \"a\" is there twice");
  EXPECT_EQ(read(R"({"t":{"x":1,"\u0078":2}})"), "the member \"x\" is there twice");
  EXPECT_EQ(read(R"({"":1,"":2})"), "the member \"\" is there twice");
  EXPECT_EQ(read(R"([{"a":1},{"a":2},{"b":{"a":1},"a":2}])"), R"([{"a":1},{"a":2},{"b":{"a":1},"a":2}])");
  const std::string name(1000, 'n');
  EXPECT_LT(read("{\"" + name + "\":1,\"" + name + "\":2}").size(), 200u);
}

TEST(StrictJson, SaysWhatIsNoJson) {
  EXPECT_EQ(read(R"({"a":1} x)"), "no JSON: something stands behind the value at byte 8");
  EXPECT_EQ(read("[[[[1]]]]"), "no JSON: too deep at byte 3");
  for (const auto* text : {"", " ", "{", "{\"a\"}", "{\"a\":1,}", "[1 2]", "'a'", "nul", "01", "1.", "\"\xff\"",
                           "\"a\nb\"", "\"\\ud800\"", "{a:1}", "// c\n1"})
    EXPECT_TRUE(read(text).starts_with("no JSON: ")) << text << ": " << read(text);
}

}  // namespace
}  // namespace fencegate::wire
