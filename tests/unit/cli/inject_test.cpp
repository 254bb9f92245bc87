#include "cli/inject.hpp"

#include "wire/strict_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace fencegate::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

injected made_of(std::string_view manifest, const inject_request& request = {}) {
  auto made = inject_into(manifest, request);
  if (made) return *made;
  ADD_FAILURE() << made.error().message << " in\n" << manifest;
  return {};
}

std::string error_of(std::string_view manifest, const inject_request& request = {}) {
  const auto made = inject_into(manifest, request);
  return made ? "" : made.error().message;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// What every node is, in order: with it two trees can be compared.
void describe(const YAML::Node& node, std::string& out) {
  if (node.IsScalar()) out += node.Tag() + node.Scalar();
  if (node.IsNull()) out += "null";
  if (node.IsMap() || node.IsSequence()) out += node.IsMap() ? '{' : '[';
  for (const auto& one : node) {
    if (node.IsMap()) describe(one.first, out);
    describe(node.IsMap() ? one.second : YAML::Node(one), out);
    out += ',';
  }
  if (node.IsMap() || node.IsSequence()) out += node.IsMap() ? '}' : ']';
}
std::string description(const YAML::Node& node) {
  std::string out;
  describe(node, out);
  return out;
}

YAML::Node template_of(const YAML::Node& object) {
  const auto kind = object["kind"].Scalar();
  if (kind == "Pod") return object;
  if (kind == "CronJob") return object["spec"]["jobTemplate"]["spec"]["template"];
  return object["spec"]["template"];
}

YAML::Node without(const YAML::Node& list, std::string_view prefix) {
  YAML::Node out(YAML::NodeType::Sequence);
  for (const auto& one : list)
    if (!one["name"].Scalar().starts_with(prefix)) out.push_back(one);
  return out;
}

// What inject adds is taken away again.
YAML::Node taken_back(const YAML::Node& object) {
  auto out = YAML::Clone(object);
  auto pod = template_of(out);
  pod["metadata"]["labels"].remove("fencegate");
  if (pod["metadata"]["labels"].size() == 0) pod["metadata"].remove("labels");
  if (pod["metadata"].size() == 0) pod.remove("metadata");
  for (const auto* list : {"initContainers", "volumes"}) {
    pod["spec"][list] = without(pod["spec"][list], "fencegate");
    if (pod["spec"][list].size() == 0) pod["spec"].remove(list);
  }
  return out;
}

// Each line of the text is there, in order, and the first object is what it was but for the sidecar, which comes first.
void expect_added(const std::string& manifest, const injected& made) {
  const auto all = lines_of(made.text), before = lines_of(manifest);
  std::size_t at = 0;
  for (const auto& line : all)
    if (at < before.size() && line == before[at]) ++at;
  EXPECT_EQ(at, before.size()) << (at < before.size() ? before[at] : "") << " is missing in\n" << made.text;
  const auto object = YAML::LoadAll(made.text)[0];
  const auto spec = template_of(object)["spec"];
  EXPECT_EQ(spec["initContainers"][0]["name"].Scalar(), "fencegate");
  EXPECT_EQ(spec["initContainers"][0]["restartPolicy"].Scalar(), "Always");
  EXPECT_EQ(spec["volumes"][1]["configMap"]["name"].Scalar(), "fencegate");
  EXPECT_EQ(template_of(object)["metadata"]["labels"]["fencegate"].Scalar(), "sidecar");
  EXPECT_EQ(description(taken_back(object)), description(YAML::LoadAll(manifest)[0]));
}

// A Deployment whose pod has these lines besides, with eight blanks in front.
std::string deployment(const std::string& more = "") {
  return "# Ours.\n"
         "apiVersion: apps/v1\n"
         "kind: Deployment\n"
         "metadata: { name: orders }   # its name\n"
         "spec:\n"
         "    replicas: 2\n"
         "    template:\n"
         "      metadata:\n"
         "        # What the service selects.\n"
         "        labels:\n"
         "          app: orders\n"
         "      spec:   # of the pod\n"
         "        # The writer.\n"
         "        containers:\n"
         "        - name: writer\n"
         "          image: 'writer:1'\n"
         "          env: [{ name: PORT, value: \"6432\" }, { name: MODE, value: 0644 }]\n" +
         more;
}

TEST(Inject, AddsTheSidecarAndLeavesEveryLineAsItWas) {
  const auto made = made_of(deployment());
  expect_added(deployment(), made);
  EXPECT_THAT(made.text,
              HasSubstr("      spec:   # of the pod\n        initContainers:\n          - name: fencegate\n"));
  EXPECT_THAT(made.text, HasSubstr("        # The writer.\n        containers:\n"));
  EXPECT_THAT(made.notes, ElementsAre("Deployment orders: gets the sidecar"));
}

TEST(Inject, ComesBeforeOthersInTheirStyle) {
  for (const std::string more : {
           "        initContainers:\n        - name: migrate\n          image: x\n        volumes:\n        - name: "
           "data\n          emptyDir: {}\n",
           "        initContainers:\n            -   name: migrate\n                image: x\n",
           "        initContainers: []\n        volumes: [ ]\n",
           "        initContainers: [{name: migrate, image: x}]\n        volumes: [{name: data, emptyDir: {}}]\n",
           "        volumes:\n\n          # Data.\n          - { name: data, emptyDir: {} }\n",
       }) {
    SCOPED_TRACE(more);
    const auto made = made_of(deployment(more));
    if (more.find("[") == std::string::npos) {
      expect_added(deployment(more), made);
      continue;
    }
    const auto spec = template_of(YAML::Load(made.text))["spec"];
    EXPECT_EQ(spec["initContainers"][0]["name"].Scalar(), "fencegate");
    if (more.find("migrate") != std::string::npos) {
      EXPECT_EQ(spec["initContainers"][1]["name"].Scalar(), "migrate");
    }
  }
}

TEST(Inject, TakesALabelThatIsThereAlready) {
  const std::string manifest =
      "apiVersion: v1\nkind: Pod\nmetadata: { name: x, labels: { fencegate: sidecar } }\nspec:\n  containers: []\n";
  const auto made = made_of(manifest);
  EXPECT_THAT(made.text, HasSubstr("\nmetadata: { name: x, labels: { fencegate: sidecar } }\n"));
  EXPECT_EQ(YAML::Load(made.text)["spec"]["initContainers"].size(), 1u);
}

TEST(Inject, TheSecondTimeChangesNothing) {
  for (const auto& manifest :
       {deployment(),
        std::string(R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[]}})")}) {
    const auto once = made_of(manifest);
    const auto twice =
        made_of(once.text, {.path = "-", .image = "another:2", .config_map = "x", .secret = {}, .env = {}});
    EXPECT_EQ(twice.text, once.text);
    ASSERT_EQ(twice.notes.size(), 1u);
    EXPECT_THAT(twice.notes[0], HasSubstr(": has the sidecar already"));
  }
}

TEST(Inject, WhatIsShippedHasItAlready) {
  for (const auto* name : {"deployment", "cronjob", "job", "lease-gates"}) {
    std::ifstream in(std::string("docker/k8s/") + name + ".yaml");
    const std::string manifest{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(made_of(manifest).text, manifest);
  }
}

TEST(Inject, IsWhatIsShipped) {
  std::ifstream in("docker/k8s/deployment.yaml");
  const auto shipped = YAML::Load(in)["spec"]["template"]["spec"]["initContainers"][0];
  const auto made = template_of(YAML::Load(made_of(deployment()).text))["spec"]["initContainers"][0];
  for (const auto* key : {"image", "restartPolicy"}) EXPECT_EQ(made[key].Scalar(), shipped[key].Scalar());
  for (const auto* key : {"name", "containerPort"})
    EXPECT_EQ(made["ports"][0][key].Scalar(), shipped["ports"][0][key].Scalar());
  for (const auto* probe : {"startupProbe", "livenessProbe"}) {
    for (std::size_t at = 0; at < shipped[probe]["exec"]["command"].size(); ++at)
      EXPECT_EQ(made[probe]["exec"]["command"][at].Scalar(), shipped[probe]["exec"]["command"][at].Scalar());
    for (const auto& one : shipped[probe])
      if (one.second.IsScalar()) {
        EXPECT_EQ(made[probe][one.first.Scalar()].Scalar(), one.second.Scalar());
      }
  }
  for (const auto& one : shipped["securityContext"])
    if (one.second.IsScalar()) {
      EXPECT_EQ(made["securityContext"][one.first.Scalar()].Scalar(), one.second.Scalar());
    }
}

TEST(Inject, KnowsEachKindThatHasPods) {
  const std::string pod = "      spec:\n        containers: [{ name: a, image: b }]\n";
  for (const std::string kind : {"StatefulSet", "DaemonSet", "ReplicaSet"}) {
    const auto manifest =
        "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: { name: x }\nspec:\n    template:\n" + pod;
    expect_added(manifest, made_of(manifest));
  }
  const auto job = "apiVersion: batch/v1\nkind: Job\nmetadata: { generateName: x- }\nspec:\n    template:\n" + pod;
  expect_added(job, made_of(job));
  EXPECT_THAT(made_of(job).notes, ElementsAre("Job x-: gets the sidecar"));
  const std::string cron =
      "apiVersion: batch/v1\nkind: CronJob\nmetadata: { name: x }\nspec:\n  schedule: '* * * * *'\n  jobTemplate:\n"
      "    spec:\n      template:\n        spec:\n          restartPolicy: Never\n          containers: []\n";
  expect_added(cron, made_of(cron));
  const std::string bare = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspec:\n  containers: []\n";
  expect_added(bare, made_of(bare));
}

TEST(Inject, LeavesOtherObjectsAlone) {
  const std::string others =
      "apiVersion: v1\nkind: Service\nspec: {}\n---\napiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: 1\n---\n";
  const auto made = made_of(others + deployment() + "---\n---\n# the end\n");
  EXPECT_TRUE(made.text.starts_with(others));
  EXPECT_TRUE(made.text.ends_with("---\n---\n# the end\n"));
  EXPECT_EQ(made.text.substr(others.size(), made_of(deployment()).text.size()), made_of(deployment()).text);
  EXPECT_THAT(error_of("apiVersion: v1\nkind: Service\n"), HasSubstr("there is no Pod, Deployment"));
  EXPECT_THAT(error_of(""), HasSubstr("there is no Pod, Deployment"));
}

TEST(Inject, JsonStaysJsonAndAListIsGoneThrough) {
  const std::string pod =
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"é"},"spec":{"containers":[{"name":"a","ports":[1]}]}})";
  const auto list = R"({"apiVersion":"v1","kind":"List","items":[)" + pod + "," + pod + "]}";
  for (const auto& manifest : {pod, list}) {
    const auto made = made_of(manifest);
    EXPECT_TRUE(wire::parse_strict_json(made.text, 32)) << made.text;
    EXPECT_EQ(made.notes.size(), manifest == pod ? 1u : 2u);
  }
  const auto back = taken_back(YAML::Load(made_of(pod).text));
  EXPECT_EQ(description(back), description(YAML::Load(pod)));
}

TEST(Inject, TakesWhatItIsTold) {
  inject_request request;
  request.image = "registry:5000/fencegate@sha256:00";
  request.config_map = "orders";
  request.secret = "passwords";
  request.env = {"A=b", "URL=x=\"y\"\n", "N=1"};
  const auto spec = template_of(YAML::Load(made_of(deployment(), request).text))["spec"];
  const auto container = spec["initContainers"][0];
  EXPECT_EQ(container["image"].Scalar(), request.image);
  EXPECT_EQ(container["env"][1]["value"].Scalar(), "x=\"y\"\n");
  EXPECT_EQ(container["env"][2]["value"].Tag(), "!") << "a text, and no number";
  EXPECT_EQ(container["volumeMounts"][2]["mountPath"].Scalar(), "/run/secrets/fencegate");
  EXPECT_EQ(spec["volumes"][1]["configMap"]["name"].Scalar(), "orders");
  EXPECT_EQ(spec["volumes"][2]["secret"]["secretName"].Scalar(), "passwords");
  request.env = {"novalue"};
  EXPECT_EQ(error_of(deployment(), request), "--env takes NAME=VALUE");
}

TEST(Inject, TakesEachWordForFalse) {
  for (const auto* word : {"false", "False", "no", "off", "~"})
    EXPECT_EQ(made_of(deployment(std::string("        hostNetwork: ") + word + "\n")).notes.size(), 1u) << word;
}

TEST(Inject, SaysWhenTheDrainMayBeCutShort) {
  EXPECT_THAT(made_of(deployment("        terminationGracePeriodSeconds: 10\n")).notes[1],
              HasSubstr("keep terminationGracePeriodSeconds, 10, above the drain_timeout"));
  EXPECT_EQ(made_of(deployment("        terminationGracePeriodSeconds: 40\n")).notes.size(), 1u);
}

TEST(Inject, RefusesWhatItCannotDo) {
  const auto block = std::string("        ");
  const std::vector<std::pair<std::string, std::string>> refused{
      {deployment(block + "hostNetwork: true\n"), "Deployment orders: hostNetwork: "},
      {deployment(block + "hostNetwork: yes\n"), "Deployment orders: hostNetwork: "},
      {deployment(block + "hostNetwork: On\n"), "Deployment orders: hostNetwork: "},
      {deployment(block + "hostNetwork: True\n"), "Deployment orders: hostNetwork: "},
      {deployment(block + "hostNetwork: 'true'\n"), "Deployment orders: hostNetwork: "},
      {"apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: { containers: [] }\nspec: { hostNetwork: true }\n",
       "it has spec twice"},
      {"apiVersion: apps/v1\nkind: Deployment\nspec: { template: {}, template: {} }\n", "its spec has template twice"},
      {deployment(block + "os: { name: windows }\n"), "os: fencegate runs on Linux"},
      {deployment(block + "volumes: [{ name: fencegate-config }]\n"), "a volume fencegate-config is there already"},
      {deployment(block + "initContainers: [{ name: fencegate }]\n"), "is no native sidecar"},
      {deployment(block + "volumes:\n"), "line 18: volumes is no sequence"},
      {deployment(block + "volumes: {}\n"), "line 18: volumes is no sequence"},
      {deployment(block + "volumes: &v [{ name: x }]\n"), "line 18: an anchor or a tag is in front of a brace"},
      {deployment(block + "<<: { hostNetwork: true }\n"), "a merge key"},
      {deployment(block + "volumes: []\n" + block + "volumes: []\n"), "has volumes twice"},
      {"x: &s { containers: [] }\napiVersion: v1\nkind: Pod\nmetadata: {}\nspec: *s\n", "line 5: spec is an alias"},
      {"apiVersion: v1\nkind: Pod\nspec: { containers: [] }\n", "it has no metadata"},
      {"apiVersion: v1\nkind: Pod\nmetadata: { labels: { fencegate: x } }\nspec: { containers: [] }\n",
       "fencegate is there already"},
      {"apiVersion: batch/v1\nkind: Job\nspec: {}\n", "it has no template"},
      {"apiVersion: v1\nkind: Pod\nspec: 1\n", "its pod has no spec"},
      {"apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {}\n", "its pod has no containers"},
      {"apiVersion: v1\nkind: List\nitems: &a [{ apiVersion: v1, kind: List, items: *a }]\n", "a List is in a List"},
      {"a: [\n", "line 2: "},
      {"\xff\xfe"
       "a",
       "it is no UTF-8 text"},
      {", , ,", "more than 1000 documents"}};
  for (const auto& [manifest, why] : refused) EXPECT_THAT(error_of(manifest), HasSubstr(why)) << manifest;
}

TEST(Inject, PrintsNothingWhenItRefuses) {
  std::istringstream in("kind: Service\n");
  std::ostringstream out, err;
  EXPECT_EQ(inject({}, in, out, err), 2);
  EXPECT_THAT(out.str(), IsEmpty());
  EXPECT_THAT(err.str(), HasSubstr("fencegate inject: -: there is no Pod"));
  inject_request nowhere;
  nowhere.path = "no such file";
  EXPECT_EQ(inject(nowhere, in, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("no such file: No such file or directory"));
}

}  // namespace
}  // namespace fencegate::cli
