// The section `leases` of the configuration.
#pragma once

#include "cli/config_gates.hpp"
#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"
#include "lease/timing.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace fencegate::cli {

// A lease, and its at_least, last no longer.
inline constexpr std::chrono::hours lease_time_most{24};

// REQUIRES: stores and gates were read. Adds where its API listens to `listeners`.
void read_leases(report& to, const YAML::Node& node, std::vector<listener>& listeners, settings::process& out);

// Where a sidecar answers, as a command line has it: "unix:/path", "http://127.0.0.1:9181"; "": its default socket.
[[nodiscard]] result<settings::address> read_api(const std::string& text);

// The times of a lease with this TTL.
[[nodiscard]] lease::timing timing_of(const settings::leases& all, std::chrono::milliseconds ttl);

}  // namespace fencegate::cli
