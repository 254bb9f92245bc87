// What the connections of a lease gate are bound to: one grant, from when it was sealed until it is revoked. A connection takes
// the claims of the bond that holds when it is accepted, and never those of another.
//
// Any thread. A process may stand still between may_bind() and what follows: the connection is then bound to a grant that is
// over, which its mark refuses; it is never bound to the next one.
#pragma once

#include "fence/tag.hpp"
#include "lease/holder.hpp"

#include <mutex>
#include <optional>
#include <utility>

namespace fencegate::lease {

class bond {
 public:
  bond(fence::claims_list claims, const holder& times) : claims_(std::move(claims)), holder_(times) {}

  [[nodiscard]] const fence::claims_list& claims() const { return claims_; }
  // Nothing new is bound behind D, as a renewal was confirmed last, or while the clock may have stood still.
  [[nodiscard]] bool may_bind(clock_reading now) const {
    const std::lock_guard lock(mutex_);
    return holder_ && holder_->may_begin(now);
  }
  void moved(const holder& times) {
    const std::lock_guard lock(mutex_);
    if (holder_) holder_.emplace(times);
  }
  // When this returns, may_bind() is false for good. The time of the loss is read *behind* it: a writer that was started later
  // than that has never had a connection of this bond.
  void revoke() {
    const std::lock_guard lock(mutex_);
    holder_.reset();
  }

 private:
  const fence::claims_list claims_;
  mutable std::mutex mutex_;
  std::optional<holder> holder_;  // nullopt: revoked
};

}  // namespace fencegate::lease
