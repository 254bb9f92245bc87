#include "cli/config_lease_gates.hpp"

#include "base/name_text.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_gates.hpp"
#include "cli/config_leases.hpp"
#include "cli/lease_places.hpp"
#include "client/wish.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds writer_timeout_least{1'000};
constexpr std::string_view what_names_a_writer =
    "a writer's name has 1 to 64 letters, digits, _ . and -, and is not . or ..";

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// What is wrong with what a gate fences, as the gate of a lease; "": nothing.
std::string wrong_rules(const settings::redis_gate& gate) {
  if (gate.policy.spends()) return "equal_token: reject would let each grant write once only";
  for (const auto& rule : gate.resources) {
    if (rule.rules().spends()) return "equal_token: reject would let each grant write once only";
    const auto names_only = [&](const std::string& leased) {
      const auto exactly = fence::key_rule::compile("*", leased);
      return exactly && exactly->can_name_all_of(rule);
    };
    if (std::none_of(gate.leased.resources.begin(), gate.leased.resources.end(), names_only))
      return "each rule must be about a resource of the key lease, and nothing else";
  }
  return {};
}

std::string wrong_rules(const settings::postgres_gate&) { return {}; }

std::string wrong_rules(const settings::http_gate& gate) {
  if (gate.policy.spends()) return "equal_token: reject would let each grant write once only";
  for (const auto& route : gate.routes) {
    if (route.policy.spends()) return "equal_token: reject would let each grant write once only";
    if (!has(gate.leased.resources, route.resource))
      return "the resource of each route must be one of the key lease, by its name; " + route.resource + " is none";
  }
  return {};
}

// Where a gate's marks are.
std::vector<std::string> places_of(const settings::redis_gate& gate) { return {"gate:" + gate.name}; }
std::vector<std::string> places_of(const settings::postgres_gate& gate) { return {"gate:" + gate.name}; }
std::vector<std::string> places_of(const settings::http_gate& gate) {
  std::vector<std::string> out;
  for (const auto& one : gate.stores) out.push_back("store:" + one.name);
  return out;
}

class lease_gates_check {
 public:
  lease_gates_check(report& to, const std::vector<lease_gate>& marks, settings::process& config)
      : report_(to), marks_(marks), config_(config) {}

  void run(const YAML::Mark& of_leases) {
    for (const auto& one : config_.redis_gates) check(one);
    for (const auto& one : config_.postgres_gates) check(one);
    for (const auto& one : config_.http_gates) check(one);
    for (const auto& one : config_.leased.writers)
      if (!writers_.contains(one.name))
        report_.add(of_leases, "writers: no gate with a lease has the writer " + one.name);
    for (const auto& [name, one] : writers_) {
      check_plan(one);
      const auto is_it = [&](const auto& known) { return known.name == name; };
      auto& all = config_.leased.writers;
      if (std::none_of(all.begin(), all.end(), is_it)) all.push_back({name, {}});
    }
    if (config_.leased.probes && writers_.empty())
      report_.add(of_leases, "probes: there is no gate with a lease whose writer could be asked for");
  }

 private:
  struct writer {
    std::vector<std::string> resources;
    std::set<std::pair<std::string, std::string>> marks;  // (place, resource): where its gates have them
    bool rebinds = false;
    YAML::Mark mark;
  };

  template <class Gate>
  void check(const Gate& gate) {
    if (!gate.leased.wanted()) return;
    const auto at = std::find_if(marks_.begin(), marks_.end(), [&](const auto& one) { return one.name == gate.name; });
    const auto mark = at == marks_.end() ? YAML::Mark::null_mark() : at->mark;
    const auto complain = [&](const std::string& why) { report_.add(mark, "lease: " + why); };
    if (!gate.tag.empty()) complain("a gate with tag_from: listen has a tag already");
    if (const auto wrong = wrong_rules(gate); !wrong.empty()) complain(wrong);
    if (!gate.leased.rebinds) check_restart(complain);
    auto& mine = writers_.try_emplace(gate.leased.writer, writer{{}, {}, gate.leased.rebinds, mark}).first->second;
    if (mine.rebinds != gate.leased.rebinds) complain("gates of one writer have the same on_loss");
    for (const auto& resource : gate.leased.resources) {
      const auto [owner, fresh] = owners_.emplace(resource, gate.leased.writer);
      if (owner->second != gate.leased.writer)
        complain("the gates of writer " + owner->second + " hold " + resource + " already");
      if (!has(mine.resources, resource)) mine.resources.push_back(resource);
    }
    for (const auto& place : places_of(gate))
      for (const auto& resource : gate.leased.resources) mine.marks.emplace(place, resource);
  }

  template <class Complain>
  void check_restart(const Complain& complain) {
    const auto& all = config_.leased;
    const auto on_file = [](const settings::address& one) { return one.is_unix(); };
    if (all.state_dir.empty())
      complain("on_loss: restart needs leases.state_dir, in which a sidecar finds the term that it held");
    if (std::none_of(all.listen.begin(), all.listen.end(), on_file))
      complain("on_loss: restart needs a unix socket in leases.listen, where the writer's start is reported");
  }

  // All leases of a writer are had in one unit, and sealed where its gates have their marks.
  void check_plan(const writer& one) {
    const auto plan = plan_lease(config_, one.resources, "");
    if (!plan) return report_.add(one.mark, "lease: " + plan.error().message);
    for (const auto& [place, resource] : one.marks) {
      const auto of_one = plan_lease(config_, {resource}, "");
      if (of_one && !has(of_one->places, place))
        report_.add(one.mark, "lease: " + resource + " is not sealed at " + place + ": the key seal leaves it out");
    }
  }

  report& report_;
  const std::vector<lease_gate>& marks_;
  settings::process& config_;
  std::map<std::string, writer> writers_;
  std::map<std::string, std::string> owners_;  // of resources: the writer
};

}  // namespace

void read_gate_lease(report& to, section& gate, settings::gate_lease& out) {
  const auto node = gate.node("lease");
  for (const auto* key : {"writer", "on_loss", "standby", "standby_wait"})
    if (!node && gate.has(key)) gate.complain(key, std::string(key) + " needs the key lease");
  if (!node) return;
  std::vector<YAML::Node> names;
  if (node->IsSequence())
    for (const auto& one : *node) names.push_back(one);
  else
    names.push_back(*node);
  std::string all;
  for (const auto& one : names)
    if (const auto text = text_of(to, one, "lease")) all += (all.empty() ? "" : ",") + *text;
  auto resources = client::read_resources(all);
  if (resources)
    out.resources = std::move(*resources);
  else
    gate.complain("lease", "lease: " + resources.error().message);
  if (const auto writer = gate.text("writer")) {
    if (!is_writer_name(*writer)) gate.complain("writer", std::string(what_names_a_writer));
    out.writer = *writer;
  }
  gate.choice("on_loss", out.rebinds, words::on_loss);
  gate.choice("standby", out.waits, words::standby);
  gate.duration("standby_wait", out.standby_wait, milliseconds(1));
  if (gate.has("standby_wait") && !out.waits) gate.complain("standby_wait", "standby_wait needs standby: wait");
}

void read_lease_writers(report& to, section& leases, settings::leases& out) {
  if (const auto path = leases.text("state_dir")) {
    if (!path->starts_with('/')) leases.complain("state_dir", "state_dir is an absolute path");
    out.state_dir = *path;
  }
  const auto node = leases.node("writers");
  if (!node) return;
  section writers(to, *node, "writers", {});
  for (const auto& entry : writers.entries()) {
    if (!is_writer_name(entry.key)) to.add(entry.key_mark, std::string(what_names_a_writer));
    section writer(to, entry.value, "writer", keys::lease_writer);
    settings::lease_writer read{entry.key, {}};
    writer.duration("writer_timeout", read.writer_timeout, writer_timeout_least);
    const auto containers = writer.node("containers");
    if (containers && is_list(to, *containers, "containers"))
      for (const auto& one : *containers) {
        const auto name = text_of(to, one, "containers");
        if (!name) continue;
        if (!is_name(*name)) to.add(one.Mark(), "a container's name has 1 to 64 letters, digits, _ . and -");
        if (has(read.containers, *name)) to.add(one.Mark(), "the container " + *name + " is named twice");
        read.containers.push_back(*name);
      }
    if (containers && containers->IsSequence() && containers->size() == 0)
      writer.complain("containers", "containers names at least one; without this key there is one, whatever its name");
    out.writers.push_back(std::move(read));
  }
}

void check_lease_gates(report& to, const std::vector<lease_gate>& marks, const YAML::Mark& of_leases,
                       settings::process& out) {
  lease_gates_check(to, marks, out).run(of_leases);
}

}  // namespace fencegate::cli
