// `fencegate lease …`: what operators ask of the leases.
#pragma once

#include "cli/config.hpp"

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>

namespace fencegate::cli {

struct lease_question {
  std::string path;                                 // of the configuration
  std::string issuer;                               // "" = the configuration's
  std::string resource;                             // of show: "" = all
  bool json = false;                                // show
  bool watch = false;                               // show
  std::string reason;                               // break, freeze
  std::string store;                                // forget-store: its id
  std::string to;                                   // move: the new issuer
  bool from_lost = false;                           // move: the former issuer is no more
  std::optional<std::chrono::milliseconds> wait{};  // move: for a holder to end; nullopt: for ever
};

// One of those below. Exit codes as of commands.hpp.
using lease_word = int (*)(const settings::process& config, const lease_question& about, std::ostream& out,
                           std::ostream& err);
[[nodiscard]] int run_lease_word(lease_word word, const lease_question& about, const environment& from,
                                 std::ostream& out, std::ostream& err);

// `lease show`: who holds what, for how long, under which token; of one resource also what each place knows of it.
// `watch`: for ever, whenever it is another's.
[[nodiscard]] int show_leases(const settings::process& config, const lease_question& about, std::ostream& out,
                              std::ostream& err);

// `lease break`: takes a lease from its holder, seals it everywhere, and releases it: for a holder that hangs and renews.
[[nodiscard]] int break_lease(const settings::process& config, const lease_question& about, std::ostream& out,
                              std::ostream& err);

// `lease freeze`: the same, but nobody has it until `lease thaw`.
[[nodiscard]] int freeze_lease(const settings::process& config, const lease_question& about, std::ostream& out,
                               std::ostream& err);
[[nodiscard]] int thaw_lease(const settings::process& config, const lease_question& about, std::ostream& out,
                             std::ostream& err);

// `lease move`: gives resources another issuer. While it runs, nobody holds them; where it ended in between, nobody gets them
// until it was done again.
[[nodiscard]] int move_lease(const settings::process& config, const lease_question& about, std::ostream& out,
                             std::ostream& err);

// `lease forget-store`: a store that former holders sealed is no more, or has lost its data and its id with them.
[[nodiscard]] int forget_store(const settings::process& config, const lease_question& about, std::ostream& out,
                               std::ostream& err);

}  // namespace fencegate::cli
