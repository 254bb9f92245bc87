// `fencegate doctor`: says what is hazardous in a configuration and in the servers behind it.
#pragma once

#include "cli/config.hpp"
#include "cli/examination.hpp"

#include <iosfwd>
#include <string>

namespace fencegate::cli {

inline constexpr int exit_not_known = 3;  // no hazard was found, but not all could be asked

// A paragraph for each hazard on `out`, or one JSON object. Exit codes: 0 none; 1 some; 2 a bad configuration; 3 none, but
// something could not be asked. Blocks.
[[nodiscard]] int doctor(const std::string& path, bool json, const environment& from, std::ostream& out,
                         std::ostream& err);

void print_hazards(const hazard_report& report, std::ostream& out);
[[nodiscard]] std::string json_of(const hazard_report& report);

}  // namespace fencegate::cli
