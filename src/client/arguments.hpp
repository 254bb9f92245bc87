// The words that fencegate and fencegate-hold have in common, as their command lines take them.
#pragma once

#include "base/quantity_text.hpp"
#include "client/hold.hpp"
#include "client/lease_words.hpp"
#include "client/writer.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <utility>

namespace fencegate::client {

// A duration as the configuration has it: "30s".
template <class Out>
CLI::Option* add_duration(CLI::App& to, const std::string& name, Out& out, const std::string& what) {
  auto read = [&out, name](const CLI::results_t& given) {
    const auto value = parse_duration(given.front());
    if (!value) throw CLI::ValidationError(name, value.error().message);
    out = *value;
    return true;
  };
  return to.add_option(name, std::move(read), what)->type_name("DURATION")->expected(1);
}

// Where a sidecar answers; see read_api.
CLI::Option* add_api(CLI::App& to, std::string& api);

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
