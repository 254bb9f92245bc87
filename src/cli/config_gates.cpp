#include "cli/config_gates.hpp"

#include "base/name_text.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_http.hpp"
#include "cli/config_postgres.hpp"
#include "cli/config_redis.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace fencegate::cli {
namespace {

std::string_view name_of(protocol wanted) {
  for (const auto& candidate : words::protocols)
    if (candidate.value == wanted) return candidate.name;
  return "";
}

class gates_reader {
 public:
  gates_reader(report& to, std::vector<listener>& listeners, settings::process& out)
      : report_(to), listeners_(listeners), out_(out) {}

  void read(const YAML::Node& node) {
    section gate(report_, node, "gate", keys::gate);
    if (!node.IsMap()) return;
    for (const auto* key : {"name", "protocol", "listen"}) gate.require(key);
    std::optional<protocol> spoken;
    gate.choice("protocol", spoken, words::protocols);
    if (spoken != protocol::http) gate.require("upstream");
    if (spoken) reject_keys_of_others(gate, *spoken);
    if (spoken == protocol::redis) {
      add(gate, read_redis_gate(report_, gate), out_.redis_gates, "the Redis server");
    } else if (spoken == protocol::postgres) {
      add(gate, read_postgres_gate(report_, gate), out_.postgres_gates, "the PostgreSQL server");
    } else if (spoken == protocol::http) {
      add_http(gate);
    } else {
      settings::redis_gate unused;
      read_limits(report_, gate, unused);
      place(gate, unused);
    }
  }

  // A gate in front of a gate would fence each write twice; one in front of itself would never end.
  void check_upstreams() {
    for (const auto& one : upstreams_) {
      if (one.where == settings::address{}) continue;
      for (const auto& other : listeners_) {
        if (!overlap(one.where, other.where)) continue;
        report_.add(one.mark, "upstream is where " + other.owner + " listens: name " + one.server + " itself");
      }
    }
  }

  [[nodiscard]] std::vector<lease_gate> leased() { return std::move(leased_); }

 private:
  struct upstream_place {
    settings::address where;
    YAML::Mark mark;
    std::string server;
  };

  void reject_keys_of_others(section& gate, protocol spoken) {
    for (const auto& given : gate.entries()) {
      const auto of_key = [&](const auto& one) { return one.name == given.key; };
      const auto first = std::find_if(keys_of_one_protocol.begin(), keys_of_one_protocol.end(), of_key);
      if (first == keys_of_one_protocol.end()) continue;
      const bool has_it = std::any_of(first, keys_of_one_protocol.end(),
                                      [&](const auto& one) { return of_key(one) && one.value == spoken; });
      if (has_it) continue;
      report_.add(given.key_mark, std::string(spoken == protocol::http ? "an " : "a ") + std::string(name_of(spoken)) +
                                      " gate has no key " + quoted(given.key) + ": it belongs to " +
                                      std::string(name_of(first->value)) + " gates");
    }
  }

  template <class Gate>
  void place(section& gate, Gate& out) {
    out.name = read_name(gate);
    read_tag(gate, out.tag);
    read_gate_lease(report_, gate, out.leased);
    if (out.leased.wanted()) leased_.push_back({out.name, gate.mark("lease")});
    auto listen = gate.address("listen");
    if (!listen) return;
    out.listen = *listen;
    read_listener_tls(report_, gate, out.listen, out.shown);
    add_listener(report_, listeners_, {std::move(*listen), "gate " + quoted(out.name), gate.mark("listen")});
  }

  // What all connections of this listener are bound to.
  static void read_tag(section& gate, fence::claims_list& out) {
    bool from_listener = false;
    gate.choice("tag_from", from_listener, words::tag_from);
    if (from_listener && !gate.has("tag")) gate.complain("tag_from", "tag_from: listen needs the key tag");
    if (!gate.has("tag")) return;
    if (!gate.has("tag_from")) gate.complain("tag", "tag needs the key tag_from: listen");
    const auto text = gate.text("tag");
    if (!text) return;
    if (auto claims = fence::parse_tag(*text))
      out = std::move(*claims);
    else
      gate.complain("tag", "tag: " + claims.error().message);
  }

  template <class Gate>
  void add(section& gate, Gate settings, std::vector<Gate>& list, std::string server) {
    place(gate, settings);
    upstreams_.push_back({settings.upstream, gate.mark("upstream"), std::move(server)});
    list.push_back(std::move(settings));
  }

  void add_http(section& gate) {
    auto one = read_http_gate(report_, gate, out_);
    place(gate, one);
    if (one.upstream) upstreams_.push_back({*one.upstream, gate.mark("upstream"), "the HTTP server"});
    out_.http_gates.push_back(std::move(one));
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

  report& report_;
  std::vector<listener>& listeners_;
  settings::process& out_;
  std::vector<upstream_place> upstreams_;
  std::vector<lease_gate> leased_;
  std::set<std::string> names_;
};

}  // namespace

void add_listener(report& to, std::vector<listener>& listeners, listener added) {
  for (const auto& other : listeners) {
    if (!overlap(added.where, other.where)) continue;
    to.add(added.mark, "listen: " + other.owner + " listens on this address already");
    return;
  }
  const auto folder = added.where.path.substr(0, std::max<std::size_t>(added.where.path.rfind('/'), 1));
  if (added.where.is_unix() && to.from.has_folder && !to.from.has_folder(folder))
    to.warn(added.mark, "listen: there is no folder " + folder + ": fencegate serve starts only where there is one");
  listeners.push_back(std::move(added));
}

std::vector<lease_gate> read_gates(report& to, const YAML::Node& list, std::vector<listener>& listeners,
                                   settings::process& out) {
  if (!is_list(to, list, "gates")) return {};
  if (list.size() == 0) to.add(list.Mark(), "gates is empty: there is nothing to serve");
  gates_reader reader(to, listeners, out);
  for (const auto& node : list) reader.read(node);
  reader.check_upstreams();
  return reader.leased();
}

}  // namespace fencegate::cli
