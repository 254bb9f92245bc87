#include "gate/redis/share_choice.hpp"

#include <algorithm>

namespace fencegate::gate {

bool share_choice::shares(time_point now, bool can_share) {
  if (stage_ == stage::resting && now < next_.load()) return shared_;
  const std::scoped_lock lock(mutex_);
  turn(now, can_share);
  return stage_ == stage::trying ? !shared_ : shared_.load();
}

void share_choice::answered(bool shared, time_point read, time_point now) {
  if (stage_ == stage::resting) return;
  const std::scoped_lock lock(mutex_);
  const bool measured = stage_ == stage::before ? shared == shared_ : stage_ == stage::trying && shared != shared_;
  if (!measured || read < began_) return;
  auto& sample = stage_ == stage::before ? before_ : trial_;
  ++sample.writes;
  sample.waited += now - read;
}

// Of these the mutex is held.

void share_choice::turn(time_point now, bool can_share) {
  if (stage_ == stage::resting) {
    if (now >= next_.load()) begin(stage::before, now);
    return;
  }
  if (now - began_ > stale) return take(shared_ && stage_ == stage::trying, now);
  if (stage_ == stage::trying && !shared_ && !can_share && now - stage_began_ < link_patience) {
    began_ = now;  // as soon as the link is there
    return;
  }
  const auto& sample = stage_ == stage::before ? before_ : trial_;
  const bool enough = sample.writes >= writes_enough;
  if (now - began_ < slice || (!enough && now - began_ < slice_most)) return;
  if (stage_ == stage::trying) return enough ? conclude(now) : take(shared_, now);
  // Little's law: how many are under way at the same time.
  const double under_way = std::chrono::duration<double>(sample.waited) / std::chrono::duration<double>(now - began_);
  if (!enough || under_way < under_way_least) return take(false, now);
  begin(stage::trying, now);
}

void share_choice::begin(stage what, time_point now) {
  stage_ = what;
  stage_began_ = began_ = now;
  if (what == stage::before) before_ = trial_ = {};
}

void share_choice::conclude(time_point now) {
  const double shared = (shared_ ? before_ : trial_).mean(), own = (shared_ ? trial_ : before_).mean();
  const double ratio = std::clamp(shared / std::max(own, 1.0), 1 / ratio_most, ratio_most);
  ratio_ = ratio_ == 0 ? ratio : ratio_ + (ratio - ratio_) * weight_of_last;
  take(ratio_ < worth_it, now);
}

void share_choice::take(bool shared, time_point now) {
  pause_ = shared == shared_ ? std::min<duration>(2 * pause_, pause_most) : pause_min;
  shared_ = shared;
  next_ = now + pause_;
  stage_ = stage::resting;
}

std::shared_ptr<share_choice> share_choices::of(const std::string& group) {
  const std::scoped_lock lock(mutex_);
  if (choices_.size() >= looked_through_at_) {
    std::erase_if(choices_, [](const auto& one) { return one.second.expired(); });
    looked_through_at_ = std::max(looked_through_at_, 2 * choices_.size());
  }
  auto& place = choices_[group];
  auto found = place.lock();
  if (found == nullptr) place = found = std::make_shared<share_choice>();
  return found;
}

}  // namespace fencegate::gate
