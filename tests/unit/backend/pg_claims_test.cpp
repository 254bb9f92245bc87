// Errors of the fence's functions in PostgreSQL, read back; statements that may not run behind a check.
#include "backend/pg_claims.hpp"

#include "backend/pg_store.hpp"

#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using fence::reason;
using fence::token;

const std::vector<fence::claim> both{{"orders", token(32)}, {"a:b/c", token(7)}};

TEST(PgClaims, AreLiteralsOfArrays) {
  EXPECT_EQ(resources_of(both), "{\"orders\",\"a:b/c\"}");
  EXPECT_EQ(tokens_of(both), "{32,7}");
  EXPECT_EQ(resources_of({}), "{}");
}

TEST(PgRejection, SaysWhatTheFunctionSaid) {
  const auto r = rejection_of({"ERROR", "ZF001", "token 32 of orders is below mark 33; not applied",
                               R"({"resource":"orders","token":32,"mark":33,"applied":"no"})", ""},
                              both);
  EXPECT_EQ(r.why, reason::stale);
  EXPECT_EQ(r.resource, "orders");
  EXPECT_EQ(r.presented, token(32));
  EXPECT_EQ(r.mark, token(33));
  EXPECT_EQ(fence::describe(r), "token 32 of orders is below mark 33; not applied");
}

TEST(PgRejection, SaysWhichTokenWasUsed) {
  const auto r = rejection_of({"ERROR", "ZF004", "token 7 of a:b/c was used already (equal_token: reject); not applied",
                               R"({"resource":"a:b/c","token":7,"mark":7,"applied":"no"})", ""},
                              both);
  EXPECT_EQ(r.why, reason::equal);
  EXPECT_EQ(r.resource, "a:b/c");
  EXPECT_EQ(r.mark, token(7));
  EXPECT_EQ(fence::describe(r), "token 7 of a:b/c was used already (equal_token: reject); not applied");
}

TEST(PgRejection, TakesNothingFromADetailThatIsNotOurs) {
  for (const auto* detail : {"", "{", R"({"resource":"others","mark":33})", R"({"resource":null,"mark":33})",
                             R"({"resource":,"mark":})", R"({"resource":"orders)"}) {
    const auto r = rejection_of({"ERROR", "ZF001", "stale", detail, ""}, both);
    EXPECT_EQ(r.why, reason::stale) << detail;
    EXPECT_EQ(r.mark, std::nullopt) << detail;
  }
  const auto odd = rejection_of({"ERROR", "ZF001", "stale", R"({"resource":"orders","mark":-3})", ""}, both);
  EXPECT_EQ(odd.mark, std::nullopt);
}

TEST(PgRejection, AnyOtherErrorIsUnavailable) {
  const auto r = rejection_of({"ERROR", "3F000", "schema \"fencegate\" does not exist", "", ""}, both);
  EXPECT_EQ(r.why, reason::unavailable);
  EXPECT_EQ(r.detail, "schema \"fencegate\" does not exist (run fencegate install)");
}

TEST(PgRejection, KnowsWhenAMarkHasToBeRaisedFirst) {
  EXPECT_TRUE(is_not_raised({"ERROR", "ZF006", "", R"({"mark":1,"applied":"no","not_raised":true})", ""}));
  EXPECT_FALSE(is_not_raised({"ERROR", "ZF006", "", R"({"mark":1,"applied":"no"})", ""}));
  EXPECT_FALSE(is_not_raised({"ERROR", "ZF001", "", R"({"not_raised":true})", ""}));
}

TEST(UnfitStatement, RefusesWhatEndsTheTransactionOrChangesTheSession) {
  for (const auto* sql : {"COMMIT", "rollback", "/**/ End", "-- x\nABORT", "BEGIN", "START TRANSACTION", "SAVEPOINT a",
                          "RELEASE a", "PREPARE TRANSACTION 'x'", "SET x = 1", "RESET ALL", "DISCARD ALL", "LISTEN a",
                          "COPY t FROM STDIN", "", ";", "SELECT 1; COMMIT"})
    EXPECT_NE(unfit_statement(sql), "") << sql;
}

TEST(UnfitStatement, LetsStatementsPass) {
  for (const auto* sql : {"INSERT INTO t VALUES ($1)", "select 'commit'", "WITH a AS (SELECT 1) UPDATE t SET x = 1",
                          "SELECT 1;", "CALL p($1)", "(SELECT 1)", "LOCK TABLE t"})
    EXPECT_EQ(unfit_statement(sql), "") << sql;
}

}  // namespace
}  // namespace fencegate::backend
