// What `fencegate install` makes of a configuration and its arguments; what the SQL does is tested against real servers.
#include "cli/install.hpp"

#include "config_fixture.hpp"

#include <sstream>

namespace fencegate::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class InstallTest : public ConfigTest {
 protected:
  int print(const std::string& yaml) {
    files["f.yaml"] = yaml;
    request.path = "f.yaml";
    request.print = true;
    out.str("");
    err.str("");
    return install(request, surroundings(), out, err);
  }

  // Two gates, for one database unless another is named.
  static std::string two_gates(const std::string& database) {
    return "gates:\n"
           "  - { name: a, protocol: postgres, listen: 127.0.0.1:6432, upstream: "
           "'postgres://gate:secret@127.0.0.1/app',"
           " cut_timeout: 7s, policy: { max_step: 10 } }\n"
           "  - { name: b, protocol: postgres, listen: 127.0.0.1:6433, upstream: 'postgres://gate@127.0.0.1/" +
           database + "', cut_timeout: 9s, policy: { max_step: 5 } }\n";
  }

  install_request request;
  std::ostringstream out;
  std::ostringstream err;
};

TEST_F(InstallTest, PrintsTheSchemaWithTheLimitsOfTheGateAndNoSecret) {
  request.gate = "a";
  ASSERT_EQ(print(two_gates("other")), 0);
  EXPECT_THAT(out.str(), StartsWith("SET client_encoding = 'UTF8';\nSET fencegate.new_max_step = '10';\n"
                                    "SET fencegate.new_cut_ms = '7000';\nSET fencegate.new_gate_user = 'gate';\n"));
  EXPECT_THAT(out.str(), HasSubstr("CREATE TABLE IF NOT EXISTS fencegate.marks"));
  EXPECT_THAT(out.str(), HasSubstr("\nCOMMIT;\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("secret@")));
  EXPECT_THAT(err.str(), IsEmpty());
}

TEST_F(InstallTest, GatesOfOneDatabaseShareTheWiderLimits) {
  ASSERT_EQ(print(two_gates("app")), 0);
  EXPECT_THAT(out.str(), HasSubstr("new_max_step = '10';\nSET fencegate.new_cut_ms = '9000'"));
}

TEST_F(InstallTest, QuotesTablesAndLeavesTheirNamesToTheServer) {
  request.protect = {"public.orders", "it's", R"("back\slash")"};
  request.unprotect = {"old"};
  request.resource = "orders";
  ASSERT_EQ(print(postgres_with("")), 0);
  EXPECT_THAT(out.str(), HasSubstr("SELECT fencegate.unprotect('old'::pg_catalog.regclass);\n"
                                   "SELECT fencegate.protect('public.orders'::pg_catalog.regclass, 'orders');\n"
                                   "SELECT fencegate.protect('it''s'::pg_catalog.regclass, 'orders');\n"
                                   R"(SELECT fencegate.protect(E'"back\\slash"'::pg_catalog.regclass, 'orders');)"));
}

TEST_F(InstallTest, WithoutAResourceAnyWillDo) {
  request.protect = {"t"};
  ASSERT_EQ(print(postgres_with("")), 0);
  EXPECT_THAT(out.str(), HasSubstr("SELECT fencegate.protect('t'::pg_catalog.regclass, NULL);\n"));
}

TEST_F(InstallTest, StoresKeepTheLimitsThatAreThere) {
  const std::string stores = "stores: { ledger: { url: 'postgres://teller@127.0.0.1/books' } }\n";
  request.store = "ledger";
  ASSERT_EQ(print(stores + postgres_with("")), 0) << err.str();
  EXPECT_THAT(out.str(), Not(HasSubstr("new_max_step =")));
  EXPECT_THAT(out.str(), HasSubstr("new_gate_user = 'teller'"));
}

TEST_F(InstallTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(print(two_gates("other")), 2);
  EXPECT_THAT(err.str(), HasSubstr("--print shows the SQL of one database"));
  request.gate = "nobody";
  EXPECT_EQ(print(two_gates("other")), 2);
  EXPECT_THAT(err.str(), HasSubstr("there is no postgres gate named nobody"));
  request.gate = "";
  request.store = "nowhere";
  EXPECT_EQ(print(two_gates("other")), 2);
  EXPECT_THAT(err.str(), HasSubstr("there is no postgres store named nowhere"));
  request.store = "";
  EXPECT_EQ(print(gate_with("")), 2);
  EXPECT_THAT(err.str(), HasSubstr("names no PostgreSQL"));
  request.resource = "orders";
  EXPECT_EQ(print(postgres_with("")), 2);
  EXPECT_THAT(err.str(), HasSubstr("--resource has a meaning with --protect only"));
  request.protect = {"t"};
  request.resource = "or ders";
  EXPECT_EQ(print(postgres_with("")), 2);
  EXPECT_THAT(err.str(), HasSubstr("--resource: a resource is"));
}

}  // namespace
}  // namespace fencegate::cli
