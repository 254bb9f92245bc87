// Where a connection stands: at a boundary, or waiting, and for whom.
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

bool redis_engine::at_rest() const {
  return from_client.empty() && to_client.empty() && link_.quiet() && link_.batch.empty() && large_ == nullptr &&
         !connection_.watching && phase_ == phase::ready && !link_.busy();
}

// (A transaction that was not executed, and watches, end with their connection.)
bool redis_engine::has_finished() const {
  const bool idle = phase_ == phase::ready || phase_ == phase::transaction;
  return idle && !blocked_ && !link_.busy() && link_.quiet() && link_.batch.empty() && large_ == nullptr &&
         to_client.empty();
}

bool redis_engine::may_end() const {
  if (at_rest()) return true;
  const bool watches = phase_ == phase::monitor_stream && from_client.empty() && connection_.stream_replies == 0;
  return to_client.empty() && link_.quiet() && (polling() || watches);
}

bool redis_engine::waits_on_purpose() const {
  return !link_.quiet() || connection_.subscriptions > 0 || phase_ == phase::monitor_stream ||
         phase_ == phase::waiting || phase_ == phase::shared || link_.busy();
}

bool redis_engine::may_block_in_server() const {
  return std::any_of(link_.expected().begin(), link_.expected().end(),
                     [](const expectation& e) { return e.may_block; });
}

bool redis_engine::write_in_flight() const {
  return link_.at() == armed_link::state::batch || phase_ == phase::finishing || phase_ == phase::single ||
         phase_ == phase::shared;
}

}  // namespace fencegate::gate
