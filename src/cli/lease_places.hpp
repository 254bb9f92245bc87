// From the configuration and the command line: who grants the lease of some resources, and where its tokens are sealed.
#pragma once

#include "base/result.hpp"
#include "fence/gate_settings.hpp"
#include "lease/issuer.hpp"
#include "lease/keeper.hpp"
#include "lease/sidecar_desk.hpp"
#include "lease/timing.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::cli {

struct lease_plan {
  settings::lease_issuer issuer;
  std::vector<std::string> places;          // "gate:cache", "store:ledger"; each once
  std::chrono::milliseconds lock_delay{0};  // the longest of them
};

// Errors: resources of several issuers, or without one.
// `issuer`: a name that stands against the configuration's; "" = none.
[[nodiscard]] result<lease_plan> plan_lease(const settings::process& config, const std::vector<std::string>& resources,
                                            const std::string& issuer);

// nullopt: the configuration's. Errors: times that do not fit each other.
[[nodiscard]] result<lease::timing> times_of(const settings::leases& all, std::optional<std::chrono::milliseconds> ttl,
                                             std::optional<std::chrono::milliseconds> stop_grace);

// REQUIRES: a plan of this configuration. `connections`: to a PostgreSQL, at most.
[[nodiscard]] std::shared_ptr<lease::issuer> make_issuer(boost::asio::io_context& context,
                                                         const settings::process& config, const lease_plan& plan,
                                                         const lease::timing& times, std::size_t connections = 1);
[[nodiscard]] std::vector<std::shared_ptr<lease::seal_place>> make_places(boost::asio::io_context& context,
                                                                          const settings::process& config,
                                                                          const lease_plan& plan);

// By this process; waits for ever.
[[nodiscard]] lease::keeper_request keeper_request_of(const settings::process& config, const lease_plan& plan,
                                                      const std::vector<std::string>& resources,
                                                      const lease::timing& times);

// For the sidecar's clients, who share the connections. REQUIRES: `config` outlives it.
[[nodiscard]] lease::lease_sources make_sources(boost::asio::io_context& context, const settings::process& config);

}  // namespace fencegate::cli
