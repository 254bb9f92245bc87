// Whether a thread that has nothing to do looks for work for a while before it sleeps.
//
// To look costs processor time, to sleep costs the time to be woken. So it looks while that has paid off lately: at least
// every other time work came before the time was over, and nobody else wanted the processor meanwhile. Else it sleeps at
// once, and looks a single time now and then, in case that has changed.
#pragma once

#include <algorithm>

namespace fencegate::gate {

class spin_credit {
 public:
  static constexpr int most = 16;
  static constexpr int lost_to_others = 4;  // as much as so many times in vain
  static constexpr int sleeps = 64;         // between two tries when there is no credit

  // Asked before each wait.
  [[nodiscard]] bool may_spin() {
    if (credit_ > 0) return true;
    if (--sleeps_left_ > 0) return false;
    credit_ = 1;
    return true;
  }
  void found() { credit_ = std::min(credit_ + 1, most); }
  // It was for nothing. `crowded`: others have run on this processor meanwhile.
  void in_vain(bool crowded) {
    credit_ = std::max(credit_ - (crowded ? lost_to_others : 1), 0);
    if (credit_ == 0) sleeps_left_ = sleeps;
  }

 private:
  int credit_ = 1;
  int sleeps_left_ = 0;
};

}  // namespace fencegate::gate
