// A command line as a tree: what the texts made of it have to say of each word.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace fencegate::client {

// Those of its words that --help shows, as they were added.
[[nodiscard]] inline std::vector<const CLI::App*> words_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

[[nodiscard]] inline std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) { return !one->get_group().empty() && one->nonpositional(); });
}

[[nodiscard]] inline std::vector<const CLI::Option*> arguments_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) { return !one->get_group().empty() && one->get_positional(); });
}

// "-c", "--config".
[[nodiscard]] inline std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const auto& name : option.get_snames()) out.push_back("-" + name);
  for (const auto& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

[[nodiscard]] inline bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// What stands for its value: "DURATION".
[[nodiscard]] inline std::string value_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  return type.substr(0, std::min(type.find(':'), type.find(' ')));
}

// "fencegate lease show"
[[nodiscard]] inline std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

}  // namespace fencegate::client
