#include "cli/config_redis.hpp"

#include "backend/command_roles.hpp"
#include "cli/config_gate_common.hpp"

#include <algorithm>
#include <set>

namespace fencegate::cli {
namespace {

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
    if (const auto own = rule.node("policy")) {
      section keys_of_own(report_, *own, "policy", keys::policy);
      read_policy(keys_of_own, policy);
    }
    const auto pattern = rule.text("keys");
    const auto resource = rule.text("resource");
    if (!pattern || !resource) return;
    check_reachable(rule, *pattern);
    auto compiled = fence::key_rule::compile(*pattern, *resource, policy);
    if (!compiled) {
      rule.complain("keys", "bad rule: " + compiled.error().message);
      return;
    }
    check_policy(rule, *compiled);
    out_.list.push_back(std::move(*compiled));
    lines_.push_back(rule.mark("resource").line + 1);
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

  // The policy of a resource is that of the first rule that can name it: a token is bound before any key is seen.
  void check_policy(section& rule, const fence::key_rule& added) {
    for (std::size_t i = 0; i < out_.list.size(); ++i) {
      const auto& above = out_.list[i];
      if (!above.can_name_all_of(added)) continue;
      if (above.rules() == added.rules()) return;
      const std::string line = std::to_string(lines_[i]);
      const bool both = added.can_name_all_of(above);
      return rule.complain(
          "resource",
          "the rule on line " + line + (both ? " names this resource" : " can name this resource too") +
              ", with another policy: " +
              (both ? "give both the same policy" : "put this rule above that one, or give both the same policy"));
    }
  }

  report& report_;
  fence::policy inherited_;
  rules out_;
  std::set<std::string> patterns_;
  std::vector<int> lines_;  // of each rule's resource
};

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

std::string nearest(const std::string& wrong, const std::vector<std::string_view>& refused) {
  const auto subcommand = std::lower_bound(refused.begin(), refused.end(), wrong + "|");
  if (subcommand != refused.end() && subcommand->starts_with(wrong + "|"))
    return ": name the subcommand, such as \"" + std::string(*subcommand) + "\"";
  return suggestion(wrong, refused);
}

std::vector<std::string> read_commands(report& to, const YAML::Node& list) {
  std::vector<std::string> out;
  if (!is_list(to, list, "allow_commands")) return out;
  const auto refused = backend::refused_commands();
  for (const auto& node : list) {
    auto name = text_of(to, node, "a command");
    if (!name) continue;
    for (char& c : *name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!is_command_name(*name)) {
      to.add(node.Mark(), "not the name of a command: write flushall, or config|set for a subcommand");
    } else if (std::find(out.begin(), out.end(), *name) != out.end()) {
      to.add(node.Mark(), "this command is in the list already");
    } else if (!std::binary_search(refused.begin(), refused.end(), *name)) {
      to.add(node.Mark(), "not a command that is refused" + nearest(*name, refused));
    } else if (backend::is_replication(*name)) {
      to.add(node.Mark(), std::string(backend::replication_refused));
    } else {
      out.push_back(std::move(*name));
    }
  }
  return out;
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

}  // namespace

settings::redis_gate read_redis_gate(report& to, section& gate) {
  settings::redis_gate out;
  if (auto url = read_upstream(to, gate, parse_redis_url)) {
    out.upstream = std::move(url->where);
    check_files(to, gate, "upstream", url->secured);
    out.secured = std::move(url->secured);
    out.control = std::move(url->control);
    if (!gate.has("password_file") && !out.control.user.empty() && out.control.password.empty())
      gate.complain("upstream", "upstream has a user without a password: add it, or give password_file");
  }
  if (const auto node = gate.node("policy")) {
    section policy(to, *node, "policy", keys::policy);
    read_policy(policy, out.policy);
  }
  read_rules(to, gate, out);
  if (const auto commands = gate.node("allow_commands")) out.allow_commands = read_commands(to, *commands);
  gate.choice("share_writes", out.share_writes, words::share_writes);
  read_limits(to, gate, out);
  return out;
}

}  // namespace fencegate::cli
