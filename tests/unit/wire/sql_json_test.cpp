#include "wire/sql_json.hpp"

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using text = std::optional<std::string_view>;

std::string json(std::uint32_t type, text value) {
  std::string out;
  append_sql_value(out, type, value);
  EXPECT_NO_THROW(boost::json::parse(out)) << out;
  return out;
}

std::string row(const std::vector<sql_column>& columns, const std::vector<text>& values) {
  std::string out;
  sql_row_writer(columns).append(out, values);
  EXPECT_NO_THROW(boost::json::parse(out)) << out;
  return out;
}

TEST(SqlJson, NullIsNullOfAnyType) {
  for (const std::uint32_t type : {16U, 20U, 25U, 114U, 0U}) EXPECT_EQ(json(type, std::nullopt), "null");
}

TEST(SqlJson, Booleans) {
  EXPECT_EQ(json(16, "t"), "true");
  EXPECT_EQ(json(16, "f"), "false");
  EXPECT_EQ(json(16, "maybe"), R"("maybe")");
}

TEST(SqlJson, NumbersKeepTheirDigits) {
  EXPECT_EQ(json(21, "-7"), "-7");
  EXPECT_EQ(json(23, "42"), "42");
  EXPECT_EQ(json(20, "9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(json(26, "4294967295"), "4294967295");
  EXPECT_EQ(json(701, "1e+300"), "1e+300");
  EXPECT_EQ(json(700, "-0"), "-0");
  EXPECT_EQ(json(1700, "1.10"), "1.10");
  EXPECT_EQ(json(1700, "123456789012345678901234567890.123"), "123456789012345678901234567890.123");
}

TEST(SqlJson, WhatIsNoNumberIsAString) {
  for (const std::uint32_t type : {20U, 21U, 23U, 26U, 700U, 701U, 1700U}) {
    for (const auto* value : {"NaN", "Infinity", "-Infinity", "", "1,2", "1}"}) {
      EXPECT_EQ(json(type, value), '"' + std::string(value) + '"');
    }
  }
}

TEST(SqlJson, DocumentsStandAsTheyAre) {
  for (const std::uint32_t type : {114U, 3802U}) {
    for (const auto* value :
         {R"({"a": [1.10, "x"], "b": null})", " [1]\n", "\"x\"", "12345678901234567890123", "true"}) {
      EXPECT_EQ(json(type, value), value);
    }
  }
}

TEST(SqlJson, WhatIsNoDocumentIsAString) {
  for (const auto* value : {"", "{", "1 2", "{\"a\":1},\"b\":2", "nul", "[1,]", "// x", "NaN", "{a:1}"}) {
    EXPECT_EQ(boost::json::parse(json(114, value)).as_string(), value);
  }
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  std::string out;
  append_sql_value(out, 114, deep);
  EXPECT_EQ(out, deep) << "however deep";
  EXPECT_EQ(json(114, "\"\xff\""), R"({"base64":"Iv8i"})");
}

TEST(SqlJson, EverythingElseIsItsText) {
  EXPECT_EQ(json(25, "a\"b"), R"("a\"b")");
  EXPECT_EQ(json(25, "7"), R"("7")");
  EXPECT_EQ(json(17, "\\xdeadbeef"), R"("\\xdeadbeef")");
  EXPECT_EQ(json(1007, "{1,2}"), R"("{1,2}")");
  EXPECT_EQ(json(1184, "2026-01-02 03:04:05+00"), R"("2026-01-02 03:04:05+00")");
  EXPECT_EQ(json(25, "\xff"), R"({"base64":"/w=="})");
}

TEST(SqlJson, RowsAreObjects) {
  EXPECT_EQ(row({{"id", 20}, {"name", 25}, {"gone", 25}}, {"1", "x", std::nullopt}),
            R"({"id":1,"name":"x","gone":null})");
  EXPECT_EQ(row({}, {}), "{}");
  EXPECT_EQ(row({{"a\"\xff", 23}}, {"1"}), "{\"a\\\"\xEF\xBF\xBD\":1}");
}

TEST(SqlJson, NoNameStandsTwice) {
  EXPECT_EQ(row({{"a", 23}, {"a", 23}, {"a_2", 23}, {"a", 23}}, {"1", "2", "3", "4"}),
            R"({"a":1,"a_2":2,"a_2_2":3,"a_3":4})");
}

}  // namespace
}  // namespace fencegate::wire
