#include "cli/config_leases.hpp"

#include "base/name_text.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_gates.hpp"
#include "client/wish.hpp"

#include <algorithm>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl_least{100}, ttl_most = client::lease_time_most;
constexpr std::int64_t stride_most = std::int64_t{1} << 40U;

class leases_reader {
 public:
  leases_reader(report& to, std::vector<listener>& listeners, settings::process& out)
      : report_(to), listeners_(listeners), process_(out), out_(out.leased) {}

  void read(const YAML::Node& node) {
    section leases(report_, node, "leases", keys::leases);
    leases.require("issuers");
    read_listeners(leases);
    read_probes(leases);
    read_lease_writers(report_, leases, out_);
    if (const auto issuers = leases.node("issuers")) read_issuers(*issuers);
    if (const auto name = leases.text("issuer")) out_.issuer = known_issuer(leases, "issuer", *name);
    if (out_.issuer.empty() && out_.issuers.size() == 1) out_.issuer = out_.issuers.front().name;
    if (out_.issuer.empty() && out_.issuers.size() > 1) leases.require("issuer");
    leases.duration("ttl", out_.ttl, ttl_least, ttl_most);
    const auto optional = [&](std::string_view key, std::optional<milliseconds>& to) {
      if (leases.has(key)) leases.duration(key, to.emplace(0), milliseconds(0), ttl_most);
    };
    optional("margin", out_.margin);
    optional("skew", out_.skew);
    optional("round_trip", out_.round_trip);
    optional("stop_grace", out_.stop_grace);
    leases.count("stride", out_.stride, 2, stride_most);
    if (const auto wrong = timing_of(out_, out_.ttl).violated()) leases.complain("ttl", *wrong);
    const auto rules = leases.node("resources");
    if (rules && is_list(report_, *rules, "resources"))
      for (const auto& rule : *rules) read_rule(rule);
  }

 private:
  // One address, or a list of them.
  void read_listeners(section& leases) {
    const auto node = leases.node("listen");
    if (node && node->IsSequence())
      for (const auto& one : *node) read_listener(one);
    else if (node)
      read_listener(*node);
    const auto mode = leases.text("socket_mode");
    if (!mode) return;
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    if (mode->size() < 3 || mode->size() > 4 || !std::all_of(mode->begin(), mode->end(), is_octal) ||
        (mode->size() == 4 && mode->front() != '0'))
      return leases.complain("socket_mode", "socket_mode is three octal digits, as 0660");
    out_.socket_mode = static_cast<unsigned>(std::stoul(*mode, nullptr, 8));
  }

  void read_listener(const YAML::Node& node) {
    const auto text = text_of(report_, node, "listen");
    if (!text) return;
    const auto at = parse_address(*text);
    if (!at) return report_.add(node.Mark(), "listen: " + at.error().message);
    if (!at->is_unix() && at->host != "127.0.0.1" && at->host != "::1" && at->host != "localhost")
      return report_.add(node.Mark(),
                         "listen: leases are for the programs of this host: a unix socket, or a port on 127.0.0.1");
    add_listener(report_, listeners_, {*at, "leases", node.Mark()});
    out_.listen.push_back(*at);
  }

  void read_probes(section& leases) {
    const auto at = leases.address("probes");
    if (!at) return;
    add_listener(report_, listeners_, {*at, "probes", leases.mark("probes")});
    out_.probes = *at;
  }

  void read_issuers(const YAML::Node& node) {
    section issuers(report_, node, "issuers", {});
    for (const auto& entry : issuers.entries()) {
      if (!is_name(entry.key)) report_.add(entry.key_mark, "an issuer's name has 1 to 64 letters, digits, _ . and -");
      section issuer(report_, entry.value, "issuer", keys::lease_issuer);
      issuer.require("store");
      const auto store = issuer.text("store");
      if (!store) continue;
      const auto known = std::find_if(process_.stores.begin(), process_.stores.end(),
                                      [&](const settings::store& one) { return one.name == *store; });
      if (known == process_.stores.end())
        issuer.complain("store", "there is no store named " + *store);
      else
        out_.issuers.push_back({entry.key, *store});
    }
  }

  std::string known_issuer(section& in, std::string_view key, const std::string& name) {
    const auto is_it = [&](const auto& one) { return one.name == name; };
    if (std::any_of(out_.issuers.begin(), out_.issuers.end(), is_it)) return name;
    in.complain(key, "there is no issuer named " + name);
    return {};
  }

  void read_rule(const YAML::Node& node) {
    section rule(report_, node, "rule", keys::lease_rule);
    rule.require("match");
    const auto pattern = rule.text("match");
    if (!pattern) return;
    auto match = fence::key_rule::compile(*pattern, "matched");
    if (!match) return rule.complain("match", "bad match: " + match.error().message);
    settings::lease_rule read{std::move(*match), out_.issuer, {}, {}};
    if (const auto name = rule.text("issuer")) read.issuer = known_issuer(rule, "issuer", *name);
    rule.duration("lock_delay", read.lock_delay, milliseconds(0), ttl_most);
    const auto places = rule.node("seal");
    if (places && is_list(report_, *places, "seal")) {
      if (places->size() == 0) rule.complain("seal", "seal is empty: a token that is sealed nowhere fences nothing");
      for (const auto& place : *places) read_place(place, read.seal);
    }
    out_.resources.push_back(std::move(read));
  }

  void read_place(const YAML::Node& node, std::vector<std::string>& out) {
    const auto text = text_of(report_, node, "seal");
    if (!text) return;
    const auto named = [&](const auto& all, std::string_view kind) {
      return std::any_of(all.begin(), all.end(),
                         [&](const auto& one) { return std::string(kind) + one.name == *text; });
    };
    if (named(process_.stores, "store:") || named(process_.redis_gates, "gate:") ||
        named(process_.postgres_gates, "gate:"))
      out.push_back(*text);
    else if (named(process_.http_gates, "gate:"))
      report_.add(node.Mark(), "the marks of " + *text + " are in its stores: seal those");
    else
      report_.add(node.Mark(), "seal: " + *text + " is neither gate:NAME nor store:NAME of this configuration");
  }

  report& report_;
  std::vector<listener>& listeners_;
  settings::process& process_;
  settings::leases& out_;
};

}  // namespace

void read_leases(report& to, const YAML::Node& node, std::vector<listener>& listeners, settings::process& out) {
  leases_reader(to, listeners, out).read(node);
}

lease::timing timing_of(const settings::leases& all, milliseconds ttl) {
  auto times = lease::timing::of(ttl);
  times.skew = all.skew.value_or(times.skew);
  times.round_trip = all.round_trip.value_or(times.round_trip);
  times.margin = all.margin.value_or(std::max(milliseconds(1'000), times.skew + times.round_trip));
  times.stop_grace = all.stop_grace.value_or(times.stop_grace);
  return times;
}

}  // namespace fencegate::cli
