#include "gate/relay/waiting_room.hpp"

#include <utility>

namespace fencegate::gate {

std::uint64_t waiting_room::enter(std::function<void()> make_room) {
  std::function<void()> oldest;
  std::uint64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = ++last_;
    inside_.emplace(place, std::move(make_room));
    if (inside_.size() > places_) {
      oldest = std::move(inside_.begin()->second);
      inside_.erase(inside_.begin());
    }
    waiting_.set(static_cast<std::int64_t>(inside_.size()));
  }
  if (oldest) oldest();
  return place;
}

void waiting_room::leave(std::uint64_t place) {
  const std::lock_guard lock(mutex_);
  inside_.erase(place);
  waiting_.set(static_cast<std::int64_t>(inside_.size()));
}

}  // namespace fencegate::gate
