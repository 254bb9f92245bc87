#include "cli/mark_places.hpp"

#include "backend/postgres_install.hpp"
#include "cli/config_url.hpp"

namespace fencegate::cli {
namespace {

pg_place place_of(const settings::postgres_gate& gate) {
  return {
      {gate.upstream, gate.control, gate.control_database, gate.secured}, gate.cut_timeout, gate.limits_time.connect};
}

pg_place place_of(const upstream& store) {
  return {{store.where, store.control, store.database, store.secured}, std::chrono::milliseconds(5'000)};
}

}  // namespace

std::vector<std::string> all_places(const settings::process& config) {
  std::vector<std::string> out;
  for (const auto& one : config.stores) out.push_back("store:" + one.name);
  for (const auto& one : config.redis_gates) out.push_back("gate:" + one.name);
  for (const auto& one : config.postgres_gates) out.push_back("gate:" + one.name);
  return out;
}

std::optional<pg_place> postgres_at(const settings::process& config, std::string_view place) {
  if (place.starts_with("gate:")) {
    const auto* gate = named(config.postgres_gates, name_in(place));
    return gate ? std::optional(place_of(*gate)) : std::nullopt;
  }
  const auto* store = named(config.stores, name_in(place));
  if (!store || !parse_postgres_url(store->url)) return std::nullopt;
  return place_of(*parse_store_url(*store));
}

settings::mark_store redis_at(const settings::process& config, std::string_view place) {
  settings::mark_store out;
  out.name = place;
  if (place.starts_with("gate:")) {
    const auto& gate = *named(config.redis_gates, name_in(place));
    out.where = gate.upstream;
    out.login = gate.control;
    out.secured = gate.secured;
    out.connect = gate.limits_time.connect;
    return out;
  }
  const auto url = *parse_store_url(*named(config.stores, name_in(place)));
  out.where = url.where;
  out.login = url.control;
  out.secured = url.secured;
  return out;
}

std::string address_of(const settings::process& config, std::string_view place) {
  if (const auto at = postgres_at(config, place)) return backend::to_string(backend::postgres_place{at->at});
  return settings::to_string(redis_at(config, place).where);
}

}  // namespace fencegate::cli
