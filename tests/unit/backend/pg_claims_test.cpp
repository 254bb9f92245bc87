// Errors of the fence's functions in PostgreSQL, read back; statements that may not run behind a check.
#include "backend/pg_claims.hpp"

#include "backend/pg_store.hpp"

#include <gmock/gmock.h>
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

// The sentence that clients read is made by fence::describe(), of what is particular.
TEST(PgRejection, SaysNothingTwiceAndWhatToDo) {
  const auto said = [](const char* state, const char* sentence, const char* hint) {
    return fence::describe(rejection_of(
        {"ERROR", state, sentence, R"({"resource":"orders","token":32,"mark":null,"applied":"no"})", hint}, both));
  };
  EXPECT_EQ(said("ZF006",
                 "the mark of orders could not be checked: older sessions did not end in time (token 32); not applied",
                 "Try again."),
            "the mark of orders could not be checked: older sessions did not end in time (Try again.) (token 32); "
            "not applied");
  EXPECT_EQ(
      said("ZF006", "the mark could not be checked: fencegate may not end sessions; not applied", "GRANT a TO b;"),
      "the mark of orders could not be checked: fencegate may not end sessions (GRANT a TO b;) (token 32); "
      "not applied");
  EXPECT_EQ(said("ZF006", "the mark of a:b could not be checked: it moved (token 1, mark 2); not applied", ""),
            "the mark of orders could not be checked: it moved (token 32); not applied");
  EXPECT_EQ(said("ZF003", "no usable fencing token for a::: more than (32) resources; not applied", "A resource is …"),
            "no usable fencing token for orders: more than (32) resources (token 32); not applied");
  EXPECT_EQ(said("ZF007", "a superuser session cannot be fenced; not applied", "Connect as another role."),
            "a superuser session cannot be fenced for orders (token 32); not applied");
  EXPECT_EQ(said("ZF006", "something else", "x"),
            "the mark of orders could not be checked: something else (token 32); "
            "not applied");
}

TEST(PgRejection, KnowsTheLoweringOfTheMarkWhereTheServerSaysIt) {
  const std::vector<fence::claim> claims{{"orders", fence::token(32)}};
  const std::string detail = R"({"resource":"orders","token":32,"mark":33,"applied":"no")";
  EXPECT_EQ(rejection_of({"ERROR", "ZF001", "", detail + R"(,"lowering":7})", ""}, claims).lowering, 7U);
  EXPECT_EQ(rejection_of({"ERROR", "ZF001", "", detail + "}", ""}, claims).lowering, std::nullopt);
  EXPECT_EQ(rejection_of(stale_error(claims[0], {"orders", fence::token(33), 8}), claims).lowering, 8U);
}

TEST(PgClaims, LoweringsAreOneNumberOrSeveral) {
  using testing::ElementsAre;
  EXPECT_THAT(lowerings_of("7"), ElementsAre(7U));
  EXPECT_THAT(lowerings_of("{7}"), ElementsAre(7U));
  EXPECT_THAT(lowerings_of("{0,NULL,1795750321896655}"), ElementsAre(0U, std::nullopt, 1795750321896655U));
  for (const char* none : {"", "{}"}) EXPECT_THAT(lowerings_of(none), testing::IsEmpty());
  EXPECT_THAT(lowerings_of(std::nullopt), testing::IsEmpty());
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
