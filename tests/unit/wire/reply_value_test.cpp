#include "base/limits.hpp"
#include "wire/resp_reply.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

std::string show(const reply_value& value) {
  std::string out(1, value.type);
  if (value.null) {
    return out + "null";
  }
  out += value.text;
  if (!value.elements.empty()) {
    out += '[';
    for (const reply_value& element : value.elements) {
      out += show(element) + ' ';
    }
    out.back() = ']';
  }
  return out;
}

// The tree and its extent, "incomplete" or "malformed".
std::string parsed(std::string_view input) {
  const auto got = parse_value(input);
  if (!got) {
    return "malformed";
  }
  return *got ? show((*got)->first) + " " + std::to_string((*got)->second) : "incomplete";
}

TEST(ParseValue, ReadsEveryType) {
  EXPECT_EQ(parsed("+OK\r\n"), "+OK 5");
  EXPECT_EQ(parsed("-ERR x\r\n"), "-ERR x 8");
  EXPECT_EQ(parsed(":-12\r\n"), ":-12 6");
  EXPECT_EQ(parsed("$5\r\na\r\nbc\r\n"), "$a\r\nbc 11");
  EXPECT_EQ(parsed("$0\r\n\r\n"), "$ 6");
  EXPECT_EQ(parsed("#t\r\n"), "#t 4");
  EXPECT_EQ(parsed(",1.5\r\n"), ",1.5 6");
  EXPECT_EQ(parsed("(99999999999999999999\r\n"), "(99999999999999999999 23");
  EXPECT_EQ(parsed("=6\r\ntxt:ab\r\n"), "=txt:ab 12");
  EXPECT_EQ(parsed("!5\r\nERR x\r\n"), "!ERR x 11");
}

TEST(ParseValue, ReadsEveryNull) {
  EXPECT_EQ(parsed("_\r\n"), "_null 3");
  EXPECT_EQ(parsed("$-1\r\n"), "$null 5");
  EXPECT_EQ(parsed("*-1\r\n"), "*null 5");
  EXPECT_EQ(parsed("*0\r\n"), "* 4");
}

TEST(ParseValue, ReadsAggregates) {
  EXPECT_EQ(parsed("*3\r\n$2\r\n34\r\n$-1\r\n*1\r\n:1\r\n+next\r\n"), "*[$34 $null *[:1]] 25");
  EXPECT_EQ(parsed("%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n"), "%[+a ~[:1 :2]] 20");
  EXPECT_EQ(parsed(">2\r\n+invalidate\r\n_\r\n"), ">[+invalidate _null] 20");
}

TEST(ParseValue, SkipsAttributesAndInnerPushes) {
  EXPECT_EQ(parsed("|1\r\n+ttl\r\n:9\r\n|1\r\n+x\r\n:1\r\n:5\r\n"), ":5 30");
  EXPECT_EQ(parsed("*2\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n>1\r\n+x\r\n:2\r\n"), "*[:1 :2] 34");
  EXPECT_EQ(parsed("|1\r\n+ttl\r\n:9\r\n"), "incomplete");
}

TEST(ParseValue, EveryPrefixIsIncomplete) {
  const std::string_view input =
      "%1\r\n$3\r\nkey\r\n*3\r\n|1\r\n+a\r\n:1\r\n=5\r\ntxt:a\r\n>1\r\n#t\r\n(1\r\n!2\r\nno\r\n";
  for (std::size_t size = 0; size < input.size(); ++size) {
    EXPECT_EQ(parsed(input.substr(0, size)), "incomplete") << size;
  }
  EXPECT_EQ(parsed(input), "%[$key *[=txt:a (1 !no]] " + std::to_string(input.size()));
}

TEST(ParseValue, RefusesWhatIsMalformed) {
  for (const std::string_view input : {"?", "$1\r\naxx", "$1\r\nax", "$1\r\na\rx", "$-2\r\n", "*2\r\n:1\r\n:01\r\n",
                                       "%-1\r\n", "|1\r\n+a\r\n?", "*1\r\n$?\r\n", "+a\nb\r\n"}) {
    EXPECT_EQ(parsed(input), "malformed") << input;
  }
}

TEST(ParseValue, LimitsTheDepth) {
  std::string input;
  for (std::size_t i = 0; i < limits::resp_depth_max; ++i) {
    input += "*1\r\n";
  }
  EXPECT_TRUE(parse_value(input + ":1\r\n").has_value());
  EXPECT_EQ(parsed(input), "incomplete");
  EXPECT_EQ(parsed(input + "*1\r\n"), "malformed");
  EXPECT_NE(parsed(input + "*0\r\n"), "malformed");
}

TEST(ParseValue, BelievesNoDeclaredCount) {
  EXPECT_EQ(parsed("*281474976710656\r\n:1\r\n"), "incomplete");
  EXPECT_EQ(parsed("$281474976710656\r\nabc"), "incomplete");
  EXPECT_EQ(parsed("%281474976710656\r\n"), "incomplete");
}

}  // namespace
}  // namespace fencegate::wire
