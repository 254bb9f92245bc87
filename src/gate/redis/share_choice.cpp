#include "gate/redis/share_choice.hpp"

#include "base/demand.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {

bool share_choice::shares(time_point now, bool can_share) {
  turn(now, can_share);
  return stage_ == stage::trying ? !shared_ : shared_;
}

void share_choice::began() {
  ++under_way_;
  most_under_way_ = std::max(most_under_way_, under_way_);
}

void share_choice::answered(bool shared, time_point read, time_point now) {
  forgotten();
  const bool measured = stage_ == stage::before ? shared == shared_ : stage_ == stage::trying && shared != shared_;
  if (!measured || read < began_) return;
  auto& sample = stage_ == stage::before ? before_ : trial_;
  ++sample.writes;
  sample.waited += now - read;
}

void share_choice::forgotten() {
  demand(under_way_ > 0, "what is answered was under way");
  --under_way_;
}

void share_choice::turn(time_point now, bool can_share) {
  if (stage_ == stage::resting) {
    if (now >= next_) begin(stage::before, now);
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
  // Where never two are under way at the same time there is nothing to share, and where there are few nothing to gain.
  if (!enough || most_under_way_ < 2) return take(false, now);
  begin(stage::trying, now);
}

void share_choice::begin(stage what, time_point now) {
  stage_ = what;
  stage_began_ = began_ = now;
  if (what == stage::trying) return;
  before_ = trial_ = {};
  most_under_way_ = under_way_;
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
  stage_ = stage::resting;
  next_ = now + pause_;
}

}  // namespace fencegate::gate
