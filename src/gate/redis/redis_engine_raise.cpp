// Raising the marks of what a connection claims.
#include "gate/redis/redis_engine.hpp"

namespace fencegate::gate {

// Raises the first claim of the mask that was not raised yet (the backend was away when it was bound). False: nothing to
// do; true: wait.
bool redis_engine::raise_pending(claim_mask mask) {
  if (raise_tried_) return false;
  for (std::size_t i = 0; i < claims_.items().size(); ++i)
    if ((mask >> i & 1) != 0 && claims_.items()[i].status == claim_status::unraised) {
      if (!link_.batch.empty()) return true;
      raise_tried_ = true;
      phase_before_wait_ = phase_;
      phase_ = phase::waiting;
      raise_claims([this] {
        phase_ = phase_before_wait_;
        resume();
      });
      return true;
    }
  return false;
}

// Raises all claims that were not raised yet, one after the other, then calls back.
void redis_engine::raise_claims(std::function<void()> then) {
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    auto& one = claims_.items()[i];
    if (one.status != claim_status::unraised || one.attempted == raise_round_) continue;
    one.attempted = raise_round_;
    auto cell = one.cell;
    if (one.rules.spends()) {
      return host_.read_mark(cell, [this, cell, then = std::move(then)](const backend::mark_reading& reading) mutable {
        claims_.on_mark_for_one_use(*cell, reading);
        raise_claims(std::move(then));
      });
    }
    auto on_outcome = [this, cell, then = std::move(then)](const backend::raise_outcome& outcome) mutable {
      if (outcome.raised) stats_.checks(metrics::check_outcome::raised).add();
      claims_.on_raised(*cell, outcome);
      raise_claims(std::move(then));
    };
    return host_.raise(cell, one.presented, one.rules.max_step, std::move(on_outcome));
  }
  ++raise_round_;
  then();
}

}  // namespace fencegate::gate
