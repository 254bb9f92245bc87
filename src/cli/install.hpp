// `fencegate install`: the fence's schema in the PostgreSQL databases that a configuration names.
#pragma once

#include "cli/config.hpp"

#include <iosfwd>
#include <string>
#include <vector>

namespace fencegate::cli {

struct install_request {
  std::string path;                    // of the configuration
  std::string gate;                    // "" = all, unless a store is named
  std::string store;                   // "" = all, unless a gate is named
  std::vector<std::string> databases;  // instead of those in the URLs; empty = those
  bool print = false;                  // show the SQL, touch nothing
  std::vector<std::string> protect;    // tables
  std::vector<std::string> unprotect;
  std::string resource;  // what --protect asks for
};

// One line for each database on `out`, or on `err` with what went wrong. Exit code 0 when all are done, 1 when one failed,
// 2 for a configuration or a request that makes no sense. Blocks.
[[nodiscard]] int install(const install_request& request, const environment& from, std::ostream& out,
                          std::ostream& err);

}  // namespace fencegate::cli
