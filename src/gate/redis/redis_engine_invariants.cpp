// What holds whenever the machine has done what an event asked for.
#include "base/demand.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

void redis_engine::invariants(bool thorough) const {
  if (closing()) return;
  link_.invariants(input_over_);
  const bool in_flight = phase_ == phase::finishing || phase_ == phase::single || phase_ == phase::barrier;
  demand(!in_flight || !link_.quiet(), "what was sent is answered");
  const bool inside =
      phase_ == phase::transaction || phase_ == phase::waiting || (phase_ == phase::barrier && change_.inside);
  demand(!tx_.left || inside, "only a client's transaction is left");
  demand(!link_.busy() || phase_ == phase::ready,
         "the client is at nothing while its link proves marks, or sends a batch");
  const bool lent = link_.at() == armed_link::state::lent;
  demand(phase_ != phase::transaction || lent, "a transaction has the link");
  if (!thorough) return;
  const auto locals = std::count_if(link_.expected().begin(), link_.expected().end(),
                                    [](const expectation& one) { return one.what == awaits::local; });
  demand(static_cast<std::size_t>(locals) == locals_.size(), "each answer of the gate's own has its turn");
}

}  // namespace fencegate::gate
