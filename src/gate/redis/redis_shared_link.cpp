#include "gate/redis/redis_shared_link.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/error.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::gate {

redis_shared_link::redis_shared_link(redis_shard& shard, const session_profile& like)
    : link_owner(shard.context, shard.sockets, shard.state->tls),
      redis_host(shard),
      group_(like.group()),
      choice_(shard.choices->of(group_)) {}

std::shared_ptr<redis_shared_link> redis_shared_link::of(redis_shard& shard, const session_profile& like) {
  auto& place = shard.shared_links[std::string(like.group())];
  auto found = place.lock();
  if (found == nullptr) place = found = std::make_shared<redis_shared_link>(shard, like);
  return found;
}

void redis_shared_link::join() { ++members_; }

void redis_shared_link::leave() {
  if (--members_ > 0) return;
  closed_ = true;
  shard_.shared_links.erase(group_);
  hang_up();
  cancel_timer();
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_shared_link::open(const session_profile& like) {
  like_ = like;
  opening_ = true;
  opened_ = used_ = now();
  auto on_connected = [this](const result<void>& connected) {
    opening_ = false;
    if (!connected) return fail(connected.error().message);
    auto& state = *shard_.state;
    shard_.refresh();
    writes_ = std::make_unique<shared_writes>(*this, state.gate, state.marks, state.stats, like_);
    in_event([] {});  // says what makes it like its clients'
  };
  dial(shard_.snapshot.endpoints, std::move(on_connected));
}

// Not from within the engine.
void redis_shared_link::fail(std::string_view why) {
  opening_ = false;
  const bool served = writes_ != nullptr && writes_->answered() > 0;
  if (served) pause_ = limits::shared_link_pause_min;
  not_before_ = now() + pause_;
  pause_ = std::min(2 * pause_, limits::shared_link_pause_max);
  oldest_unsent_ = moved_ = {};
  hang_up();
  refused_ = writes_ != nullptr && !writes_->refusal().empty();
  if (refused_) {
    not_before_ = now() + limits::shared_link_pause_max;
    log::write(log::level::info, "small writes are not shared, since their user may not do what it takes",
               {{"gate", shard_.state->gate.name}, {"detail", writes_->refusal()}});
  } else {
    log::write(log::level::warn, "a shared link to the backend closed; its clients use their own",
               {{"gate", shard_.state->gate.name}, {"detail", why}});
  }
  const auto last = std::exchange(writes_, nullptr);
  if (last != nullptr) last->end();
}

// Nobody waits for anything of it. (Not from within the engine, either.)
void redis_shared_link::close_idle() {
  hang_up();
  writes_ = nullptr;
  moved_ = {};
}

void redis_shared_link::on_tick(time_point at) {
  const auto self = shared_from_this();
  const auto& times = shard_.state->gate.limits_time;
  if ((opening_ || (writes_ != nullptr && !writes_->ready())) && over(opened_, times.connect, at))
    return fail("it could not be made like its clients' in time");
  if (backend_.stalled() && over(backend_.stalled_since, times.write, at)) return fail("the backend takes no bytes");
  if (!is_always() && is_unused(at)) return close_idle();
  if (writes_ == nullptr || moved_ == time_point{} || at - moved_ <= limits::shared_batch_patience) return;
  oldest_unsent_ = {};
  in_event([this] { writes_->give_back(); });
}

// ── writes ──────────────────────────────────────────────────────────────────────────────────────────────────────────

bool redis_shared_link::pays(time_point read_at) {
  if (refused_ && read_at < not_before_) return false;
  const bool is_there = writes_ != nullptr && writes_->ready();
  return is_always() || choice_->shares(read_at, is_there);
}

bool redis_shared_link::is_always() const { return shard_.state->gate.share_writes == settings::sharing::always; }

// For so long that it is to be closed, or to be opened for others.
bool redis_shared_link::is_unused(time_point at) const {
  return writes_ != nullptr && writes_->ready() && writes_->idle() && !busy_ &&
         at - used_ > limits::shared_link_unused_max;
}

bool redis_shared_link::send(const session_profile& mine, std::string_view command, const batched& as,
                             std::weak_ptr<shared_writer> from, time_point read_at) {
  if (shard_.snapshot.endpoints.empty()) return false;
  if (writes_ == nullptr) {
    if (!opening_ && read_at >= not_before_) open(mine);
    return false;
  }
  if (!writes_->ready() || writes_->broken() || backend_.ended) return false;
  if (like_.server != mine.server || like_.bytes != mine.bytes) {
    if (is_unused(read_at)) close_idle();
    return false;
  }
  if (moved_ != time_point{} && read_at - moved_ > limits::shared_batch_patience) return false;
  if (writes_->waiting_bytes() + command.size() > limits::command_buffered_bytes_max) return false;
  if (!writes_->add(command, as, std::move(from), mine.tag)) return false;
  if (oldest_unsent_ == time_point{}) oldest_unsent_ = read_at;
  used_ = read_at;
  backend_.socket.again();  // when all that is readable now was read
  return true;
}

void redis_shared_link::on_ready() {
  if (closed_ || writes_ == nullptr) return;
  const auto self = shared_from_this();
  in_event([this] {
    if (backend_.socket.readable()) read();
  });
}

void redis_shared_link::read() {
  boost::system::error_code failed;
  const auto room = shard_.sockets.scratch();
  const std::size_t bytes = backend_.socket.receive(room, failed);
  if (!failed) {
    if (asked_at_ != time_point{}) shard_.state->stats.backend_seconds.observe(now() - std::exchange(asked_at_, {}));
    return writes_->on_backend_bytes({room.data(), bytes});
  }
  if (failed == boost::asio::error::would_block) return;
  backend_.ended = true;
  writes_->on_backend_end();
}

// The next batch goes out before the last one's answers.
void redis_shared_link::after_event() {
  if (closed_ || writes_ == nullptr) return;
  busy_ = true;
  do {
    again_ = false;
    writes_->feed();
    send_batch();
    writes_->hand_out();
  } while (again_ && !closed_);
  busy_ = false;
  if (writes_->waiting_bytes() == 0) oldest_unsent_ = {};
  if (closed_) return;
  if (writes_->broken())
    return fail(backend_.ended ? "the backend has closed it" : "the backend refuses what its clients may");
  note_progress();
  if (backend_.socket.readable()) backend_.socket.again();
}

void redis_shared_link::send_batch() {
  if (backend_.unsent(writes_->to_backend()) == 0) return;
  send_to_backend(writes_->to_backend());
  if (oldest_unsent_ == time_point{} || writes_->waiting_bytes() != 0) return;
  const auto at = now();
  shard_.state->stats.overhead_seconds.observe(at - oldest_unsent_);
  if (asked_at_ == time_point{}) asked_at_ = at;
  oldest_unsent_ = {};
}

void redis_shared_link::note_progress() {
  if (writes_->idle()) {
    moved_ = {};
  } else if (moved_ == time_point{} || answered_ != writes_->answered()) {
    moved_ = now();
    answered_ = writes_->answered();
  }
}

}  // namespace fencegate::gate
