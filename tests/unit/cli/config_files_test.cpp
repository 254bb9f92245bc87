// What is shipped beside the program: the explained configuration, the examples, the schema and the configurations
// inside the compose and Kubernetes files must be what the reader accepts, key for key.
#include "cli/config_keys.hpp"
#include "config_fixture.hpp"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

namespace fencegate::cli {
namespace {

using testing::IsEmpty;

const std::filesystem::path root = ".";  // tests run in the root of the tree

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> keys_of_reader() {
  std::set<std::string> out;
  for (const auto& group : key_groups)
    for (const auto key : group.keys) out.insert(std::string(group.path).append(key));
  return out;
}

// "gates[].policy.mode" for each key of a YAML document; below `stores` and `issuers`, names are written as "*".
void collect_keys(const YAML::Node& node, const std::string& path, std::set<std::string>& out) {
  if (node.IsSequence()) {
    for (const auto& element : node) collect_keys(element, path + "[]", out);
  }
  if (!node.IsMap()) return;
  for (const auto& pair : node) {
    const std::string name =
        path == "stores" || path == "leases.issuers" || path == "leases.writers" ? "*" : pair.first.Scalar();
    const std::string below = path.empty() ? name : path + "." + name;
    if (name != "*") out.insert(below);
    collect_keys(pair.second, below, out);
  }
}

// The explained configuration with its switched-off settings ("#key: value", no blank behind the "#") switched on.
std::string with_everything_on(const std::string& text) {
  return std::regex_replace(text, std::regex("(^|\n)( *)#(?=[^ \n])"), "$1$2");
}

TEST_F(ConfigTest, TheExplainedConfigurationLoads) { (void)settings_of(contents(root / "config/fencegate.yaml")); }

TEST_F(ConfigTest, TheExplainedConfigurationNamesEveryKeyAndLoadsWithAllOfThem) {
  files = {{"/run/secrets/redis-password", "x"}, {"/run/secrets/postgres-password", "x"},
           {"/etc/fencegate/tls.crt", "-"},      {"/etc/fencegate/tls.key", "-"},
           {"/etc/fencegate/clients.crt", "-"},  {"/etc/fencegate/revoked.crl", "-"}};
  variables = {{"FENCING_TOKEN", "34"}};
  const auto text = with_everything_on(contents(root / "config/fencegate.yaml"));
  EXPECT_THAT(errors_of(text), IsEmpty());
  std::set<std::string> named;
  collect_keys(YAML::Load(text), "", named);
  EXPECT_EQ(named, keys_of_reader());
}

TEST_F(ConfigTest, TheExplainedConfigurationShowsTheDefaults) {
  const auto shown = settings_of(contents(root / "config/fencegate.yaml"));
  const settings::process defaults;
  EXPECT_EQ(shown.threads, defaults.threads);
  EXPECT_EQ(shown.busy_poll_us, defaults.busy_poll_us);
  EXPECT_EQ(shown.admin, defaults.admin);
  EXPECT_EQ(shown.level, defaults.level);
  EXPECT_EQ(shown.format, defaults.format);
  EXPECT_EQ(shown.drain_timeout, defaults.drain_timeout);
  EXPECT_EQ(shown.leased.ttl, defaults.leased.ttl);
  EXPECT_EQ(shown.leased.stride, defaults.leased.stride);
  ASSERT_EQ(shown.redis_gates.size(), 1u);
  const auto& gate = shown.redis_gates[0];
  const settings::redis_gate gate_defaults;
  EXPECT_EQ(gate.policy, gate_defaults.policy);
  EXPECT_EQ(gate.unmatched, gate_defaults.unmatched);
  EXPECT_EQ(gate.connections_max, gate_defaults.connections_max);
  EXPECT_EQ(gate.share_writes, gate_defaults.share_writes);
  EXPECT_EQ(gate.limits_time.connect, gate_defaults.limits_time.connect);
  EXPECT_EQ(gate.limits_time.head, gate_defaults.limits_time.head);
  EXPECT_EQ(gate.limits_time.idle, gate_defaults.limits_time.idle);
  EXPECT_EQ(gate.limits_time.write, gate_defaults.limits_time.write);
  ASSERT_EQ(shown.postgres_gates.size(), 1u);
  const auto& db = shown.postgres_gates[0];
  const settings::postgres_gate db_defaults;
  EXPECT_EQ(db.policy, db_defaults.policy);
  EXPECT_EQ(db.kept_by, db_defaults.kept_by);
  EXPECT_EQ(db.tags_in_sql, db_defaults.tags_in_sql);
  EXPECT_EQ(db.cut_timeout, db_defaults.cut_timeout);
  EXPECT_EQ(db.connections_max, db_defaults.connections_max);
  EXPECT_EQ(db.limits_time.connect, db_defaults.limits_time.connect);
  EXPECT_EQ(db.limits_time.head, db_defaults.limits_time.head);
  EXPECT_EQ(db.limits_time.idle, db_defaults.limits_time.idle);
  EXPECT_EQ(db.limits_time.write, db_defaults.limits_time.write);
  ASSERT_EQ(shown.http_gates.size(), 1u);
  const auto& api = shown.http_gates[0];
  const settings::http_gate api_defaults;
  EXPECT_EQ(api.policy, api_defaults.policy);
  EXPECT_EQ(api.unmatched, api_defaults.unmatched);
  EXPECT_EQ(api.seal, api_defaults.seal);
  EXPECT_EQ(api.token_header, api_defaults.token_header);
  EXPECT_EQ(api.hold_grace, api_defaults.hold_grace);
  EXPECT_EQ(api.answer_timeout, api_defaults.answer_timeout);
  EXPECT_EQ(api.body_bytes_max, api_defaults.body_bytes_max);
  EXPECT_EQ(api.body_held_bytes_max, api_defaults.body_held_bytes_max);
  EXPECT_EQ(api.keep_alive, api_defaults.keep_alive);
  EXPECT_EQ(api.body_timeout, api_defaults.body_timeout);
  EXPECT_EQ(api.request_timeout, api_defaults.request_timeout);
  EXPECT_EQ(api.response_timeout, api_defaults.response_timeout);
  EXPECT_EQ(api.connections_max, api_defaults.connections_max);
}

TEST_F(ConfigTest, EveryExampleLoads) {
  files = {{"/run/secrets/redis-password", "x"}, {"/run/secrets/postgres-password", "x"}};
  variables = {{"REDIS_PASSWORD", "x"}};
  std::map<settings::mark_store::kind, int> stores;  // of http gates
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "config/examples")) {
    SCOPED_TRACE(entry.path());
    for (const auto& gate : settings_of(contents(entry.path())).http_gates)
      for (const auto& store : gate.stores) ++stores[store.speaks];
    ++examples;
  }
  EXPECT_GE(examples, 6);
  EXPECT_EQ(stores.size(), 2u);
}

// Every "properties" of a JSON schema, `$ref` followed, in the notation of collect_keys.
class schema_walk {
 public:
  explicit schema_walk(const YAML::Node& schema) : schema_(schema) { visit(schema, ""); }

  std::set<std::string> keys;
  std::map<std::string, std::vector<std::string>> words;  // of the keys that list theirs

 private:
  void visit(const YAML::Node& written, const std::string& path) {
    const auto node = written["$ref"] ? referred(written["$ref"].Scalar()) : written;
    for (const auto& word : node["enum"]) words[path].push_back(word.Scalar());
    if (node["items"]) visit(node["items"], path + "[]");
    const auto more = node["additionalProperties"];
    if (more && more.IsMap()) visit(more, path + ".*");
    if (!node["properties"]) return;
    EXPECT_TRUE(more && (more.IsMap() || more.Scalar() == "false")) << path << " lets unknown keys pass";
    for (const auto& pair : node["properties"]) {
      const std::string below = path.empty() ? pair.first.Scalar() : path + "." + pair.first.Scalar();
      keys.insert(below);
      visit(pair.second, below);
    }
  }

  YAML::Node referred(const std::string& reference) const {
    const std::string prefix = "#/$defs/";
    EXPECT_EQ(reference.compare(0, prefix.size(), prefix), 0) << reference;
    const auto found = schema_["$defs"][reference.substr(prefix.size())];
    EXPECT_TRUE(found) << reference;
    return found;
  }

  const YAML::Node schema_;
};

template <class Enum, std::size_t n>
std::vector<std::string> names_of(const std::array<word<Enum>, n>& list) {
  std::vector<std::string> out;
  for (const auto& w : list) out.emplace_back(w.name);
  return out;
}

TEST(ConfigSchema, NamesTheSameKeysAndWordsAsTheReader) {
  // JSON is YAML.
  const schema_walk walk(YAML::Load(contents(root / "config/fencegate.schema.json")));
  EXPECT_EQ(walk.keys, keys_of_reader());
  std::map<std::string, std::vector<std::string>> expected{{"log.level", names_of(words::level)},
                                                           {"log.format", names_of(words::format)},
                                                           {"gates[].protocol", names_of(words::protocols)},
                                                           {"gates[].tag_from", names_of(words::tag_from)},
                                                           {"gates[].on_loss", names_of(words::on_loss)},
                                                           {"gates[].standby", names_of(words::standby)},
                                                           {"gates[].unmatched", names_of(words::unmatched)},
                                                           {"gates[].guard", names_of(words::guard)},
                                                           {"gates[].comment_tags", names_of(words::comment_tags)},
                                                           {"gates[].seal", names_of(words::seal)},
                                                           {"gates[].share_writes", names_of(words::share_writes)},
                                                           {"gates[].routes[].guarantee", names_of(words::guarantee)}};
  for (const auto* path : {"gates[].tls.client_certificate", "admin.tls.client_certificate"})
    expected[path] = names_of(words::client_certificate);
  for (const std::string policy : {"gates[].policy.", "gates[].resources[].policy.", "gates[].routes[].policy."}) {
    expected[policy + "mode"] = names_of(words::mode);
    expected[policy + "missing_token"] = names_of(words::missing_token);
    expected[policy + "equal_token"] = names_of(words::equal_token);
    expected[policy + "reads"] = names_of(words::reads);
  }
  EXPECT_EQ(walk.words, expected);
}

YAML::Node document_of(const std::filesystem::path& file, std::string_view kind) {
  for (const auto& document : YAML::LoadAll(contents(file)))
    if (document["kind"].as<std::string>() == kind) return document;
  ADD_FAILURE() << file << " has no " << kind;
  return {};
}

TEST_F(ConfigTest, TheConfigMapsLoadAndPodsOutliveTheirDrain) {
  files = {{"/run/secrets/fencegate/redis", "x"}, {"/run/secrets/fencegate/postgres", "x"}};
  const auto k8s = root / "docker/k8s";
  const std::vector<std::pair<std::string, YAML::Node>> workloads = {
      {"configmap.yaml", document_of(k8s / "deployment.yaml", "Deployment")},
      {"configmap.yaml", document_of(k8s / "job.yaml", "Job")},
      {"lease-gates.yaml", document_of(k8s / "lease-gates.yaml", "Deployment")},
      {"cronjob.yaml", document_of(k8s / "cronjob.yaml", "CronJob")["spec"]["jobTemplate"]}};
  for (const auto& [map, workload] : workloads) {
    SCOPED_TRACE(map);
    const auto config = settings_of(document_of(k8s / map, "ConfigMap")["data"]["fencegate.yaml"].as<std::string>());
    EXPECT_EQ(config.postgres_gates.size(), 1u);
    const auto pod = workload["spec"]["template"]["spec"];
    const auto labels = workload["spec"]["template"]["metadata"]["labels"];
    EXPECT_EQ(labels["fencegate"].as<std::string>(), "sidecar") << "it is what the policies of the network ask for";
    EXPECT_GT(std::chrono::seconds(pod["terminationGracePeriodSeconds"].as<int>()), config.drain_timeout);
    const auto sidecar = pod["initContainers"][pod["initContainers"].size() - 1];
    EXPECT_EQ(sidecar["restartPolicy"].as<std::string>(), "Always");
    EXPECT_TRUE(sidecar["securityContext"]["readOnlyRootFilesystem"].as<bool>());
    for (const auto* probe : {"startupProbe", "livenessProbe"})
      EXPECT_EQ(sidecar[probe]["exec"]["command"][1].as<std::string>(), "healthcheck");
  }
}

TEST_F(ConfigTest, TheConfigurationThatComposeMountsLoads) {
  const auto compose = YAML::Load(contents(root / "docker/compose.yaml"));
  for (const auto* gate : {"gate-a", "gate-b"}) {
    const auto mount = compose["services"][gate]["volumes"][0].as<std::string>();
    const auto file = mount.substr(0, mount.find(':'));
    const auto config = settings_of(contents(root / "docker" / file));
    EXPECT_EQ(config.redis_gates.size(), 1u);
    EXPECT_EQ(config.postgres_gates.size(), 1u);
    EXPECT_EQ(config.http_gates.size(), 1u);
    EXPECT_TRUE(config.admin_enabled) << "its health check asks the admin listener";
    EXPECT_EQ(config.admin, settings::process{}.admin) << "its health check asks at the default address";
  }
}

}  // namespace
}  // namespace fencegate::cli
