// The routes of an http gate: each by itself, and against the others.
#pragma once

#include "cli/config_section.hpp"
#include "fence/gate_settings.hpp"
#include "fence/route_table.hpp"
#include "fence/route_template.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

class http_routes_reader {
 public:
  // REQUIRES: both live longer. The gate has its policy already; it gets routes and the stores that they use.
  http_routes_reader(report& to, settings::http_gate& gate, const std::vector<settings::store>& stores)
      : report_(to), gate_(gate), stores_(stores) {}

  // The store of routes that name none; "" = each has to.
  void default_store(std::string name) {
    default_store_ = std::move(name);
    default_unusable_ = false;
  }
  // It was complained about already.
  void default_store_unusable() { default_unusable_ = true; }
  void read(const YAML::Node& node);

  // Looks up a store and adds it to those of the gate; complains at the key's value otherwise.
  const settings::mark_store* use_store(section& in, std::string_view key, const std::string& name);

  // The line of the first route that forwards; nullopt: none does.
  [[nodiscard]] std::optional<int> first_forward() const { return first_forward_; }

 private:
  std::optional<fence::route_pattern> read_match(section& route, settings::http_route& out);
  void read_action(section& route, const fence::route_pattern& pattern, settings::http_route& out);
  void read_command(section& route, const fence::route_pattern& pattern, settings::http_route& out);
  void check_command(const std::string& name, const std::string& next, const YAML::Mark& at);
  void read_statement(section& route, const fence::route_pattern& pattern, settings::http_route& out);
  void warn_of_spellings(section& route, const fence::route_template& resource, const fence::route_pattern& pattern,
                         std::size_t number, const std::string& parameter);
  void read_guarantee(section& route, const settings::mark_store* store, settings::http_route& out);
  void check_effect(section& route, const settings::http_route& out);
  std::vector<std::string> templates(section& route, std::string_view key, const fence::route_pattern& pattern);

  report& report_;
  settings::http_gate& gate_;
  const std::vector<settings::store>& stores_;
  std::string default_store_;
  bool default_unusable_ = false;
  fence::route_table table_;
  std::vector<int> lines_;  // of the routes in the table
  std::optional<int> first_forward_;
};

}  // namespace fencegate::cli
