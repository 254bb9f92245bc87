#include "cli/lease_places.hpp"

#include "cli/config_url.hpp"
#include "lease/pg_ledger.hpp"
#include "lease/redis_seal_place.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

// What a look and the beginning of a seal may take.
constexpr milliseconds place_patience{5'000};

template <class All>
auto* named(const All& all, std::string_view name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  return at == all.end() ? nullptr : &*at;
}

// A PostgreSQL database that keeps marks, and for how long a seal waits there for older sessions to end.
struct pg_place {
  backend::pg_target at;
  milliseconds cut;
};

pg_place place_of(const settings::postgres_gate& gate) {
  return {{gate.upstream, gate.control, gate.control_database, gate.secured}, gate.cut_timeout};
}

pg_place place_of(const upstream& store) {
  return {{store.where, store.control, store.database, store.secured}, milliseconds(5'000)};
}

std::string_view name_in(std::string_view place) { return place.substr(place.find(':') + 1); }

// nullopt: a Redis, or none.
std::optional<pg_place> postgres_at(const settings::process& config, std::string_view place) {
  if (place.starts_with("gate:")) {
    const auto* gate = named(config.postgres_gates, name_in(place));
    return gate ? std::optional(place_of(*gate)) : std::nullopt;
  }
  const auto* store = named(config.stores, name_in(place));
  if (!store || !parse_postgres_url(store->url)) return std::nullopt;
  return place_of(*parse_store_url(*store));
}

// REQUIRES: there is such a Redis.
settings::mark_store redis_at(const settings::process& config, std::string_view place) {
  settings::mark_store out;
  out.name = place;
  if (place.starts_with("gate:")) {
    const auto& gate = *named(config.redis_gates, name_in(place));
    out.where = gate.upstream;
    out.login = gate.control;
    out.connect = gate.limits_time.connect;
    return out;
  }
  const auto url = *parse_store_url(*named(config.stores, name_in(place)));
  out.where = url.where;
  out.login = url.control;
  return out;
}

std::vector<std::string> all_places(const settings::process& config) {
  std::vector<std::string> out;
  for (const auto& one : config.stores) out.push_back("store:" + one.name);
  for (const auto& one : config.redis_gates) out.push_back("gate:" + one.name);
  for (const auto& one : config.postgres_gates) out.push_back("gate:" + one.name);
  return out;
}

const settings::lease_rule* rule_of(const settings::leases& all, const std::string& resource) {
  for (const auto& rule : all.resources)
    if (rule.match.match(resource)) return &rule;
  return nullptr;
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
  return plan;
}

std::shared_ptr<lease::issuer> make_issuer(boost::asio::io_context& context, const settings::process& config,
                                           const lease_plan& plan, milliseconds patience) {
  return std::make_shared<lease::pg_issuer>(context, postgres_at(config, "store:" + plan.issuer.store)->at, patience);
}

std::vector<std::shared_ptr<lease::seal_place>> make_places(boost::asio::io_context& context,
                                                            const settings::process& config, const lease_plan& plan) {
  std::vector<std::shared_ptr<lease::seal_place>> out;
  for (const auto& name : plan.places) {
    if (const auto at = postgres_at(config, name))
      out.push_back(std::make_shared<lease::pg_seal_place>(context, name, at->at, place_patience, at->cut));
    else
      out.push_back(std::make_shared<lease::redis_seal_place>(context, name, redis_at(config, name), place_patience));
  }
  return out;
}

}  // namespace fencegate::cli
