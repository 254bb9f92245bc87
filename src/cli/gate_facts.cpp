#include "cli/gate_facts.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace fencegate::cli {
namespace {

using fence::enforcement;

// Of a gate, of whose rules or routes some may differ.
class mode_words {
 public:
  explicit mode_words(const fence::policy& gate) { add(gate); }
  void add(const fence::policy& one) { (one.mode == enforcement::enforce ? enforces_ : monitors_) = true; }
  [[nodiscard]] std::string text() const {
    if (enforces_ && monitors_) return "mixed";
    return enforces_ ? "enforce" : "monitor";
  }

 private:
  bool enforces_ = false, monitors_ = false;
};

template <class Gate>
admin::gate_facts common_facts(const Gate& gate, std::string protocol) {
  admin::gate_facts out;
  out.name = gate.name;
  out.protocol = std::move(protocol);
  out.listen = to_string(gate.listen);
  return out;
}

admin::gate_facts facts_of(const settings::redis_gate& gate) {
  auto out = common_facts(gate, "redis");
  mode_words mode(gate.policy);
  for (const auto& rule : gate.resources) mode.add(rule.rules());
  out.mode = mode.text();
  out.guarantee = "check and write are one transaction";
  out.servers.push_back({"", to_string(gate.upstream)});
  return out;
}

admin::gate_facts facts_of(const settings::postgres_gate& gate) {
  auto out = common_facts(gate, "postgres");
  out.mode = mode_words(gate.policy).text();
  out.guarantee = gate.kept_by == settings::guard::session ? "guard: session" : "guard: transaction";
  out.servers.push_back({"", to_string(gate.upstream)});
  return out;
}

admin::gate_facts facts_of(const settings::http_gate& gate) {
  auto out = common_facts(gate, "http");
  mode_words mode(gate.policy);
  std::size_t held = 0, checked = 0, atomic = 0;
  for (const auto& route : gate.routes) {
    mode.add(route.policy);
    if (route.does != settings::http_action::forward)
      ++atomic;
    else
      ++(route.guarantee == settings::http_guarantee::held ? held : checked);
  }
  out.mode = mode.text();
  for (const auto& [count, word] :
       {std::pair(atomic, "atomic"), std::pair(held, "held"), std::pair(checked, "checked")})
    if (count > 0) out.guarantee += (out.guarantee.empty() ? "routes: " : ", ") + std::to_string(count) + " " + word;
  for (const auto& one : gate.stores) out.servers.push_back({one.name, to_string(one.where)});
  if (gate.upstream) out.servers.push_back({"", to_string(*gate.upstream)});
  return out;
}

}  // namespace

std::vector<admin::gate_facts> gate_facts_of(const settings::process& config) {
  std::vector<admin::gate_facts> out;
  const auto add_all = [&out](const auto& gates) {
    for (const auto& one : gates) out.push_back(facts_of(one));
  };
  add_all(config.redis_gates);
  add_all(config.postgres_gates);
  add_all(config.http_gates);
  return out;
}

}  // namespace fencegate::cli
