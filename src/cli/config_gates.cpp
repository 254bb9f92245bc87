#include "cli/config_gates.hpp"

#include "cli/config_url.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t connections_max_most = 1'000'000;

fence::policy read_policy(report& to, const YAML::Node& node, fence::policy inherited) {
  section policy(to, node, "policy", keys::policy);
  policy.choice("mode", inherited.mode, words::mode);
  policy.choice("missing_token", inherited.missing, words::missing_token);
  policy.choice("equal_token", inherited.equal, words::equal_token);
  policy.choice("reads", inherited.read, words::reads);
  policy.count("max_step", inherited.max_step, 0, std::numeric_limits<std::int64_t>::max());
  return inherited;
}

settings::timeouts read_timeouts(report& to, const YAML::Node& node) {
  settings::timeouts out;
  section timeouts(to, node, "timeouts", keys::timeouts);
  timeouts.duration("connect", out.connect, milliseconds(1));
  timeouts.duration("head", out.head, milliseconds(0));
  timeouts.duration("idle", out.idle, milliseconds(0));
  timeouts.duration("write", out.write, milliseconds(0));
  return out;
}

bool matches_every_key(std::string_view pattern) {
  return !pattern.empty() && std::all_of(pattern.begin(), pattern.end(), [](char c) { return c == '*'; });
}

// The rules of one gate, in their order, and whether they leave any key over.
struct rules {
  std::vector<fence::key_rule> list;
  bool cover_every_key = false;
};

class rules_reader {
 public:
  rules_reader(report& to, const fence::policy& inherited) : report_(to), inherited_(inherited) {}

  void read(const YAML::Node& node) {
    section rule(report_, node, "rule", keys::rule);
    rule.require("keys");
    rule.require("resource");
    fence::policy policy = inherited_;
    if (const auto own = rule.node("policy")) policy = read_policy(report_, *own, inherited_);
    const auto pattern = rule.text("keys");
    const auto resource = rule.text("resource");
    if (!pattern || !resource) return;
    check_reachable(rule, *pattern);
    auto compiled = fence::key_rule::compile(*pattern, *resource, policy);
    if (compiled)
      out_.list.push_back(std::move(*compiled));
    else
      rule.complain("keys", "bad rule: " + compiled.error().message);
  }

  [[nodiscard]] rules take() { return std::move(out_); }

 private:
  void check_reachable(section& rule, const std::string& pattern) {
    if (out_.cover_every_key)
      rule.complain("keys", "this rule is never reached: a rule above it matches every key");
    else if (!patterns_.insert(pattern).second)
      rule.complain("keys", "this rule is never reached: a rule above it has the same keys");
    out_.cover_every_key = out_.cover_every_key || matches_every_key(pattern);
  }

  report& report_;
  fence::policy inherited_;
  rules out_;
  std::set<std::string> patterns_;
};

// Complains when `node` is not a list.
bool is_list(report& to, const YAML::Node& node, std::string_view what) {
  if (node.IsSequence()) return true;
  to.add(node.Mark(), std::string(what) + " must be a list");
  return false;
}

// "flushall", "config|set": lower case, the subcommand behind a bar.
bool is_command_name(std::string_view name) {
  const auto part_ok = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
  };
  const auto bar = name.find('|');
  if (bar == std::string_view::npos) return part_ok(name);
  return part_ok(name.substr(0, bar)) && part_ok(name.substr(bar + 1));
}

std::vector<std::string> read_commands(report& to, const YAML::Node& list) {
  std::vector<std::string> out;
  if (!is_list(to, list, "allow_commands")) return out;
  for (const auto& node : list) {
    auto name = text_of(to, node, "a command");
    if (!name) continue;
    for (char& c : *name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!is_command_name(*name)) {
      to.add(node.Mark(), "not the name of a command: write flushall, or config|set for a subcommand");
    } else if (std::find(out.begin(), out.end(), *name) != out.end()) {
      to.add(node.Mark(), "this command is in the list already");
    } else {
      out.push_back(std::move(*name));
    }
  }
  return out;
}

std::optional<std::string> read_secret(report& to, section& in, std::string_view key) {
  constexpr std::size_t secret_bytes_max = 64 * 1024;
  const auto path = in.text(key);
  if (!path) return std::nullopt;
  auto secret = to.from.file(*path);
  if (!secret) {
    in.complain(key, std::string(key) + ": cannot read the file: " + secret.error().message);
    return std::nullopt;
  }
  // Editors and `echo` end a file with a line end that is no part of the secret.
  if (secret->ends_with('\n')) secret->pop_back();
  if (secret->ends_with('\r')) secret->pop_back();
  if (!secret->empty() && secret->size() <= secret_bytes_max) return std::move(*secret);
  in.complain(key, std::string(key) + ": the file " + (secret->empty() ? "is empty" : "is too long for a secret"));
  return std::nullopt;
}

void read_upstream(report& to, section& gate, settings::redis_gate& out) {
  const auto text = gate.url("upstream");
  const auto password = read_secret(to, gate, "password_file");
  if (!text) return;
  auto url = parse_redis_url(*text);
  if (!url) {
    gate.complain("upstream", "upstream: " + url.error().message);
    return;
  }
  out.upstream = std::move(url->where);
  out.control = std::move(url->control);
  const bool has_file = gate.has("password_file");
  if (has_file && !out.control.password.empty())
    gate.complain("password_file", "upstream has a password already: give one of them");
  if (!has_file && !out.control.user.empty() && out.control.password.empty())
    gate.complain("upstream", "upstream has a user without a password: add it, or give password_file");
  if (password) out.control.password = *password;
}

void read_rules(report& to, section& gate, settings::redis_gate& out) {
  rules_reader reader(to, out.policy);
  const auto list = gate.node("resources");
  if (list && is_list(to, *list, "resources")) {
    for (const auto& rule : *list) reader.read(rule);
  }
  auto rules = reader.take();
  out.resources = std::move(rules.list);
  gate.choice("unmatched", out.unmatched, words::unmatched);
  const bool no_rules = !list || list->size() == 0;
  if (no_rules && out.unmatched == fence::unmatched::pass)
    gate.complain("unmatched", "unmatched: pass without resources would fence nothing: every key matches no rule");
  if (no_rules && out.unmatched == fence::unmatched::reject)
    gate.complain("unmatched",
                  "unmatched: reject without resources would reject every write: every key matches no rule");
  if (rules.cover_every_key && gate.has("unmatched"))
    gate.complain("unmatched", "unmatched has no effect: a rule matches every key");
}

settings::redis_gate read_redis_gate(report& to, section& gate) {
  settings::redis_gate out;
  gate.require("listen");
  gate.require("upstream");
  read_upstream(to, gate, out);
  if (const auto policy = gate.node("policy")) out.policy = read_policy(to, *policy, {});
  read_rules(to, gate, out);
  if (const auto commands = gate.node("allow_commands")) out.allow_commands = read_commands(to, *commands);
  if (const auto timeouts = gate.node("timeouts")) out.limits_time = read_timeouts(to, *timeouts);
  gate.count("connections_max", out.connections_max, 1, connections_max_most);
  return out;
}

// The gates whose name, listener and upstream are known, for what must hold between them.
struct placed_gate {
  settings::redis_gate settings;
  YAML::Mark upstream_mark;
};

class gates_reader {
 public:
  gates_reader(report& to, std::vector<listener>& listeners) : report_(to), listeners_(listeners) {}

  void read(const YAML::Node& node) {
    if (serves_another_protocol(node)) return;
    section gate(report_, node, "gate", keys::gate);
    if (!node.IsMap()) return;
    gate.require("name");
    gate.require("protocol");
    auto spoken = protocol::redis;
    gate.choice("protocol", spoken, words::protocols);
    auto settings = read_redis_gate(report_, gate);
    settings.name = read_name(gate);
    if (auto listen = gate.address("listen")) {
      settings.listen = *listen;
      add_listener(report_, listeners_, {*listen, "gate " + quoted(settings.name), gate.mark("listen")});
    }
    gates_.push_back({std::move(settings), gate.mark("upstream")});
  }

  [[nodiscard]] std::vector<settings::redis_gate> take() {
    std::vector<settings::redis_gate> out;
    for (auto& gate : gates_) {
      check_upstream(gate);
      out.push_back(std::move(gate.settings));
    }
    return out;
  }

 private:
  // Such a gate has keys of its own: one clear complaint instead of one for each of them.
  bool serves_another_protocol(const YAML::Node& node) {
    if (!node.IsMap()) return false;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar() || pair.first.Scalar() != "protocol" || !pair.second.IsScalar()) continue;
      const auto& spoken = pair.second.Scalar();
      if (spoken != "postgres" && spoken != "http") return false;
      report_.add(pair.second.Mark(), "this version serves redis gates only, not " + spoken);
      return true;
    }
    return false;
  }

  std::string read_name(section& gate) {
    const auto name = gate.text("name");
    if (!name) return "";
    if (!is_name(*name)) {
      gate.complain("name", "a gate's name has 1 to 64 letters, digits, _ . and -");
    } else if (!names_.insert(*name).second) {
      gate.complain("name", "another gate has this name already");
    }
    return *name;
  }

  // A gate in front of a gate would fence each write twice; one in front of itself would never end.
  void check_upstream(const placed_gate& gate) {
    const auto& upstream = gate.settings.upstream;
    if (upstream == settings::address{}) return;
    for (const auto& other : listeners_) {
      if (overlap(upstream, other.where))
        report_.add(gate.upstream_mark, "upstream is where " + other.owner + " listens: name the Redis server itself");
    }
  }

  report& report_;
  std::vector<listener>& listeners_;
  std::vector<placed_gate> gates_;
  std::set<std::string> names_;
};

}  // namespace

void add_listener(report& to, std::vector<listener>& listeners, listener added) {
  for (const auto& other : listeners) {
    if (!overlap(added.where, other.where)) continue;
    to.add(added.mark, "listen: " + other.owner + " listens on this address already");
    return;
  }
  listeners.push_back(std::move(added));
}

std::vector<settings::redis_gate> read_gates(report& to, const YAML::Node& list, std::vector<listener>& listeners) {
  if (!is_list(to, list, "gates")) return {};
  if (list.size() == 0) to.add(list.Mark(), "gates is empty: there is nothing to serve");
  gates_reader reader(to, listeners);
  for (const auto& node : list) reader.read(node);
  return reader.take();
}

bool is_name(std::string_view name) {
  constexpr std::size_t name_bytes_max = 64;
  return !name.empty() && name.size() <= name_bytes_max && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

}  // namespace fencegate::cli
