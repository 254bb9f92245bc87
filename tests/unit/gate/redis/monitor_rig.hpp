// Gates in monitor mode, wholly or by a rule.
#pragma once

#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::test {

inline constexpr auto monitor = fence::enforcement::monitor;

inline settings::redis_gate monitored() {
  return with_policy([](auto& p) { p.mode = monitor; });
}

// An enforcing gate; report:* belongs to report, or another resource, in monitor mode, acct:* to orders.
inline settings::redis_gate with_a_monitored_rule(std::string_view resource = "report") {
  settings::redis_gate gate;
  fence::policy rules;
  rules.mode = monitor;
  gate.resources.push_back(fence::key_rule::compile("report:*", resource, rules).value());
  gate.resources.push_back(fence::key_rule::compile("acct:*", "orders", {}).value());
  return gate;
}

inline std::uint64_t admitted(engine_rig& rig) { return rig.stats.checks(metrics::check_outcome::admitted).value(); }

inline settings::redis_gate monitored_reads() {
  return with_policy([](auto& p) {
    p.mode = monitor;
    p.read = fence::reads::fence;
  });
}

}  // namespace fencegate::test
