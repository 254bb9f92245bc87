// A small vocabulary for tests of the configuration: surroundings made up in memory, and errors as lines of text.
#pragma once

#include "cli/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

class ConfigTest : public testing::Test {
 protected:
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  [[nodiscard]] environment surroundings() const {
    return {[this](const std::string& name) -> std::optional<std::string> {
              const auto at = variables.find(name);
              return at == variables.end() ? std::nullopt : std::optional(at->second);
            },
            [this](const std::string& path) -> result<std::string> {
              const auto at = files.find(path);
              if (at == files.end()) return error{"No such file or directory"};
              return {boost::system::in_place_value, at->second};
            },
            [this](const std::string& path) -> result<void> {
              return files.contains(path) ? result<void>() : error{"No such file or directory"};
            }};
  }

  // "line:column: message", in the order of the report; empty when the text is accepted.
  [[nodiscard]] std::vector<std::string> errors_of(std::string_view yaml) const {
    const auto outcome = read_config(yaml, "f", surroundings());
    std::vector<std::string> out;
    if (outcome) return out;
    for (const auto& e : outcome.error()) out.push_back(e.to_string().substr(std::string_view("f:").size()));
    return out;
  }

  // The warnings of a text that is accepted, as above.
  [[nodiscard]] std::vector<std::string> warnings_of(std::string_view yaml) const {
    auto out = settings_of(yaml).warnings;
    for (auto& one : out) one.erase(0, std::string_view("f:").size());
    return out;
  }

  // REQUIRES: the text is accepted; otherwise the test fails and the settings are the defaults.
  [[nodiscard]] settings::process settings_of(std::string_view yaml) const {
    auto outcome = read_config(yaml, "f", surroundings());
    if (outcome) return *outcome;
    for (const auto& e : outcome.error()) ADD_FAILURE() << e.to_string();
    return {};
  }

  // A whole configuration, one gate with these keys added to the required ones; they start on line 6, column 5.
  [[nodiscard]] static std::string gate_with(std::string_view keys) {
    std::string out =
        "gates:\n  - name: cache\n    protocol: redis\n    listen: 127.0.0.1:6380\n    upstream: redis://127.0.0.1\n";
    return out.append("    ").append(keys).append("\n");
  }

  // The same with an upstream of its own, on line 5, column 15.
  [[nodiscard]] static std::string gate_at(std::string_view upstream) {
    std::string out = "gates:\n  - name: cache\n    protocol: redis\n    listen: 127.0.0.1:6380\n    upstream: ";
    return out.append(upstream).append("\n");
  }

  // The same two for a postgres gate.
  [[nodiscard]] static std::string postgres_with(std::string_view keys) {
    return postgres_at("postgres://127.0.0.1").append("    ").append(keys).append("\n");
  }
  [[nodiscard]] static std::string postgres_at(std::string_view upstream) {
    std::string out = "gates:\n  - name: db\n    protocol: postgres\n    listen: 127.0.0.1:6432\n    upstream: ";
    return out.append(upstream).append("\n");
  }

  // The first gate of a configuration that is accepted.
  [[nodiscard]] settings::redis_gate gate_of(std::string_view yaml) const {
    const auto all = settings_of(yaml);
    if (all.redis_gates.size() == 1) return all.redis_gates[0];
    ADD_FAILURE() << "not one gate but " << all.redis_gates.size();
    return {};
  }
  [[nodiscard]] settings::postgres_gate postgres_of(std::string_view yaml) const {
    const auto all = settings_of(yaml);
    if (all.postgres_gates.size() == 1) return all.postgres_gates[0];
    ADD_FAILURE() << "not one gate but " << all.postgres_gates.size();
    return {};
  }
};

}  // namespace fencegate::cli
