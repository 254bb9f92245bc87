#include "base/json_text.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

namespace fencegate {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string text(std::string_view value) {
  std::string out;
  append_json_string(out, value);
  return out;
}

std::string bytes(std::string_view value) {
  std::string out;
  append_json_bytes(out, value);
  return out;
}

TEST(JsonText, StringsAreEscapedAsFarAsNeeded) {
  EXPECT_EQ(text(""), R"("")");
  EXPECT_EQ(text("a/b <\x7f> \xc3\xa4"), "\"a/b <\x7f> \xc3\xa4\"");
  EXPECT_EQ(text("\"\\\n\r\t\b\x1f\0"sv), R"("\"\\\n\r\t\u0008\u001f\u0000")");
}

TEST(JsonText, EveryTextIsReadBack) {
  std::string every;
  for (int c = 1; c < 0x80; ++c) every += static_cast<char>(c);
  every += "\xc2\x80 \xe2\x82\xac \xf0\x9f\x94\x92"s;
  EXPECT_EQ(boost::json::parse(text(every)).as_string(), every);
}

TEST(JsonText, BytesThatAreNoUtf8AreReplacedOneByOne) {
  EXPECT_EQ(text("a\xff\xc3z"), "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\"");
  EXPECT_EQ(text("\xed\xa0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonText, BytesThatMustNotBeLostAreBase64) {
  EXPECT_EQ(bytes("abc"), R"("abc")");
  EXPECT_EQ(bytes("\xff"), R"({"base64":"/w=="})");
  EXPECT_EQ(bytes("\xff\xfe"), R"({"base64":"//4="})");
  EXPECT_EQ(bytes("\xff\xfe\x00"sv), R"({"base64":"//4A"})");
  EXPECT_EQ(bytes("abcde\xff"), R"({"base64":"YWJjZGX/"})");
}

TEST(JsonText, NumbersAreThoseOfTheGrammar) {
  for (const auto* number :
       {"0", "-0", "7", "-12", "9223372036854775808123", "1.50", "0.1", "1e5", "1E+5", "1.5e-07", "1e-9999"}) {
    EXPECT_TRUE(is_json_number(number)) << number;
  }
  for (const auto* number :
       {"",         "-",         "+1", "01", "-01", "00",  "1.",    ".5",    "1e",       "1e+", "NaN",
        "Infinity", "-Infinity", "1 ", " 1", "0x1", "1_0", "1.5.5", "1e5.5", "1e+77777", "1,5", "--1"}) {
    EXPECT_FALSE(is_json_number(number)) << number;
  }
}

TEST(JsonText, ObjectsHaveTheirCommas) {
  std::string out;
  json_object empty(out);
  empty.end();
  EXPECT_EQ(out, "{}");

  out.clear();
  json_object object(out);
  object.add("a\"", "b");
  object.add("n", INT64_MIN);
  object.name("inner");
  out += "[]";
  object.add_list("none", {});
  object.add_list("list", {"x", "y\""});
  object.end();
  EXPECT_EQ(out, R"({"a\"":"b","n":-9223372036854775808,"inner":[],"none":[],"list":["x","y\""]})");
  EXPECT_EQ(boost::json::serialize(boost::json::parse(out)), out);
}

}  // namespace
}  // namespace fencegate
