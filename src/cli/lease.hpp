// `fencegate lease …`: what operators ask of the leases, by a configuration or by a sidecar.
#pragma once

#include "cli/config.hpp"
#include "lease/operation.hpp"

#include <iosfwd>
#include <string>
#include <vector>

namespace fencegate::cli {

struct lease_question {
  std::string path;                  // of the configuration; "": a sidecar is asked
  std::string api;                   // where it answers; "": its default socket
  lease::operation asked{};          // but its resources
  std::string resources;             // "orders" or "orders,payments"; show: "" = all
  bool json = false, watch = false;  // show; for ever, whenever it is another's
};

// Exit codes as of commands.hpp; 75: another holds what is to be moved.
[[nodiscard]] int run_lease_word(const lease_question& about, const environment& from, std::ostream& out,
                                 std::ostream& err);

// As a table.
void print_leases(const lease::operation_result& shown, std::ostream& out);
// One of the leases is another's by now, or free, or frozen, or others wait for it.
[[nodiscard]] bool differ(const std::vector<lease::lease_entry>& a, const std::vector<lease::lease_entry>& b);

}  // namespace fencegate::cli
