// Gates that hold the lease for their clients: their keys, and what must hold between them, the section `leases`, and their
// writers.
#pragma once

#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"

#include <string>
#include <vector>

namespace fencegate::cli {

void read_gate_lease(report& to, section& gate, settings::gate_lease& out);

// The section `leases`: state_dir and writers.
void read_lease_writers(report& to, section& leases, settings::leases& out);

// A gate with a lease, and where the configuration says so.
struct lease_gate {
  std::string name;
  YAML::Mark mark;
};

// Complains about what does not hold, and adds the writers that the section `leases` does not describe. REQUIRES: all else was
// read.
void check_lease_gates(report& to, const std::vector<lease_gate>& marks, const YAML::Mark& of_leases,
                       settings::process& out);

}  // namespace fencegate::cli
