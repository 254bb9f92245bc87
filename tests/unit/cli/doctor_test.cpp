// What `fencegate doctor` says of what was found, and of listeners; servers are asked by the live tests.
#include "cli/doctor.hpp"

#include "config_fixture.hpp"

#include <sstream>

namespace fencegate::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DoctorTest : public ConfigTest {
 protected:
  std::string admin_more;
  std::vector<std::string> exposed(const std::string& gate, const std::string& admin, const std::string& more = "") {
    std::vector<std::string> out;
    for (const auto& one : examine_listeners(settings_of("admin: { listen: '" + admin + "'" + admin_more +
                                                         " }\ngates:\n  - { name: cache, protocol: redis, listen: '" +
                                                         gate + "', upstream: 'redis://127.0.0.1'" + more + " }\n")))
      for (const auto& hazard : one.found.hazards)
        out.push_back(one.where + " " + std::string(backend::words_of(hazard.kind).id));
    return out;
  }
};

TEST_F(DoctorTest, ListenersBeyondLoopback) {
  EXPECT_THAT(exposed("127.0.0.2:6380", "[::1]:9180"), IsEmpty());
  EXPECT_THAT(exposed("localhost:6380", "unix:/run/admin.sock"), IsEmpty());
  EXPECT_THAT(exposed(":6380", "10.0.0.1:9180"),
              testing::ElementsAre("admin admin-exposed", "gate:cache gate-exposed"));
  EXPECT_THAT(exposed("[::]:6380", "127.0.0.1:9180"), testing::ElementsAre("gate:cache gate-exposed"));
}

TEST_F(DoctorTest, AListenerThatRequiresCertificatesOfClientsIsNotExposed) {
  files = {{"/crt", "-"}, {"/key", "-"}, {"/ca", "-"}};
  const auto with = [this](const std::string& more) {
    return exposed(":6380", "127.0.0.1:9180", ", tls: { cert: /crt, key: /key" + more + " }").size();
  };
  admin_more = ", tls: { cert: /crt, key: /key, client_ca: /ca }";
  EXPECT_THAT(exposed("127.0.0.1:6380", ":9180"), IsEmpty());
  admin_more = ", tls: { cert: /crt, key: /key }";
  EXPECT_THAT(exposed("127.0.0.1:6380", ":9180"), testing::ElementsAre("admin admin-exposed"));
  EXPECT_EQ(with(""), 1U);
  EXPECT_EQ(with(", client_ca: /ca, client_certificate: optional"), 1U);
  EXPECT_EQ(with(", client_ca: /ca"), 0U);
}

TEST_F(DoctorTest, JsonAndParagraphs) {
  hazard_report report;
  report.all.push_back(
      {"gate:db", "127.0.0.1:5432/app", {{{backend::hazard_kind::postgres_fsync_off, "fsync is off"}}, {}}});
  report.all.push_back({"store:cache", "127.0.0.1:6379", backend::unreached("Connection refused")});
  EXPECT_EQ(report.hazards(), 1U);
  EXPECT_EQ(report.unknown(), 1U);
  EXPECT_EQ(report.unreached(), "store:cache");
  const auto json = json_of(report);
  EXPECT_THAT(json,
              HasSubstr(R"({"hazards":[{"id":"postgres-fsync-off","where":"gate:db","address":"127.0.0.1:5432/app",)"
                        R"("what":"fsync is off","why":)"));
  EXPECT_THAT(json,
              HasSubstr(R"(],"unknown":[{"where":"store:cache","address":"127.0.0.1:6379","what":"anything of it",)"
                        R"("why":"Connection refused"}]})"));
  EXPECT_EQ(json_of({}), R"({"hazards":[],"unknown":[]})");
  std::ostringstream out;
  print_hazards(report, out);
  EXPECT_THAT(out.str(),
              HasSubstr("gate:db (127.0.0.1:5432/app): postgres-fsync-off: fsync is off\n  Why it matters: "));
  EXPECT_THAT(out.str(),
              HasSubstr("store:cache (127.0.0.1:6379): not known: anything of it, because Connection refused\n"));
}

}  // namespace
}  // namespace fencegate::cli
