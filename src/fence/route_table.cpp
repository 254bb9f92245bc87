#include "fence/route_table.hpp"

#include "fence/printable.hpp"

#include <algorithm>

namespace fencegate::fence {

result<void> route_table::add(route_pattern pattern) {
  for (const route_pattern& known : routes_) {
    if (pattern.collides_with(known)) {
      return error{"'" + printable(pattern.text(), 80) + "' matches what '" + printable(known.text(), 80) +
                   "' matches, and neither is more specific"};
    }
  }
  const auto comes_before = [this](const route_pattern& p, std::size_t route) { return p.precedes(routes_[route]); };
  const auto place = std::upper_bound(by_precedence_.begin(), by_precedence_.end(), pattern, comes_before);
  by_precedence_.insert(place, routes_.size());
  routes_.push_back(std::move(pattern));
  return {};
}

std::optional<route_match> route_table::match(std::string_view method, std::string_view path) const {
  route_match found;
  for (const std::size_t route : by_precedence_) {
    if (routes_[route].match(method, path, found.captured)) {
      found.route = route;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace fencegate::fence
