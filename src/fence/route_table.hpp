// The routes of an HTTP gate: which one is a request's? The most specific that matches (see route_pattern); the order in
// which they were written does not count.
#pragma once

#include "fence/route_pattern.hpp"

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace fencegate::fence {

struct route_match {
  std::size_t route = 0;  // counted from 0, in the order of add()
  route_captures captured;
};

class route_table {
 public:
  // Error: the pattern can match the same request as one before, and neither is more specific.
  [[nodiscard]] result<void> add(route_pattern pattern);

  // `path` as in route_pattern::match. nullopt: no route matches. Nothing is allocated.
  [[nodiscard]] std::optional<route_match> match(std::string_view method, std::string_view path) const;

  [[nodiscard]] std::size_t size() const { return routes_.size(); }
  [[nodiscard]] const route_pattern& pattern(std::size_t route) const { return routes_[route]; }

 private:
  std::vector<route_pattern> routes_;
  std::vector<std::size_t> by_precedence_;
};

}  // namespace fencegate::fence
