#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string lease_gate_stores = R"(
stores:
  ledger: { url: "postgres://gate@127.0.0.1/app" }
  other: { url: "postgres://gate@127.0.0.1/other" }
  cache: { url: "redis://127.0.0.1" }
)";

const std::string lease_section = R"(
leases:
  listen: "unix:/run/fencegate/lease.sock"
  state_dir: /run/fencegate/state
  issuers: { main: { store: ledger }, second: { store: other } }
  issuer: main
)";

std::string redis_gate(const std::string& keys) {
  return "  - { name: cache, protocol: redis, listen: 127.0.0.1:6380, upstream: redis://127.0.0.1, " + keys + " }\n";
}
std::string postgres_gate(const std::string& keys) {
  return "  - { name: db, protocol: postgres, listen: 127.0.0.1:6432, upstream: postgres://gate@127.0.0.1/app, " +
         keys + " }\n";
}
std::string http_gate(const std::string& keys) {
  return "  - { name: web, protocol: http, listen: 127.0.0.1:8081, upstream: http://127.0.0.1:8080, store: cache, " +
         keys + " }\n";
}

class LeaseGatesConfigTest : public ConfigTest {
 protected:
  [[nodiscard]] std::vector<std::string> errors(const std::string& gates,
                                                const std::string& of_leases = lease_section) const {
    auto out = errors_of(lease_gate_stores + of_leases + "gates:\n" + gates);
    for (auto& one : out) one = one.substr(one.find(' ') + 1);
    return out;
  }
};

TEST_F(LeaseGatesConfigTest, TheirDefaults) {
  const auto all = settings_of(lease_gate_stores + lease_section + "gates:\n" + redis_gate("lease: orders"));
  const auto& gate = all.redis_gates.at(0).leased;
  EXPECT_THAT(gate.resources, ElementsAre("orders"));
  EXPECT_EQ(gate.writer, "default");
  EXPECT_FALSE(gate.rebinds);
  EXPECT_FALSE(gate.waits);
  EXPECT_EQ(gate.standby_wait, milliseconds(20'000));
  ASSERT_EQ(all.leased.writers.size(), 1u);
  EXPECT_EQ(all.leased.writers[0].name, "default");
  EXPECT_EQ(all.leased.writers[0].writer_timeout, milliseconds(30'000));
}

TEST_F(LeaseGatesConfigTest, AllThatTheyMaySay) {
  const auto all = settings_of(
      lease_gate_stores + lease_section +
      "  writers: { app: { containers: [app, worker], writer_timeout: 5s } }\n  probes: \":9182\"\ngates:\n" +
      redis_gate("lease: [orders, stock], writer: app, on_loss: rebind, standby: wait, standby_wait: 3s") +
      postgres_gate("lease: orders, writer: app, on_loss: rebind"));
  const auto& gate = all.redis_gates.at(0).leased;
  EXPECT_THAT(gate.resources, ElementsAre("orders", "stock"));
  EXPECT_TRUE(gate.rebinds && gate.waits);
  EXPECT_EQ(gate.standby_wait, milliseconds(3'000));
  ASSERT_EQ(all.leased.writers.size(), 1u);
  EXPECT_THAT(all.leased.writers[0].containers, ElementsAre("app", "worker"));
  EXPECT_EQ(all.leased.probes->port, 9182);
}

TEST_F(LeaseGatesConfigTest, TheirRulesAndRoutesAreAboutTheLease) {
  const auto about = HasSubstr("each rule must be about a resource of the key lease");
  EXPECT_THAT(errors(redis_gate(R"(lease: orders, resources: [{ keys: "a:*", resource: orders }])")), IsEmpty());
  EXPECT_THAT(errors(redis_gate(R"(lease: orders, resources: [{ keys: "a:*", resource: stock }])")),
              ElementsAre(about));
  EXPECT_THAT(errors(redis_gate(R"(lease: orders, resources: [{ keys: "{*}", resource: "*" }])")),
              testing::Not(IsEmpty()));
  EXPECT_THAT(errors(http_gate(R"(lease: orders, routes: [{ match: "PUT /a/{id}", resource: orders }])")), IsEmpty());
  EXPECT_THAT(errors(http_gate(R"(lease: orders, routes: [{ match: "PUT /a/{id}", resource: "order:{id}" }])")),
              ElementsAre(HasSubstr("order:{id} is none")));
}

TEST_F(LeaseGatesConfigTest, WhatCannotBe) {
  EXPECT_THAT(errors(redis_gate("lease: orders, policy: { equal_token: reject }"))[0],
              HasSubstr("equal_token: reject"));
  EXPECT_THAT(errors(redis_gate("writer: app")), ElementsAre("writer needs the key lease"));
  EXPECT_THAT(errors(redis_gate("lease: \"a b\""))[0], HasSubstr("a resource is 1 to 200"));
  EXPECT_THAT(errors(redis_gate("lease: orders, standby_wait: 3s")), ElementsAre("standby_wait needs standby: wait"));
  EXPECT_THAT(errors(redis_gate("lease: orders, tag_from: listen, tag: orders=3")),
              ElementsAre(HasSubstr("has a tag already")));
  EXPECT_THAT(errors(redis_gate("lease: orders") + postgres_gate("lease: orders, writer: app")),
              ElementsAre(HasSubstr("the gates of writer default hold orders already")));
  EXPECT_THAT(errors(redis_gate("lease: orders") + postgres_gate("lease: stock, on_loss: rebind")),
              ElementsAre(HasSubstr("gates of one writer have the same on_loss")));
  EXPECT_THAT(errors(redis_gate("lease: orders"), lease_section + "  writers: { app: {} }\n"),
              ElementsAre(HasSubstr("no gate with a lease has the writer app")));
  EXPECT_THAT(errors(redis_gate("policy: {}"), lease_section + "  probes: \":9182\"\n"),
              ElementsAre(HasSubstr("probes: there is no gate")));
  EXPECT_THAT(errors(redis_gate("lease: orders"), ""), testing::Contains(HasSubstr("has no section leases")));
}

TEST_F(LeaseGatesConfigTest, NamesOfAWriterAndItsContainers) {
  const auto about = [this](const std::string& writers) {
    return errors(redis_gate("lease: orders, writer: app"),
                  lease_section + "  writers: { app: { " + writers + " } }\n");
  };
  EXPECT_THAT(about("containers: [app, worker]"), IsEmpty());
  EXPECT_THAT(about("containers: [app, app]"), ElementsAre("the container app is named twice"));
  EXPECT_THAT(about("containers: []"), ElementsAre(HasSubstr("containers names at least one")));
  for (const auto* name : {".", ".."})
    EXPECT_THAT(errors(redis_gate("lease: orders, writer: " + std::string(name))),
                testing::Contains(HasSubstr("and is not . or ..")));
}

TEST_F(LeaseGatesConfigTest, RestartNeedsAPlaceForTheTermAndOneForReports) {
  const std::string bare = "leases: { issuers: { main: { store: ledger } } }\n";
  EXPECT_THAT(errors(redis_gate("lease: orders"), bare),
              ElementsAre(HasSubstr("leases.state_dir"), HasSubstr("a unix socket")));
  EXPECT_THAT(errors(redis_gate("lease: orders, on_loss: rebind"), bare), IsEmpty());
}

TEST_F(LeaseGatesConfigTest, OneIssuerGrantsAll) {
  const auto rule = lease_section + "  resources: [{ match: stock, issuer: second }]\n";
  EXPECT_THAT(errors(redis_gate("lease: [orders, stock]"), rule), ElementsAre(HasSubstr("have one issuer")));
  EXPECT_THAT(errors(redis_gate("lease: orders") + postgres_gate("lease: stock"), rule),
              ElementsAre(HasSubstr("have one issuer")));
  EXPECT_THAT(errors(redis_gate("lease: orders") + postgres_gate("lease: stock, writer: app"), rule), IsEmpty());
}

TEST_F(LeaseGatesConfigTest, ItsMarksAreSealedWhereTheGateHasThem) {
  const auto rule = lease_section + "  resources: [{ match: orders, seal: [\"store:ledger\"] }]\n";
  EXPECT_THAT(errors(redis_gate("lease: orders"), rule), ElementsAre(HasSubstr("orders is not sealed at gate:cache")));
  EXPECT_THAT(errors(http_gate(R"(lease: orders, routes: [{ match: "PUT /a", resource: orders }])"), rule),
              ElementsAre(HasSubstr("orders is not sealed at store:cache")));
}

TEST_F(LeaseGatesConfigTest, SoAreThoseOfTwoGatesWithOneStore) {
  const auto rule = lease_section + "  resources: [{ match: orders, seal: [\"store:ledger\"] }]\n";
  auto two = http_gate(R"(lease: orders, routes: [{ match: "PUT /a", resource: orders }])");
  auto other = http_gate(R"(lease: others, routes: [{ match: "PUT /a", resource: others }])");
  const auto change = [&](const std::string& from, const std::string& to) {
    other.replace(other.find(from), from.size(), to);
  };
  change("name: web", "name: web2");
  change(":8081", ":8082");
  EXPECT_THAT(errors(two + other, rule), ElementsAre(HasSubstr("orders is not sealed at store:cache")));
}

}  // namespace
}  // namespace fencegate::cli
