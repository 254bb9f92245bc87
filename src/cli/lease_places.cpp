#include "cli/lease_places.hpp"

#include "cli/config_leases.hpp"
#include "cli/config_values.hpp"
#include "cli/mark_places.hpp"
#include "client/wish.hpp"
#include "lease/pg_ledger.hpp"
#include "lease/redis_ledger.hpp"
#include "lease/redis_seal_place.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

// What a look and the beginning of a seal may take.
constexpr milliseconds place_patience{5'000};

// For connecting to a Redis that grants leases, which is asked for its commands then, and until a connection is given up.
constexpr milliseconds redis_patience_least{1'000};

const settings::lease_rule* rule_of(const settings::leases& all, const std::string& resource) {
  for (const auto& rule : all.resources)
    if (rule.match.match(resource)) return &rule;
  return nullptr;
}

bool spends_tokens(const settings::redis_gate& gate) {
  return gate.policy.spends() || std::any_of(gate.resources.begin(), gate.resources.end(),
                                             [](const auto& rule) { return rule.rules().spends(); });
}

}  // namespace

result<lease_plan> plan_lease(const settings::process& config, const std::vector<std::string>& resources,
                              const std::string& issuer) {
  const auto& all = config.leased;
  if (all.issuers.empty()) return error{"the configuration has no section leases, which says who grants them"};
  std::string chosen = issuer;
  lease_plan plan;
  for (const auto& resource : resources) {
    const auto* rule = rule_of(all, resource);
    const auto& by = !issuer.empty() ? issuer : rule ? rule->issuer : all.issuer;
    if (!chosen.empty() && chosen != by)
      return error{"all resources of one hold have one issuer; these have " + chosen + " and " + by};
    chosen = by;
    if (rule) plan.lock_delay = std::max(plan.lock_delay, rule->lock_delay);
    for (const auto& place : rule && !rule->seal.empty() ? rule->seal : all_places(config))
      if (std::find(plan.places.begin(), plan.places.end(), place) == plan.places.end()) plan.places.push_back(place);
  }
  const auto* known = named(all.issuers, chosen);
  if (!known) return error{"there is no issuer named " + chosen};
  plan.issuer = *known;
  for (const auto& place : plan.places)
    if (const auto* gate = place.starts_with("gate:") ? named(config.redis_gates, name_in(place)) : nullptr)
      if (spends_tokens(*gate))
        return error{place +
                     " has equal_token: reject, so that a holder could write there once only: leave it out by the "
                     "key seal of a rule in leases.resources"};
  return plan;
}

result<lease::timing> times_of(const settings::leases& all, std::optional<milliseconds> ttl,
                               std::optional<milliseconds> stop_grace) {
  return client::checked_times(timing_of(all, ttl.value_or(all.ttl)), stop_grace);
}

std::shared_ptr<lease::issuer> make_issuer(boost::asio::io_context& context, const settings::process& config,
                                           const lease_plan& plan, const lease::timing& times,
                                           std::size_t connections) {
  const auto patience = times.patience();
  const auto store = "store:" + plan.issuer.store;
  if (const auto at = postgres_at(config, store))
    return std::make_shared<lease::pg_issuer>(context, at->at, patience, connections);
  auto redis = redis_at(config, store);
  redis.connect = std::max(patience, redis_patience_least);
  return std::make_shared<lease::redis_issuer>(context, redis, patience);
}

namespace {

std::shared_ptr<lease::seal_place> make_place(boost::asio::io_context& context, const settings::process& config,
                                              const std::string& name, std::size_t connections) {
  if (const auto at = postgres_at(config, name))
    return std::make_shared<lease::pg_seal_place>(context, name, at->at, place_patience, at->cut, connections);
  return std::make_shared<lease::redis_seal_place>(context, name, redis_at(config, name), place_patience);
}

// Connections that a sidecar has to one issuer, and to one place, at most: one that waits for a lock keeps no other client
// waiting.
constexpr std::size_t connections_of_sidecar = 4;

}  // namespace

std::vector<std::shared_ptr<lease::seal_place>> make_places(boost::asio::io_context& context,
                                                            const settings::process& config, const lease_plan& plan) {
  std::vector<std::shared_ptr<lease::seal_place>> out;
  for (const auto& name : plan.places) out.push_back(make_place(context, config, name, 1));
  return out;
}

lease::lease_sources make_sources(boost::asio::io_context& context, const settings::process& config) {
  struct shared {
    std::map<std::string, std::shared_ptr<lease::issuer>> issuers;
    std::map<std::string, std::shared_ptr<lease::seal_place>> places;
  };
  return [&context, &config, known = std::make_shared<shared>()](
             const std::vector<std::string>& resources, std::optional<milliseconds> ttl,
             std::optional<milliseconds> stop_grace) -> result<lease::lease_source> {
    const auto plan = plan_lease(config, resources, "");
    if (!plan) return plan.error();
    const auto times = times_of(config.leased, ttl, stop_grace);
    if (!times) return times.error();
    auto& by = known->issuers[plan->issuer.name];
    if (by == nullptr)
      by = make_issuer(context, config, *plan, timing_of(config.leased, config.leased.ttl), connections_of_sidecar);
    lease::lease_source out{by, {}, keeper_request_of(config, *plan, resources, *times)};
    for (const auto& name : plan->places) {
      auto& place = known->places[name];
      if (place == nullptr) place = make_place(context, config, name, connections_of_sidecar);
      out.places.push_back(place);
    }
    return out;
  };
}

lease::keeper_request keeper_request_of(const settings::process& config, const lease_plan& plan,
                                        const std::vector<std::string>& resources, const lease::timing& times) {
  auto out = client::keeper_request_of(resources, times);
  out.lock_delay = plan.lock_delay;
  out.stride = config.leased.stride;
  return out;
}

}  // namespace fencegate::cli
