// A client that does not read its answers, when the process has no room for more of them: what it sends from here on is
// answered with a rejection and goes no further. So it learns of each command whether it was applied, however late it
// reads. Its connection ends then: commands behind a SELECT, a MULTI or a tag that was rejected mean something else.
#include "base/limits.hpp"
#include "gate/redis/redis_engine.hpp"

namespace fencegate::gate {
namespace {

const fence::rejection& too_many_unread() {
  static const fence::rejection why{
      fence::reason::unavailable, {}, {}, {}, "too many answers wait to be read; this connection ends behind them"};
  return why;
}

}  // namespace

std::string redis_engine::turned_away_text() { return fence::redis_error(too_many_unread()); }

void redis_engine::turn_away(const wire::request& r) {
  muted_ = connection_.reply_off || connection_.skip_next;
  if (!replay_.empty()) muted_ = replay_.front().muted;
  if (!replay_.empty()) replay_.pop_front();
  connection_.skip_next = false;
  host_.report(too_many_unread(), r.name().substr(0, 64), false);
  // Its text stands for as many as follow each other.
  const bool same_again =
      !link_.quiet() && link_.back().what == awaits::local && link_.back().turned_away && link_.back().muted == muted_;
  if (same_again) {
    ++link_.back().n;
  } else {
    wait_with(turned_away_text());
    link_.back().turned_away = true;
    on_turn();
  }
  command_done();
}

bool redis_engine::has_said_all() const {
  return from_client.empty() && to_client.empty() && link_.quiet() && large_ == nullptr;
}

// An answer of the gate's own, behind those that are awaited.
void redis_engine::wait_with(std::string local) {
  local_bytes_ += local.size();
  locals_.push_back(std::move(local));
  link_.expect({awaits::local, muted_});
}

bool redis_engine::say_more() {
  const std::size_t before = to_client.size();
  on_turn();
  const bool went_on = to_client.empty() && held_back_;
  if (went_on) resume();
  return went_on || to_client.size() != before;
}

}  // namespace fencegate::gate
