// What holds whenever the machine has done what an event asked for.
#include "base/demand.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

void redis_engine::invariants([[maybe_unused]] bool thorough) const {
#if !defined(FENCEGATE_BROKEN_CHECK_THEN_FORWARD) && !defined(FENCEGATE_BROKEN_ENVELOPE)
  if (closing_) return;
  const bool in_flight = phase_ == phase::arming || phase_ == phase::batch || phase_ == phase::finishing ||
                         phase_ == phase::single || phase_ == phase::barrier;
  demand(!in_flight || !expectations_.empty(), "what was sent is answered");
  if (phase_ == phase::armed) {
    demand(expectations_.empty() || next_is(awaits::local) || large_ != nullptr || input_over_,
           "nothing is in flight on an armed link");
    demand(armed_mask_ == arm_mask_ && tail_.claims == claims_.generation(), "an armed link has proven these claims");
    demand((batch_.needs & ~armed_mask_) == 0, "a batch needs no more than was proven");
  }
  demand(batch_.elements_left == 0 || next_is(awaits::exec), "elements of EXEC belong to a batch");
  demand(tx_.elements_left == 0 || next_is(awaits::tx_exec), "elements of EXEC belong to a transaction");
  const bool inside =
      phase_ == phase::transaction || phase_ == phase::waiting || (phase_ == phase::barrier && change_.inside);
  demand(!tx_.left || inside, "only a client's transaction is left");
  if (!thorough) return;
  const auto locals = std::count_if(expectations_.begin(), expectations_.end(),
                                    [](const expectation& one) { return one.what == awaits::local; });
  demand(static_cast<std::size_t>(locals) == locals_.size(), "each answer of the gate's own has its turn");
#endif
}

bool redis_engine::next_is(awaits what) const { return !expectations_.empty() && expectations_.front().what == what; }

}  // namespace fencegate::gate
