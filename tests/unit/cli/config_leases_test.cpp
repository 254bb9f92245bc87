#include "cli/config_leases.hpp"

#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string stores = R"(
stores:
  ledger: { url: "postgres://gate@127.0.0.1/app" }
  other: { url: "postgres://gate@127.0.0.1/other" }
  cache: { url: "redis://127.0.0.1" }
)";

using LeasesConfigTest = ConfigTest;

TEST_F(LeasesConfigTest, OneIssuerIsTheIssuerAndNoGateIsNeeded) {
  const auto leases = settings_of(stores + "leases: { issuers: { main: { store: ledger } } }").leased;
  ASSERT_EQ(leases.issuers.size(), 1u);
  EXPECT_EQ(leases.issuers[0].store, "ledger");
  EXPECT_EQ(leases.issuer, "main");
  EXPECT_EQ(leases.ttl, milliseconds(30'000));
  EXPECT_EQ(timing_of(leases, leases.ttl).act_for(), milliseconds(24'000));
}

TEST_F(LeasesConfigTest, ARedisStoreMayGrantLeases) {
  EXPECT_EQ(settings_of(stores + "leases: { issuers: { main: { store: cache } } }").leased.issuers[0].store, "cache");
}

TEST_F(LeasesConfigTest, RulesNameIssuersAndPlaces) {
  const auto leases = settings_of(stores + R"(
leases:
  issuers: { main: { store: ledger }, second: { store: other } }
  issuer: main
  resources:
    - { match: "orders*", issuer: second, lock_delay: 2s, seal: ["store:ledger", "store:other"] }
    - { match: "*" }
)")
                          .leased;
  ASSERT_EQ(leases.resources.size(), 2u);
  EXPECT_TRUE(leases.resources[0].match.match("orders:7"));
  EXPECT_FALSE(leases.resources[0].match.match("payments"));
  EXPECT_EQ(leases.resources[0].issuer, "second");
  EXPECT_EQ(leases.resources[0].lock_delay, milliseconds(2'000));
  EXPECT_THAT(leases.resources[0].seal, ElementsAre("store:ledger", "store:other"));
  EXPECT_EQ(leases.resources[1].issuer, "main");
  EXPECT_THAT(leases.resources[1].seal, IsEmpty());
}

TEST_F(LeasesConfigTest, WhatIsWrongIsSaidWithItsPlace) {
  const auto of = [&](const std::string& leases) { return errors_of(stores + "leases: { " + leases + " }"); };
  EXPECT_THAT(of("ttl: 30s"), ElementsAre(HasSubstr("leases needs the key \"issuers\"")));
  EXPECT_THAT(of("issuers: { main: { store: nowhere } }"), Contains(HasSubstr("there is no store named nowhere")));
  EXPECT_THAT(of("issuers: { a: { store: ledger }, b: { store: other } }"),
              ElementsAre(HasSubstr("leases needs the key \"issuer\"")));
  EXPECT_THAT(of("issuers: { a: { store: ledger } }, issuer: b"), Contains(HasSubstr("there is no issuer named b")));
  EXPECT_THAT(of("issuers: { a: { store: ledger } }, ttl: 3s"), ElementsAre(HasSubstr("not available: ")));
  EXPECT_THAT(of("issuers: { a: { store: ledger } }, margin: 100ms"), ElementsAre(HasSubstr("not safe: margin")));
  EXPECT_THAT(of("issuers: { a: { store: ledger } }, resources: [{ match: x, seal: [] }]"),
              ElementsAre(HasSubstr("sealed nowhere")));
  EXPECT_THAT(of("issuers: { a: { store: ledger } }, resources: [{ match: x, seal: [\"gate:nobody\"] }]"),
              ElementsAre(HasSubstr("gate:nobody is neither gate:NAME nor store:NAME")));
}

}  // namespace
}  // namespace fencegate::cli
