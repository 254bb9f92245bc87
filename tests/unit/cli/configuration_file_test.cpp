#include "cli/configuration_file.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>

namespace fencegate::cli {
namespace {

class ConfigurationFile : public testing::Test {
 protected:
  static std::string text(const std::string& more = {}) {
    return "gates:\n  - { name: cache, protocol: redis, listen: \"127.0.0.1:6380\", upstream: "
           "\"redis://me@127.0.0.1\", "
           "password_file: /no/secret" +
           more + " }\n";
  }
  [[nodiscard]] environment surroundings() const {
    environment from;
    from.variable = [](const std::string&) { return std::nullopt; };
    from.file = [this](const std::string& path) -> result<std::string> {
      const auto found = files.find(path);
      if (found == files.end()) return error{"No such file or directory"};
      return {boost::system::in_place_value, found->second};
    };
    from.readable = [this](const std::string& path) -> result<void> {
      return files.contains(path) ? result<void>() : error{"No such file or directory"};
    };
    from.proof_to_clients = [this](const settings::listener_tls& how) -> result<void> {
      return files.at(how.key) == "a key\n" ? result<void>() : error{"cannot use it"};
    };
    return from;
  }
  [[nodiscard]] std::string password(const config_result& read) const {
    return read->redis_gates.at(0).control.password.text();
  }

  // Neither is there on any machine, so that it counts as one that can be read again.
  std::map<std::string, std::string> files{{"/no/config", text()}, {"/no/secret", "one\n"}};
  configuration_file file{"/no/config", surroundings()};
};

TEST_F(ConfigurationFile, ASecretHasChangedWhenItRests) {
  ASSERT_EQ(password(file.read()), "one");
  file.taken_over();
  EXPECT_FALSE(file.secrets_have_changed());
  files["/no/secret"] = "";
  EXPECT_FALSE(file.secrets_have_changed());
  files["/no/secret"] = "two\n";
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_TRUE(file.secrets_have_changed());
  EXPECT_EQ(password(file.read_secrets()), "two");
  EXPECT_FALSE(file.secrets_have_changed());
}

TEST_F(ConfigurationFile, OneThatIsBackWhereItWasHasNot) {
  ASSERT_TRUE(file.read());
  file.taken_over();
  files["/no/secret"] = "two\n";
  EXPECT_FALSE(file.secrets_have_changed());
  files["/no/secret"] = "one\n";
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_FALSE(file.secrets_have_changed());
}

TEST_F(ConfigurationFile, OneThatCannotBeUsedIsNewsOnce) {
  ASSERT_TRUE(file.read());
  file.taken_over();
  files.erase("/no/secret");
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_TRUE(file.secrets_have_changed());
  EXPECT_FALSE(file.read_secrets());
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(file.secrets_have_changed());
  files["/no/secret"] = "one\n";
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_TRUE(file.secrets_have_changed());
  EXPECT_EQ(password(file.read_secrets()), "one");
}

TEST_F(ConfigurationFile, WithSecretsAloneTheConfigurationIsTheOneThatIsServed) {
  ASSERT_TRUE(file.read());
  file.taken_over();
  for (const auto& later : {text(", connections_max: 5"), std::string("gates: ["), std::string("gates: []\n")}) {
    files["/no/config"] = later;
    EXPECT_EQ(file.read_secrets()->redis_gates.at(0).connections_max, settings::redis_gate().connections_max);
    static_cast<void>(file.read());  // and refused
    EXPECT_TRUE(file.read_secrets());
  }
  files["/no/config"] = text(", connections_max: 5");
  ASSERT_TRUE(file.read());
  file.taken_over();
  EXPECT_EQ(file.read_secrets()->redis_gates.at(0).connections_max, 5);
}

TEST_F(ConfigurationFile, CertificatesAndKeysHoldUpNoSecretAndAreNone) {
  files["/no/config"] = text(", tls: { cert: /no/cert, key: /no/key }");
  files["/no/cert"] = files["/no/key"] = "a key\n";
  ASSERT_TRUE(file.read());
  file.taken_over();
  files["/no/key"] = "half of";
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_FALSE(file.read());
  files.erase("/no/cert");
  files["/no/secret"] = "two\n";
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_TRUE(file.secrets_have_changed());
  EXPECT_EQ(password(file.read_secrets()), "two");
  EXPECT_FALSE(file.read());
}

TEST_F(ConfigurationFile, AConfigurationThatIsRefusedTakesNoSecretWithIt) {
  ASSERT_TRUE(file.read());
  file.taken_over();
  files["/no/secret"] = "two\n";
  for (const auto& refused : {text(), std::string("gates: [")}) {
    files["/no/config"] = refused;
    static_cast<void>(file.read());
  }
  EXPECT_FALSE(file.secrets_have_changed());
  EXPECT_TRUE(file.secrets_have_changed());
}

TEST_F(ConfigurationFile, NoGatesAreAnError) {
  files["/no/config"] = "gates: []\n";
  EXPECT_FALSE(file.read());
}

}  // namespace
}  // namespace fencegate::cli
