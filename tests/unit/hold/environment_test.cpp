#include "hold/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::hold {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;
using variables = std::vector<std::string>;

grant grant_of(const std::string& tag) {
  auto held = fence::parse_tag(tag);
  EXPECT_TRUE(held) << tag;
  return {.held = *held, .tag = tag, .id = "g1"};
}

variables of(const std::string& tag, const variables& inherited = {}) {
  auto made = environment_of(grant_of(tag), inherited);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : variables{};
}

std::string refused(const std::string& tag, const variables& inherited = {}) {
  auto made = environment_of(grant_of(tag), inherited);
  EXPECT_FALSE(made) << tag;
  return made ? "" : made.error().message;
}

TEST(Environment, OneResourceHasItsTokenUnderBothNames) {
  EXPECT_THAT(of("order:7=34", {"PATH=/bin", "EMPTY=", "odd"}),
              UnorderedElementsAre("PATH=/bin", "EMPTY=", "odd", "FENCING_TOKEN=34", "FENCING_RESOURCE=order:7",
                                   "FENCING_TOKEN_ORDER_7=34", "FENCE_TAG=order:7=34",
                                   "PGOPTIONS=-c fencing.tokens=order:7=34", "FENCEGATE_LEASE=g1"));
}

TEST(Environment, OfSeveralResourcesNoneIsTheOne) {
  EXPECT_THAT(
      of("a/b=1,c.D-e_f=9223372036854775807"),
      UnorderedElementsAre("FENCING_TOKEN_A_B=1", "FENCING_TOKEN_C_D_E_F=9223372036854775807",
                           "FENCE_TAG=a/b=1,c.D-e_f=9223372036854775807",
                           "PGOPTIONS=-c fencing.tokens=a/b=1,c.D-e_f=9223372036854775807", "FENCEGATE_LEASE=g1"));
}

// PGHOSTADDR would win over PGHOST.
TEST(Environment, APrivateGateOfPostgresIsWhereProgramsLook) {
  auto own = grant_of("a=1");
  own.gate = private_socket{"/run/x", true};
  const auto made = environment_of(own, {"PGHOST=db", "PGHOSTADDR=192.0.2.1", "PGSERVICE=main", "PGPORT=6432",
                                         "PGUSER=me", "FENCEGATE_SOCKET=/old"});
  ASSERT_TRUE(made);
  EXPECT_THAT(*made, UnorderedElementsAre("PGUSER=me", "FENCING_TOKEN=1", "FENCING_RESOURCE=a", "FENCING_TOKEN_A=1",
                                          "FENCE_TAG=a=1", "PGOPTIONS=-c fencing.tokens=a=1", "FENCEGATE_LEASE=g1",
                                          "PGHOST=/run/x", "PGPORT=5432", "FENCEGATE_SOCKET=/run/x/.s.PGSQL.5432"));
}

TEST(Environment, APrivateGateOfAnotherProtocolLeavesPostgresAlone) {
  auto own = grant_of("a=1");
  own.gate = private_socket{"/run/x", false};
  const auto made = environment_of(own, {"PGHOST=db", "PGPORT=6432"});
  ASSERT_TRUE(made);
  EXPECT_THAT(*made, testing::IsSupersetOf({"PGHOST=db", "PGPORT=6432", "FENCEGATE_SOCKET=/run/x/.s.PGSQL.5432"}));
  EXPECT_THAT(of("a=1", {"FENCEGATE_SOCKET=/old"}), Not(Contains(StartsWith("FENCEGATE_SOCKET"))));
}

// Its connections would be bound to the one, and the variables would say both.
TEST(Environment, APrivateGateStandsInNoOtherHold) {
  auto own = grant_of("a=1");
  EXPECT_THAT(refused("a=1", {"FENCE_TAG=b=2", "FENCEGATE_SOCKET=/run/y/.s.PGSQL.5432"}), HasSubstr("private gate"));
  own.gate = private_socket{"/run/x", false};
  const auto made = environment_of(own, {"FENCE_TAG=b=2"});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("hold all resources at once"));
}

TEST(Environment, TwoResourcesWithOneVariableAreAnError) {
  EXPECT_THAT(refused("order:7=1,order.7=2"), HasSubstr("FENCING_TOKEN_ORDER_7"));
  EXPECT_THAT(refused("orders=1,ORDERS=2"), HasSubstr("FENCING_TOKEN_ORDERS"));
  EXPECT_THAT(refused("order.7=2", {"FENCE_TAG=order:7=1"}), HasSubstr("FENCING_TOKEN_ORDER_7"));
}

// A token of an older hold, or of somebody's shell, must not be taken for ours.
TEST(Environment, InheritedTokensAreCleared) {
  const auto made =
      of("a=1,b=2", {"FENCING_TOKEN=9", "FENCING_RESOURCE=x", "FENCING_TOKEN_X=9", "FENCING_TOKEN_A=9",
                     "FENCEGATE_LEASE=old", "FENCE_TAG=", "FENCING_TOKENS=mine", "FENCEGATE_LEASES=mine"});
  EXPECT_THAT(made, UnorderedElementsAre("FENCING_TOKENS=mine", "FENCEGATE_LEASES=mine", "FENCING_TOKEN_A=1",
                                         "FENCING_TOKEN_B=2", "FENCE_TAG=a=1,b=2",
                                         "PGOPTIONS=-c fencing.tokens=a=1,b=2", "FENCEGATE_LEASE=g1"));
}

TEST(Environment, EachOfSeveralOfOneNameIsCleared) {
  EXPECT_THAT(of("a=1", {"FENCING_TOKEN=8", "FENCING_TOKEN=9", "FENCE_TAG=b=2", "FENCE_TAG=c=3"}),
              UnorderedElementsAre("FENCING_TOKEN=1", "FENCING_RESOURCE=a", "FENCING_TOKEN_A=1", "FENCING_TOKEN_B=2",
                                   "FENCE_TAG=b=2,a=1", "PGOPTIONS=-c fencing.tokens=b=2,a=1", "FENCEGATE_LEASE=g1"));
}

TEST(Environment, ANestedHoldAddsToTheOuterTag) {
  const auto outer = of("orders=34", {"PGOPTIONS=-c geqo=off"});
  const auto inner = of("payments=12", outer);
  EXPECT_THAT(inner, UnorderedElementsAre("FENCING_TOKEN=12", "FENCING_RESOURCE=payments", "FENCING_TOKEN_ORDERS=34",
                                          "FENCING_TOKEN_PAYMENTS=12", "FENCE_TAG=orders=34,payments=12",
                                          "PGOPTIONS=-c geqo=off -c fencing.tokens=orders=34,payments=12",
                                          "FENCEGATE_LEASE=g1"));
}

TEST(Environment, AnInnerHoldOfTheSameResourceIsAnError) {
  EXPECT_THAT(refused("orders=35", {"FENCE_TAG=a=1,orders=34"}), HasSubstr("an outer hold has \"orders\""));
  EXPECT_THAT(refused("orders=34", {"FENCE_TAG=orders=34"}), HasSubstr("an outer hold has \"orders\""));
}

TEST(Environment, AnOuterTagThatIsNoneIsAnError) {
  EXPECT_THAT(refused("a=1", {"FENCE_TAG=orders"}), StartsWith("FENCE_TAG, which hold was started with"));
}

TEST(Environment, BothTagsTogetherHaveTheLimitOfOne) {
  std::string outer = "r1=1";
  for (int i = 2; i <= 31; ++i) outer += ",r" + std::to_string(i) + "=1";
  EXPECT_THAT(of("a=1", {"FENCE_TAG=" + outer}), Contains("FENCE_TAG=" + outer + ",a=1"));
  EXPECT_THAT(refused("a=1,b=1", {"FENCE_TAG=" + outer}), HasSubstr("more than 32"));
}

TEST(PgOptions, KeepWhatTheyHad) {
  const auto with = [](const std::string& options) { return of("a=1", {"PGOPTIONS=" + options}); };
  const std::string ours = "-c fencing.tokens=a=1";
  EXPECT_THAT(with(""), Contains("PGOPTIONS=" + ours));
  EXPECT_THAT(with("  -c x=y\t-e "), Contains("PGOPTIONS=-c x=y -e " + ours));
  EXPECT_THAT(with(R"(-c application_name=a\ b\\ -e)"), Contains(R"(PGOPTIONS=-c application_name=a\ b\\ -e )" + ours));
  // Alone at the end, it would escape the blank, and hide what comes behind it.
  EXPECT_THAT(with(R"(-c x=y\)"), Contains("PGOPTIONS=-c x=y " + ours));
  EXPECT_THAT(with(R"(-c x=y\\)"), Contains(R"(PGOPTIONS=-c x=y\\ )" + ours));
}

TEST(PgOptions, LoseAnOuterTagInAnySpelling) {
  for (const std::string outer : {"-c fencing.tokens=b=1", "-cfencing.tokens=b=1", "--fencing.tokens=b=1",
                                  "-c Fencing.Tokens=b=1", "-c fencing.tokens="}) {
    EXPECT_THAT(of("a=1", {"PGOPTIONS=-c x=y " + outer + " -e"}), Contains("PGOPTIONS=-c x=y -e -c fencing.tokens=a=1"))
        << outer;
  }
  EXPECT_THAT(of("a=1", {"PGOPTIONS=-c fencing.tokens_of=b"}),
              Contains("PGOPTIONS=-c fencing.tokens_of=b -c fencing.tokens=a=1"));
}

TEST(PgOptions, ThatWouldHideTheTagAreAnError) {
  EXPECT_THAT(refused("a=1", {"PGOPTIONS=-c x=y --"}), HasSubstr("PGOPTIONS has \"--\""));
}

TEST(PgOptions, ATagIsOneWordWhateverItHas) {
  grant own = grant_of("a=1");
  own.tag = "a b\\c";
  const auto made = environment_of(own, {});
  ASSERT_TRUE(made);
  EXPECT_THAT(*made, Contains(R"(PGOPTIONS=-c fencing.tokens=a\ b\\c)"));
  EXPECT_THAT(*made, Not(Contains(HasSubstr("PGOPTIONS=-c fencing.tokens=a b"))));
}

}  // namespace
}  // namespace fencegate::hold
