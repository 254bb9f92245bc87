#include "cli/inject.hpp"

#include "base/ascii.hpp"
#include "cli/commands.hpp"
#include "cli/yaml_documents.hpp"
#include "cli/yaml_merge.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <iterator>
#include <optional>
#include <ostream>
#include <sstream>

namespace fencegate::cli {
namespace {

constexpr std::size_t manifest_bytes_max = 4 * 1024 * 1024;
constexpr std::size_t documents_max = 1000;
constexpr std::size_t message_bytes_max = 200;
// Kubernetes' own; above drain_timeout's.
constexpr int grace_default_s = 30;

// The pod template's part, as docker/k8s/deployment.yaml has it. It takes no right from the pod's own securityContext.
constexpr std::string_view sidecar = R"(
metadata:
  labels:
    fencegate: sidecar
spec:
  initContainers:
    - name: fencegate
      image: ""
      restartPolicy: Always
      args: ["serve", "-c", "/etc/fencegate/fencegate.yaml"]
      ports:
        - name: fencegate
          containerPort: 9180
      startupProbe:
        exec:
          command: ["fencegate", "healthcheck", "--ready"]
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 30
      livenessProbe:
        exec:
          command: ["fencegate", "healthcheck"]
        periodSeconds: 10
        timeoutSeconds: 5
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
        seccompProfile:
          type: RuntimeDefault
      resources:
        requests:
          cpu: "100m"
          memory: "32Mi"
        limits:
          memory: "256Mi"
      volumeMounts:
        - name: fencegate-run
          mountPath: /run/fencegate
        - name: fencegate-config
          mountPath: /etc/fencegate
          readOnly: true
  volumes:
    - name: fencegate-run
      emptyDir: {}
    - name: fencegate-config
      configMap:
        name: ""
)";
constexpr std::string_view secret_mount = "{name: fencegate-secret, mountPath: /run/secrets/fencegate, readOnly: true}";
constexpr std::string_view secret_volume = "{name: fencegate-secret, secret: {secretName: ''}}";

// The kinds that have pods, and where their template is.
struct workload {
  std::string_view version, kind;
  std::vector<std::string_view> path;
};
const std::vector<workload>& workloads() {
  static const std::vector<workload> all{{"v1", "Pod", {}},
                                         {"v1", "ReplicationController", {"spec", "template"}},
                                         {"apps/v1", "Deployment", {"spec", "template"}},
                                         {"apps/v1", "StatefulSet", {"spec", "template"}},
                                         {"apps/v1", "DaemonSet", {"spec", "template"}},
                                         {"apps/v1", "ReplicaSet", {"spec", "template"}},
                                         {"batch/v1", "Job", {"spec", "template"}},
                                         {"batch/v1", "CronJob", {"spec", "jobTemplate", "spec", "template"}}};
  return all;
}

// "": there is none, or it is no scalar.
std::string text_at(const YAML::Node& map, std::string_view name) {
  const auto found = entry_of(map, name);
  return found && found->value.IsScalar() ? found->value.Scalar() : "";
}

// What Kubernetes reads as false: its YAML has more words for that than one.
bool is_false(const YAML::Node& value) {
  static constexpr std::array<std::string_view, 4> words{"false", "no", "off", "n"};
  std::string text = value.IsScalar() ? value.Scalar() : "";
  std::transform(text.begin(), text.end(), text.begin(), ascii_lower);
  return value.IsNull() || std::find(words.begin(), words.end(), text) != words.end();
}

// No key twice, of which Kubernetes takes the last, and no merge key, by which more stands there than is written.
result<void> check_keys(const YAML::Node& map, const std::string& where) {
  std::vector<std::string> keys;
  for (const auto& pair : map) keys.push_back(pair.first.IsScalar() ? pair.first.Scalar() : "");
  std::sort(keys.begin(), keys.end());
  if (std::binary_search(keys.begin(), keys.end(), "<<")) return error{where + " has a merge key (<<): write it out"};
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    return error{where + " has " + fence::printable(*twice, message_bytes_max) + " twice"};
  return {};
}

// The element of the list `list` of `of` with that name.
std::optional<YAML::Node> named(const YAML::Node& of, std::string_view list, std::string_view name) {
  const auto found = entry_of(of, list);
  if (!found || !found->value.IsSequence()) return std::nullopt;
  for (const auto& one : found->value)
    if (text_at(one, "name") == name) return YAML::Node(one);
  return std::nullopt;
}

// With quotes when it is written.
YAML::Node quoted(const std::string& text) {
  YAML::Node out(text);
  out.SetTag("!");
  return out;
}

class injection {
 public:
  injection(std::string_view manifest, const inject_request& request) : merge_(manifest), more_(wanted(request)) {}

  result<void> visit(const YAML::Node& object, bool in_list = false) {
    const auto kind = text_at(object, "kind"), version = text_at(object, "apiVersion");
    if (kind == "List" && version == "v1") {
      if (in_list) return error{"a List is in a List"};  // by an alias even in itself
      if (const auto items = entry_of(object, "items"))
        for (const auto& one : items->value)
          if (auto done = visit(one, true); !done) return done;
      return {};
    }
    for (const auto& one : workloads()) {
      if (kind != one.kind || version != one.version) continue;
      const auto metadata = entry_of(object, "metadata");
      auto name = metadata ? text_at(metadata->value, "name") : "";
      if (name.empty() && metadata) name = text_at(metadata->value, "generateName");
      name_ = kind + (name.empty() ? "" : " ") + fence::printable(name, message_bytes_max);
      auto done = into(object, one.path);
      return done ? done : result<void>(error{name_ + ": " + done.error().message});
    }
    return {};
  }

  // REQUIRES: all of the manifest's objects were visited.
  [[nodiscard]] result<injected> outcome() {
    if (notes_.empty())
      return error{"there is no Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job or CronJob in it"};
    return injected{merge_.take(), std::move(notes_)};
  }

 private:
  static YAML::Node wanted(const inject_request& request) {
    auto out = YAML::Load(std::string(sidecar));
    auto container = out["spec"]["initContainers"][0];
    container["image"] = quoted(request.image);
    out["spec"]["volumes"][1]["configMap"]["name"] = quoted(request.config_map);
    if (!request.secret.empty()) {
      auto volume = YAML::Load(std::string(secret_volume));
      volume["secret"]["secretName"] = quoted(request.secret);
      out["spec"]["volumes"].push_back(volume);
      container["volumeMounts"].push_back(YAML::Load(std::string(secret_mount)));
    }
    for (const auto& one : request.env) {
      YAML::Node variable;
      const auto equals = one.find('=');
      variable["name"] = quoted(one.substr(0, equals));
      variable["value"] = quoted(one.substr(equals + 1));
      container["env"].push_back(variable);
    }
    return out;
  }

  result<void> into(const YAML::Node& object, const std::vector<std::string_view>& path) {
    auto at = std::optional<yaml_entry>{{object, object}};
    if (auto fits = check_keys(object, "it"); !fits) return fits;
    for (const auto name : path) {
      const auto below = entry_of(at->value, name);
      if (!below) return error{"it has no " + std::string(name)};
      at.emplace(*below);
      if (auto fits = check_keys(at->value, "its " + std::string(name)); !fits) return fits;
    }
    const auto spec = entry_of(at->value, "spec");
    if (!spec || !spec->value.IsMap()) return error{"its pod has no spec"};
    if (auto fits = check_keys(spec->value, "its pod's spec"); !fits) return fits;
    const auto native = named(spec->value, "initContainers", "fencegate");
    if (native && text_at(*native, "restartPolicy") == "Always") {
      notes_.push_back(name_ + ": has the sidecar already");
      return {};
    }
    if (auto fits = check(spec->value, native.has_value()); !fits) return fits;
    notes_.push_back(name_ + ": gets the sidecar");
    note_grace(spec->value);
    return add(object, *at, path.empty());
  }

  // A Pod has no key in front of it: its metadata and its spec are there, each with its own.
  result<void> add(const YAML::Node& object, const yaml_entry& at, bool is_pod) {
    if (!is_pod) return merge_.add(at.key, at.value, more_);
    for (const auto& part : more_) {
      const auto there = entry_of(object, part.first.Scalar());
      if (!there) return error{"it has no " + part.first.Scalar()};
      if (auto added = merge_.add(there->key, there->value, part.second); !added) return added;
    }
    return {};
  }

  [[nodiscard]] result<void> check(const YAML::Node& spec, bool is_init) const {
    if (is_init || named(spec, "containers", "fencegate"))
      return error{"a container fencegate is there, and is no native sidecar: rename or remove it"};
    for (const auto* volume : {"fencegate-run", "fencegate-config", "fencegate-secret"})
      if (named(spec, "volumes", volume)) return error{std::string("a volume ") + volume + " is there already"};
    if (const auto shared = entry_of(spec, "hostNetwork"); shared && !is_false(shared->value))
      return error{"hostNetwork: all pods of the node would share, and could use, the gates on its loopback"};
    if (const auto os = entry_of(spec, "os"); os && text_at(os->value, "name") == "windows")
      return error{"os: fencegate runs on Linux"};
    if (!entry_of(spec, "containers")) return error{"its pod has no containers"};
    return {};
  }

  void note_grace(const YAML::Node& spec) {
    const auto given = entry_of(spec, "terminationGracePeriodSeconds");
    const auto seconds = given ? given->value.as<int>(0) : grace_default_s;
    if (seconds < grace_default_s)
      notes_.push_back(name_ + ": keep terminationGracePeriodSeconds, " + std::to_string(seconds) +
                       ", above the drain_timeout of its configuration, 25s by default");
  }

  yaml_merge merge_;
  const YAML::Node more_;
  std::string name_;  // of the object at hand
  std::vector<std::string> notes_;
};

result<void> check_text(std::string_view manifest) {
  if (manifest.size() > manifest_bytes_max) return error{"it is larger than 4 MiB"};
  // With these, yaml-cpp would guess at another encoding, or count other bytes than there are.
  const auto is_text = [](unsigned char c) { return (c >= 0x20 && c < 0xfe) || c == '\t' || c == '\n' || c == '\r'; };
  if (manifest.starts_with("\xef\xbb\xbf") || !std::all_of(manifest.begin(), manifest.end(), is_text))
    return error{"it is no UTF-8 text without a byte order mark"};
  std::istringstream in{std::string(manifest)};
  YAML::Parser parser(in);
  document_starts documents;
  while (parser.HandleNextDocument(documents))
    if (documents.count > documents_max) return error{"it has more than 1000 documents"};
  return {};
}

result<void> check_request(const inject_request& request) {
  const auto is_variable = [](const std::string& one) { return one.find('=') != std::string::npos && one[0] != '='; };
  if (!std::all_of(request.env.begin(), request.env.end(), is_variable)) return error{"--env takes NAME=VALUE"};
  if (request.image.empty() || request.config_map.empty()) return error{"--image and --config-map take a name"};
  return {};
}

}  // namespace

result<injected> inject_into(std::string_view manifest, const inject_request& request) {
  try {
    if (auto fits = check_request(request); !fits) return fits.error();
    if (auto fits = check_text(manifest); !fits) return fits.error();
    injection work(manifest, request);
    for (const auto& object : YAML::LoadAll(std::string(manifest)))
      if (auto done = work.visit(object); !done) return done.error();
    return work.outcome();
  } catch (const YAML::Exception& e) {
    return error{"line " + std::to_string(e.mark.line + 1) + ": " + fence::printable(e.msg, message_bytes_max)};
  }
}

int inject(const inject_request& request, std::istream& in, std::ostream& out, std::ostream& err) {
  std::ifstream file;
  if (request.path != "-") file.open(request.path, std::ios::binary);
  auto& from = request.path == "-" ? in : file;
  const auto refuse = [&](const std::string& why) {
    err << "fencegate inject: " << request.path << ": " << why << '\n';
    return exit_bad_configuration;
  };
  if (!from) return refuse(std::strerror(errno));
  const std::string manifest{std::istreambuf_iterator<char>(from), {}};
  if (from.bad()) return refuse("it cannot be read");
  const auto made = inject_into(manifest, request);
  if (!made) return refuse(made.error().message);
  for (const auto& note : made->notes) err << "fencegate inject: " << note << '\n';
  out << made->text << std::flush;
  if (out) return exit_ok;
  err << "fencegate inject: cannot write\n";
  return exit_failed;
}

}  // namespace fencegate::cli
