// Puts more into a YAML text, and leaves every byte of it as it is: comments, quotes, order. Pure.
#pragma once

#include "base/result.hpp"

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

// Of one text: what is to be put where. A map gets the keys that it lacks in front of its own, a sequence the further elements
// in front of its own; two maps under one key are merged, and a scalar
// that is there already has to be the same. What is written in block style gets block style, what is written in
// braces gets JSON, so that JSON stays JSON.
class yaml_merge {
 public:
  explicit yaml_merge(std::string_view text);

  // `more`, a map, into the map `of`, which stands under `key`. Both are nodes of the text. Errors name the line.
  [[nodiscard]] result<void> add(const YAML::Node& key, const YAML::Node& of, const YAML::Node& more);
  [[nodiscard]] std::string take() const;

 private:
  struct insertion {
    std::size_t at;
    std::string text;
  };

  [[nodiscard]] result<void> put(const YAML::Node& key, const YAML::Node& into, const YAML::Node& what);
  [[nodiscard]] result<void> put_block(const YAML::Node& key, const YAML::Node& into, const YAML::Node& what);
  [[nodiscard]] result<void> put_flow(const YAML::Node& into, const YAML::Node& what);

  std::string text_;
  std::vector<std::size_t> lines_;  // where each begins
  std::vector<insertion> insertions_;
};

// A key and its value in a map.
struct yaml_entry {
  YAML::Node key, value;
};
[[nodiscard]] std::optional<yaml_entry> entry_of(const YAML::Node& map, std::string_view name);

}  // namespace fencegate::cli
