// One map of the configuration, read key by key. Every complaint is kept with its place; reading goes on, so that an
// operator sees all of them at once. A value that was wrong leaves the caller's default untouched.
#pragma once

#include "cli/config.hpp"
#include "cli/config_keys.hpp"
#include "cli/config_values.hpp"

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

// What was found wrong so far, and where variables and files come from.
class report {
 public:
  report(std::string_view file, const environment& surroundings) : from(surroundings), file_(file) {}

  void add(const YAML::Mark& at, std::string message);
  // Of what is accepted, and may not do what was meant.
  void warn(const YAML::Mark& at, std::string message);
  [[nodiscard]] bool empty() const { return errors_.empty(); }
  [[nodiscard]] std::size_t size() const { return errors_.size(); }
  // In the order of the file.
  [[nodiscard]] config_errors take();
  [[nodiscard]] std::vector<std::string> take_warnings() { return std::move(warnings_); }

  const environment& from;

 private:
  std::string file_;
  config_errors errors_;
  std::vector<std::string> warnings_;
};

class section {
 public:
  // Complains when `node` is not a map, and about keys that are unknown, given twice, or no text. `what` names the
  // section in messages ("gate", "policy"); an empty list of keys means that the operator chooses them.
  section(report& to, const YAML::Node& node, std::string_view what, std::span<const std::string_view> keys);

  // REQUIRES (the ones that take a key): the key is in the section's list.
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  // nullopt: absent, or without a value (which is complained about).
  [[nodiscard]] std::optional<YAML::Node> node(std::string_view key);
  // Where the key's value stands, or else the section.
  [[nodiscard]] YAML::Mark mark(std::string_view key) const;
  [[nodiscard]] YAML::Mark mark() const { return mark_; }

  // Complains when the key is absent.
  void require(std::string_view key);
  // Text with its variables expanded.
  std::optional<std::string> text(std::string_view key);
  // The same for a URL.
  std::optional<std::string> url(std::string_view key);
  void duration(std::string_view key, std::chrono::milliseconds& out, std::chrono::milliseconds least,
                std::chrono::milliseconds most = std::chrono::milliseconds::max());
  template <class Integer>
  void count(std::string_view key, Integer& out, std::int64_t least, std::int64_t most) {
    if (const auto value = whole_number(key, least, most)) out = static_cast<Integer>(*value);
  }
  // The same, where `auto` is nullopt.
  void count_or_auto(std::string_view key, std::optional<std::int64_t>& out, std::int64_t least, std::int64_t most);
  // `out`: the enum, or an optional of it.
  template <class Out, class Enum, std::size_t n>
  void choice(std::string_view key, Out& out, const std::array<word<Enum>, n>& words);
  std::optional<settings::address> address(std::string_view key);

  struct entry {
    std::string key;
    YAML::Mark key_mark;
    YAML::Node value;
  };
  // In the order of the file; of a key given twice only the first.
  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }

  void complain(std::string_view key, std::string message) { report_.add(mark(key), std::move(message)); }
  void warn(std::string_view key, std::string message) { report_.warn(mark(key), std::move(message)); }

 private:
  void take_entry(const YAML::Node& key, const YAML::Node& value);
  [[nodiscard]] const entry* find(std::string_view key) const;
  std::optional<std::int64_t> whole_number(std::string_view key, std::int64_t least, std::int64_t most);

  report& report_;
  std::string what_;
  std::span<const std::string_view> keys_;
  YAML::Mark mark_;
  std::vector<entry> entries_;
};

using expansion = result<std::string>(std::string_view text, const variable_lookup& variable);
// The scalar `node` with its variables expanded; complains otherwise. `what` names it in messages.
std::optional<std::string> text_of(report& to, const YAML::Node& node, std::string_view what,
                                   expansion* expanded_by = expand);

template <class Out, class Enum, std::size_t n>
void section::choice(std::string_view key, Out& out, const std::array<word<Enum>, n>& words) {
  const auto value = text(key);
  if (!value) return;
  std::vector<std::string_view> names;
  std::string listed;
  for (const auto& candidate : words) {
    if (candidate.name == *value) {
      out = candidate.value;
      return;
    }
    names.push_back(candidate.name);
    listed += (listed.empty() ? "" : ", ") + std::string(candidate.name);
  }
  complain(key, std::string(key) + " must be one of " + listed + suggestion(*value, names));
}

}  // namespace fencegate::cli
