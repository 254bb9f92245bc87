#include "gate/postgres/cancel_routes.hpp"

namespace fencegate::gate {

void cancel_routes::add(const std::string& key, const stream::endpoint& server) {
  const std::lock_guard lock(mutex_);
  servers_.insert_or_assign(key, server);
}

void cancel_routes::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  servers_.erase(key);
}

std::optional<stream::endpoint> cancel_routes::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = servers_.find(key);
  return at == servers_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace fencegate::gate
