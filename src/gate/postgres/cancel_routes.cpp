#include "gate/postgres/cancel_routes.hpp"

#include <utility>

namespace fencegate::gate {

void cancel_routes::add(const std::string& key, route to) {
  const std::lock_guard lock(mutex_);
  routes_.insert_or_assign(key, std::move(to));
}

void cancel_routes::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  routes_.erase(key);
}

std::optional<cancel_routes::route> cancel_routes::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = routes_.find(key);
  return at == routes_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace fencegate::gate
