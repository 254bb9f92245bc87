// Where a configuration's marks are: each store, and each upstream of a redis or postgres gate, by "store:NAME" or "gate:NAME".
#pragma once

#include "backend/pg_dial.hpp"
#include "fence/gate_settings.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

// A PostgreSQL database that keeps marks.
struct pg_place {
  backend::pg_target at;
  std::chrono::milliseconds cut;             // how long a raise waits there for older sessions to end
  std::chrono::milliseconds connect{5'000};  // for connecting

  friend bool operator==(const pg_place&, const pg_place&) = default;
};

[[nodiscard]] std::vector<std::string> all_places(const settings::process& config);
// nullopt: a Redis, or none.
[[nodiscard]] std::optional<pg_place> postgres_at(const settings::process& config, std::string_view place);
// REQUIRES: there is such a Redis.
[[nodiscard]] settings::mark_store redis_at(const settings::process& config, std::string_view place);
// "127.0.0.1:6379", "127.0.0.1:5432/app": nothing secret.
[[nodiscard]] std::string address_of(const settings::process& config, std::string_view place);

// nullptr: there is none.
template <class All>
auto* named(const All& all, std::string_view name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  return at == all.end() ? nullptr : &*at;
}
[[nodiscard]] inline std::string_view name_in(std::string_view place) { return place.substr(place.find(':') + 1); }

}  // namespace fencegate::cli
