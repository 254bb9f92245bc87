#include "fence/problem.hpp"

#include "base/utf8.hpp"

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::fence {
namespace {

using testing::HasSubstr;

boost::json::object read_back(const problem& p) {
  const auto text = problem_json(p);
  EXPECT_EQ(text.find_first_of("\r\n"), std::string::npos);
  return boost::json::parse(text).as_object();
}

std::string text(const boost::json::object& object, std::string_view name) {
  return std::string(object.at(name).as_string());
}

TEST(Problem, OfARejectionIsWhole) {
  const auto p = problem_of({reason::stale, "orders", token(33), token(34), ""});
  EXPECT_EQ(p.status, 412);
  EXPECT_EQ(problem_json(p),
            R"({"type":"urn:fencegate:stale","title":"Stale fencing token","status":412,)"
            R"("detail":"token 33 of orders is below mark 34; not applied","resource":"orders","token":33,"mark":34,)"
            R"("applied":"no"})");
}

TEST(Problem, OfEachReasonHasItsStatusAndSaysNotApplied) {
  for (int i = 0; i < reasons; ++i) {
    const auto& terms = terms_of(static_cast<reason>(i));
    const auto p = problem_of({static_cast<reason>(i), "", {}, {}, ""});
    const auto object = read_back(p);
    EXPECT_EQ(p.status, terms.http_status);
    EXPECT_EQ(object.at("status").as_int64(), terms.http_status);
    EXPECT_EQ(text(object, "type"), "urn:fencegate:" + std::string(terms.name));
    EXPECT_EQ(text(object, "title"), terms.title);
    EXPECT_EQ(text(object, "applied"), "no");
    for (const auto* absent : {"resource", "token", "mark", "sqlstate"}) EXPECT_FALSE(object.contains(absent));
  }
}

TEST(Problem, OfAMissingTokenSaysWhatToDo) {
  EXPECT_THAT(problem_of({reason::missing, "orders", {}, {}, ""}).detail, HasSubstr("header field Fencing-Token"));
  EXPECT_THAT(problem_of({reason::missing, "orders", {}, {}, "no claim"}).detail, HasSubstr("(no claim)"));
}

TEST(Problem, NumbersAreExact) {
  const auto p = problem_of({reason::stale, "orders", token(INT64_MAX - 1), token(INT64_MAX), ""});
  const auto object = read_back(p);
  EXPECT_EQ(object.at("token").as_int64(), INT64_MAX - 1);
  EXPECT_EQ(object.at("mark").as_int64(), INT64_MAX);
}

TEST(Problem, SaysUnknownWhereItIs) {
  const problem lost{.status = 502, .name = "unknown", .title = "Outcome unknown", .detail = "\"\xff\"\r\n"};
  const auto object = read_back(lost);
  EXPECT_EQ(text(object, "applied"), "unknown");
  EXPECT_EQ(text(object, "detail"), "\"\xEF\xBF\xBD\"\r\n");
}

TEST(Problem, OfStatementsFollowsTheSqlstate) {
  const struct {
    std::string_view sqlstate;
    int status;
    std::string_view name;
  } table[] = {
      {"ZF001", 412, "stale"},     {"ZF006", 503, "unavailable"}, {"ZF007", 403, "refused"},
      {"ZF004", 500, "statement"},  // 409 would prove that another request was applied
      {"22P02", 400, "data"},      {"23505", 409, "conflict"},    {"23503", 409, "conflict"},
      {"23502", 400, "data"},      {"23514", 400, "data"},        {"P0001", 400, "data"},
      {"40001", 503, "busy"},      {"40P01", 503, "busy"},        {"53300", 503, "busy"},
      {"55P03", 503, "busy"},      {"57014", 504, "timeout"},     {"42501", 403, "forbidden"},
      {"42601", 500, "statement"}, {"P0002", 500, "statement"},   {"ZF099", 500, "statement"},
      {"XX000", 500, "statement"}, {"", 500, "statement"},
  };
  for (const auto& [sqlstate, status, name] : table) {
    const auto p = problem_of(sql_error{.sqlstate = sqlstate, .message = "m"});
    EXPECT_EQ(p.status, status) << sqlstate;
    EXPECT_EQ(p.name, name) << sqlstate;
    EXPECT_EQ(p.applied, problem::effect::none);
    EXPECT_EQ(read_back(p).contains("sqlstate"), !sqlstate.empty());
  }
}

TEST(Problem, OfStatementsTellsWhatTheServerSaid) {
  const auto all = problem_of(sql_error{"23505", "duplicate key", "Key (id)=(5) already exists.", "Try another."});
  EXPECT_EQ(all.detail, "duplicate key; Key (id)=(5) already exists.; Try another.");
  EXPECT_EQ(problem_of(sql_error{"23505", "", "d"}).detail, "d");
}

TEST(Problem, IsBounded) {
  std::string longer = "x";
  for (std::size_t i = 0; i < detail_bytes_max; ++i) longer += "\xc3\xa4";
  problem p{.detail = longer, .resource = longer};
  EXPECT_LT(problem_json(p).size(), 2 * detail_bytes_max + 500);
  const auto detail = text(read_back(p), "detail");
  EXPECT_EQ(detail, longer.substr(0, detail_bytes_max - 1)) << "not cut inside a character";
}

}  // namespace
}  // namespace fencegate::fence
