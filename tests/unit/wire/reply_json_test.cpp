#include "wire/reply_json.hpp"

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

// What the reply's bytes become; always well-formed.
std::string json(std::string_view reply) {
  const auto parsed = parse_value(reply);
  if (!parsed || !*parsed) throw std::runtime_error("not one whole reply");
  std::string out;
  append_reply_json(out, (*parsed)->first);
  EXPECT_NO_THROW(boost::json::parse(out)) << out;
  return out;
}

TEST(ReplyJson, Strings) {
  EXPECT_EQ(json("+OK\r\n"), R"("OK")");
  EXPECT_EQ(json("$5\r\na\"b\r\n\r\n"), R"("a\"b\r\n")");
  EXPECT_EQ(json("$0\r\n\r\n"), R"("")");
  EXPECT_EQ(json("$2\r\n\xff\x01\r\n"), R"({"base64":"/wE="})");
  EXPECT_EQ(json("+\xff\r\n"), R"({"base64":"/w=="})");
  EXPECT_EQ(json("=7\r\ntxt:abc\r\n"), R"("abc")");
}

TEST(ReplyJson, Numbers) {
  EXPECT_EQ(json(":-9223372036854775808\r\n"), "-9223372036854775808");
  EXPECT_EQ(json("(3492890328409238509324850943850943825024385\r\n"), "3492890328409238509324850943850943825024385");
  EXPECT_EQ(json(",1.5e-07\r\n"), "1.5e-07");
  EXPECT_EQ(json(",inf\r\n"), R"("inf")");
  EXPECT_EQ(json(",nan\r\n"), R"("nan")");
}

TEST(ReplyJson, NothingAndTruth) {
  for (const auto* reply : {"$-1\r\n", "*-1\r\n", "_\r\n"}) EXPECT_EQ(json(reply), "null");
  EXPECT_EQ(json("#t\r\n"), "true");
  EXPECT_EQ(json("#f\r\n"), "false");
}

TEST(ReplyJson, Errors) {
  EXPECT_EQ(json("-WRONGTYPE \xff\r\n"), "{\"error\":\"WRONGTYPE \xEF\xBF\xBD\"}");
  EXPECT_EQ(json("!5\r\nERR \n\r\n"), R"({"error":"ERR \n"})");
}

TEST(ReplyJson, Arrays) {
  EXPECT_EQ(json("*0\r\n"), "[]");
  EXPECT_EQ(json("*3\r\n:1\r\n*1\r\n$-1\r\n-ERR x\r\n"), R"([1,[null],{"error":"ERR x"}])");
  EXPECT_EQ(json("~2\r\n+a\r\n+b\r\n"), R"(["a","b"])");
}

TEST(ReplyJson, MapsAreObjectsWhereTheyCanBe) {
  EXPECT_EQ(json("%2\r\n+a\r\n:1\r\n$1\r\nb\r\n%0\r\n"), R"({"a":1,"b":{}})");
  EXPECT_EQ(json("%1\r\n:1\r\n+a\r\n"), R"([1,"a"])");
  EXPECT_EQ(json("%2\r\n+a\r\n:1\r\n$1\r\na\r\n:2\r\n"), R"(["a",1,"a",2])");
  EXPECT_EQ(json("%1\r\n$1\r\n\xff\r\n:1\r\n"), R"([{"base64":"/w=="},1])");
}

}  // namespace
}  // namespace fencegate::wire
