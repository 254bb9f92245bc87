#include "gate/postgres/pg_binding.hpp"

#include "unit/gate/postgres/pg_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate {
namespace {

using namespace test;
using gate::arm_reading;
using testing::ElementsAre;
using testing::HasSubstr;

gate::claims_list claims(std::string_view tag) { return *fence::parse_tag(tag); }

std::string claimed(std::vector<std::pair<std::string, std::string>> parameters) {
  const auto packet = start_packet(std::move(parameters));
  const auto found = gate::claims_of(**wire::decode_pg_opening(packet));
  if (!found) return "error";
  std::string out;
  for (const auto& c : *found) out += (out.empty() ? "" : ",") + c.resource + "=" + c.presented.to_string();
  return out;
}

TEST(PgBinding, FindsTheTagWhereverItStands) {
  EXPECT_EQ(claimed({}), "");
  EXPECT_EQ(claimed({{"options", "-c fencing.tokens=orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"fencing.tokens", "orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"Fencing.Tokens", "orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"application_name", "job fence:orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"Application_Name", "job fence:orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"options", "--application_name=fence:orders=34"}}), "orders=34");
  EXPECT_EQ(claimed({{"options", "-c fencing.tokens=orders=34"}, {"application_name", "fence:bills=7"}}),
            "orders=34,bills=7");
}

TEST(PgBinding, RefusesTagsThatDisagreeOrAreNone) {
  EXPECT_EQ(claimed({{"options", "-c fencing.tokens=orders=34 -c fencing.tokens=orders=35"}}), "error");
  EXPECT_EQ(claimed({{"options", "-c fencing.tokens=orders=34"}, {"application_name", "fence:orders=33"}}), "error");
  EXPECT_EQ(claimed({{"options", "-c fencing.tokens="}}), "error");
  EXPECT_EQ(claimed({{"application_name", "fence:orders=034"}}), "error");
}

std::string judged(const std::vector<std::string>& replies, std::string_view tag = "orders=34") {
  arm_reading reading(claims(tag));
  for (const auto& one : replies)
    if (reading.take(one[0], std::string_view(one).substr(wire::pg_head_bytes))) break;
  const auto outcome = reading.judge();
  if (outcome.armed) return "armed";
  return std::string(fence::terms_of(outcome.why.why).name) + ": " + outcome.why.detail;
}

TEST(PgArmReading, ArmsWhenEveryClaimIsProven) {
  EXPECT_EQ(judged(arm_replies({{"orders", "34"}})), "armed");
  EXPECT_EQ(judged(arm_replies({{"bills", "7"}, {"orders", "34"}}), "orders=34,bills=7"), "armed");
}

TEST(PgArmReading, ArmsNothingThatIsMissingDoubledOrOther) {
  using list = std::vector<std::pair<std::string, std::string>>;
  for (const auto& answer : std::vector<list>{{},
                                              {{"orders", "34"}},
                                              {{"orders", "34"}, {"orders", "34"}},
                                              {{"orders", "34"}, {"bills", "8"}},
                                              {{"orders", "34"}, {"bills", "07"}},
                                              {{"orders", "34"}, {"bill", "7"}},
                                              {{"orders", "34"}, {"bills", "7"}, {"bills", "7"}},
                                              {{"orders", "34"}, {"bills", "7"}, {"third", "1"}}})
    EXPECT_THAT(judged(arm_replies(answer), "orders=34,bills=7"), HasSubstr("unavailable"));
  for (const auto& columns : std::vector<std::vector<std::string>>{{},
                                                                   {"orders"},
                                                                   {"orders", "34"},
                                                                   {"orders", "34", "t"},
                                                                   {"orders", "34", "t", "0"},
                                                                   {"orders", "34", "t", "0", "0", "x"},
                                                                   {"nil", "34", "t", "0", "0"},
                                                                   {"orders", "nil", "t", "0", "0"},
                                                                   {"orders", "34", "nil", "0", "0"},
                                                                   {"orders", "34", "t", "nil", "0"}})
    EXPECT_THAT(judged({row(columns), ready('I')}), HasSubstr("unavailable"));
}

TEST(PgArmReading, ArmsNothingInATransactionOrBehindAnError) {
  for (const char status : {'T', 'E', 'X'})
    EXPECT_THAT(judged({row({"orders", "34", "t", "0", "0"}), ready(status)}), HasSubstr("unavailable")) << status;
  EXPECT_THAT(judged({row({"orders", "34", "t", "0", "0"}), error_of("ERROR", "40001"), ready('I')}),
              HasSubstr("unavailable"));
  EXPECT_THAT(judged({row({"orders", "34", "t", "0", "0"}), wire::encode_pg_message('E', "x"), ready('I')}),
              HasSubstr("unavailable"));
  EXPECT_THAT(judged({row({"orders", "34", "t", "0", "0"}), copy_in(), ready('I')}), HasSubstr("unavailable"));
}

TEST(PgArmReading, NamesWhatTheServerRefused) {
  arm_reading reading(claims("orders=33,payments=12"));
  const auto e = error_of("ERROR", "ZF001", "stale", R"({"resource": "orders", "token": 33, "mark": 34})");
  (void)reading.take('E', std::string_view(e).substr(wire::pg_head_bytes));
  (void)reading.take('Z', "I");
  const auto why = reading.judge().why;
  EXPECT_EQ(fence::describe(why), "token 33 of orders is below mark 34; not applied");
  EXPECT_THAT(judged({error_of("ERROR", "3F000"), ready('I')}), HasSubstr("run fencegate install"));
  EXPECT_EQ(judged({error_of("ERROR", "ZF006", "the mark of orders could not be checked: time is up (token 34)"),
                    ready('I')}),
            "unavailable: time is up");
}

TEST(PgBinding, AnErrorThatNamesNothingIsAboutTheOnlyClaim) {
  const wire::pg_error unnamed{"ERROR", "57014", "canceling statement", "", {}};
  EXPECT_EQ(gate::rejection_of(unnamed, claims("orders=33")).resource, "orders");
  EXPECT_EQ(gate::rejection_of(unnamed, claims("orders=33")).presented, fence::token(33));
  EXPECT_EQ(gate::rejection_of(unnamed, claims("orders=33,payments=12")).resource, "");
}

TEST(PgBinding, AStatementThatFailsHoldsNoTextOfAClientAsCode) {
  wire::pg_error e{"ERROR", "ZF003", "it's $fencegate$ \\", "{}", {}};
  EXPECT_EQ(gate::failing_statement(e),
            "DO LANGUAGE plpgsql $fencegate$BEGIN RAISE EXCEPTION USING ERRCODE='ZF003',"
            "MESSAGE='it''s ?fencegate? /',DETAIL='{}';END$fencegate$");
}

TEST(PgBinding, SaysWhatIsNotKnown) {
  const fence::rejection why{fence::reason::stale, "orders", fence::token(34), fence::token(35), {}};
  const auto certain = gate::pg_error_of(why, "FATAL");
  EXPECT_THAT(certain.message, HasSubstr("not applied"));
  EXPECT_EQ(certain.detail, R"({"resource":"orders","token":34,"mark":35,"applied":"no"})");
  const auto unknown = gate::pg_error_of(why, "FATAL", gate::applied::unknown);
  EXPECT_THAT(unknown.message, testing::Not(HasSubstr("not applied")));
  EXPECT_THAT(unknown.detail, HasSubstr(R"("applied":"unknown")"));
}

}  // namespace
}  // namespace fencegate
