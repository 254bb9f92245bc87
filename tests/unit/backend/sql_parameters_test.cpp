#include "backend/sql_parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::size_t> numbers(std::string_view sql) {
  std::vector<std::size_t> out;
  for (const auto& [number, what] : sql_parameters(sql)) out.push_back(number);
  return out;
}

sql_parameter first(std::string_view sql) { return sql_parameters(sql).at(1); }

TEST(SqlParameters, AreThoseOutsideOfQuotes) {
  EXPECT_THAT(numbers("select $2, '$3', \"$4\", $1"), ElementsAre(1, 2));
  EXPECT_THAT(numbers("select 'it''s $1'"), IsEmpty());
  EXPECT_THAT(numbers("select $x, $"), IsEmpty());
}

TEST(SqlParameters, GoAsBytesWhereTheyAreByteaEverywhere) {
  for (const auto* sql : {"$1::bytea", "f($1::BYTEA)", "$1::bytea || $1::bytea", "$1::bytea\n, 2", "($1)::bytea",
                          "((  $1 ) ) :: bytea", "$1 :: pg_catalog . bytea", "CAST($1 AS bytea)",
                          "x || cast ( ($1) as pg_catalog.bytea ) || ($1)::bytea", "f(($1)::bytea)"})
    EXPECT_TRUE(first(sql).bytea) << sql;
  for (const auto* sql : {"$1",
                          "$1::byte",
                          "$1::bytea || $1",
                          "$1 || $1::bytea",
                          "$1::bytea[]",
                          "$1::bytea []",
                          "$1::byteas",
                          "$1::bytea_2",
                          "$1::text::bytea",
                          "'$1::bytea' || $1",
                          "$1::jsonb",
                          "f($1)::bytea",
                          "f ($1)::bytea",
                          "($1 || 'a')::bytea",
                          "('a' || $1)::bytea",
                          "cast($1 as bytea[])",
                          "forecast($1 as bytea)",
                          "($1",
                          "(($1)",
                          "$1::",
                          "$1::x.bytea",
                          "$1::bytea.x",
                          "cast($1 as"})
    EXPECT_FALSE(first(sql).bytea) << sql;
}

TEST(SqlParameters, AreTextWhereNothingElseIsMadeOfThem) {
  for (const auto* sql : {"a = $1::text", "a = ($1)::varchar", "a = cast($1 as text) or b = $1::text"})
    EXPECT_TRUE(first(sql).text) << sql;
  for (const auto* sql : {"a = $1", "a = $1::int", "a = $1::text or b = $1", "a = $1::citext", "a = $1::text[]"})
    EXPECT_FALSE(first(sql).text) << sql;
}

}  // namespace
}  // namespace fencegate::backend
