#include "backend/sql_parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(SqlParameters, AreThoseOutsideOfQuotes) {
  EXPECT_THAT(sql_parameters("select $2, '$3', \"$4\", $1"), ElementsAre(Pair(1, false), Pair(2, false)));
  EXPECT_THAT(sql_parameters("select 'it''s $1'"), IsEmpty());
  EXPECT_THAT(sql_parameters("select $x, $"), IsEmpty());
}

TEST(SqlParameters, GoAsBytesWhereTheyAreByteaEverywhere) {
  for (const auto* sql : {"$1::bytea", "f($1::BYTEA)", "$1::bytea || $1::bytea", "$1::bytea\n, 2"})
    EXPECT_THAT(sql_parameters(sql), ElementsAre(Pair(1, true))) << sql;
  for (const auto* sql : {"$1", "$1::byte", "$1::bytea || $1", "$1 || $1::bytea", "$1::bytea[]", "$1::bytea []",
                          "$1::byteas", "$1::bytea_2", "$1::text::bytea", "'$1::bytea' || $1", "$1::jsonb"})
    EXPECT_THAT(sql_parameters(sql), ElementsAre(Pair(1, false))) << sql;
}

}  // namespace
}  // namespace fencegate::backend
