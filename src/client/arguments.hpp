// The words that fencegate and fencegate-hold have in common, as their command lines take them.
#pragma once

#include "client/hold.hpp"
#include "client/lease_words.hpp"
#include "client/writer.hpp"

#include <CLI/CLI.hpp>

#include <optional>

namespace fencegate::client {

// `hold`; what it asks for goes to `to`.
CLI::App* add_hold(CLI::App& app, hold_request& to);

// `lease acquire`, `renew`, `release`, `restarted`, `writer`, below the word `lease`.
struct lease_words {
  lease_wish acquiring;
  term_request keeping;
  started_request starting;
  heartbeat_request beating;
  CLI::App *acquire = nullptr, *renew = nullptr, *release = nullptr, *restarted = nullptr, *writer = nullptr;
};
void add_lease_words(CLI::App& lease, lease_words& to);
[[nodiscard]] bool word_given(const lease_words& in);
// Returns the exit status of the process; nullopt: none of these words was given.
[[nodiscard]] std::optional<int> run_lease_word(const lease_words& given);

}  // namespace fencegate::client
