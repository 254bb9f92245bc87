#include "backend/pg_pool.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds pool_tick{100};
constexpr std::size_t room_for_two = 4;  // from so much on, one owner leaves some to others
constexpr milliseconds pool_back_off_min{100}, pool_back_off_max{5'000};

}  // namespace

pg_pool::pg_pool(boost::asio::io_context& context, pg_target to, std::size_t size, milliseconds connect_timeout,
                 metrics::pool& stats, std::function<void(const std::string&)> tell)
    : context_(context),
      to_(std::move(to)),
      size_(std::max<std::size_t>(size, 2)),
      connect_timeout_(connect_timeout),
      stats_(stats),
      tell_(std::move(tell)),
      ticker_(context) {}

void pg_pool::start() {
  grow();
  tick();
}

void pg_pool::stop() {
  stopped_ = true;
  ticker_.cancel();
  fail_all("the gate is stopping");
  std::vector<lent> all;
  for (const auto& one : members_) all.push_back(one->link);
  for (const auto& one : all) one->close("the gate is stopping");
}

// ── lending ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_pool::ask(wish one) {
  if (stopped_) return one.give_up("the gate is stopping");
  if (!any_connected() && failures_ > 0) return one.give_up(problem_);
  auto& line = waiting_[one.what];
  const std::string owner = one.owner;
  line.push(owner, std::move(one));
  // One of those who wait most gives way: no other owner is kept out by them.
  if (line.size() > limits::pg_pool_waiting_max) line.take_of_largest().give_up("too many requests wait for it");
  dispatch();
}

void pg_pool::give_back(const lent& one) {
  member* known = find(one.get());
  if (known == nullptr) return;
  known->busy = false;
  known->tell_lost = nullptr;
  if (std::exchange(known->aside, false) && members_.size() - aside() > size_)
    return one->close("another one has taken its place");
  if (one->grew()) return one->close("its memory is wanted back");  // and another one is opened
  dispatch();
}

void pg_pool::set_aside(const lent& one) {
  member* known = find(one.get());
  if (known == nullptr || !known->busy || aside() >= size_) return;
  known->aside = true;
  dispatch();
}

void pg_pool::on_lost(const lent& one, std::function<void(const std::string&)> tell) {
  if (member* known = find(one.get())) known->tell_lost = std::move(tell);
}

void pg_pool::dispatch() {
  const auto may = [this](work what) {
    return [this, what](const std::string& owner) { return may_begin(what, owner); };
  };
  const auto next = [&] {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](const auto& line) { return line.second.any(may(line.first)); });
  };
  while (member* free = idle()) {
    const auto line = next();
    if (line == waiting_.end()) return show();
    lend(*free, std::move(*line->second.take(may(line->first))));
  }
  if (next() != waiting_.end()) grow();
  show();
}

// Whatever changes something here, dispatches.
void pg_pool::show() {
  std::int64_t connected = 0, busy = 0, waiting = 0;
  for (const auto& one : members_) {
    connected += one->connected && !one->aside ? 1 : 0;
    busy += one->busy && !one->aside ? 1 : 0;
  }
  for (const auto& [what, line] : waiting_) waiting += static_cast<std::int64_t>(line.size());
  stats_.idle.set(connected - busy);
  stats_.busy.set(busy);
  stats_.beside.set(static_cast<std::int64_t>(aside()));
  stats_.waiting.set(waiting);
}

bool pg_pool::may_begin(work what, const std::string& owner) const {
  const std::size_t room = size_ - std::max<std::size_t>(1, size_ / 4);
  std::size_t busy = 0, raising = 0, its = 0;  // with what is not brief
  for (const auto& one : members_) {
    if (one->aside) continue;
    const bool counts = one->busy && one->busy_with != work::brief;
    busy += counts;
    raising += one->busy && one->busy_with == work::raising;
    its += counts && one->owner == owner;
  }
  switch (what) {
    case work::brief: return true;
    // However many forwards there are, one goes on: it ends those that it has to wait for.
    case work::raising: return raising == 0 || busy < size_ - 1;
    case work::lengthy: return busy < room && (room < room_for_two || its < room - 1);
  }
  return false;
}

void pg_pool::lend(member& to, wish next) {
  to.busy = true;
  to.busy_with = next.what;
  to.owner = next.owner;
  next.begin(to.link);  // may change everything here
}

// ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────────

pg_pool::member* pg_pool::find(const pg_link* link) {
  for (const auto& one : members_)
    if (one->link.get() == link) return one.get();
  return nullptr;
}

bool pg_pool::any_connected() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& one) { return one->connected; });
}

std::size_t pg_pool::aside() const {
  return static_cast<std::size_t>(std::ranges::count_if(members_, [](const auto& one) { return one->aside; }));
}

pg_pool::member* pg_pool::idle() {
  for (const auto& one : members_)
    if (one->connected && !one->busy) return one.get();
  return nullptr;
}

void pg_pool::grow() {
  const bool on_the_way =
      std::any_of(members_.begin(), members_.end(), [](const auto& one) { return !one->connected; });
  if (stopped_ || on_the_way || members_.size() - aside() >= size_ || clock::now() < next_try_) return;
  auto link = std::make_shared<pg_link>(context_, connect_timeout_);
  members_.push_back(std::make_unique<member>(member{.link = link}));
  const std::weak_ptr<pg_pool> weak = weak_from_this();
  link->on_closed([weak, key = link.get()](const std::string& why) {
    if (const auto self = weak.lock()) self->remove(key, why);
  });
  auto done = [self = shared_from_this(), link](const result<void>& outcome) { self->on_dialled(link, outcome); };
  dial(context_, link, to_, std::move(done));
}

void pg_pool::on_dialled(const lent& link, const result<void>& outcome) {
  if (stopped_) {
    if (outcome) link->close("the gate is stopping");
    return;
  }
  if (!outcome) {
    const auto back_off = std::min(pool_back_off_max, pool_back_off_min * (1 << std::min(failures_, 6)));
    ++failures_;
    next_try_ = clock::now() + back_off;
    return remove(link.get(), outcome.error().message);
  }
  member* made = find(link.get());
  if (made == nullptr) return;
  const bool first = !any_connected();
  made->connected = true;
  failures_ = 0;
  if (first) tell_(problem_ = "");
  dispatch();
}

void pg_pool::remove(const pg_link* link, const std::string& why) {
  const auto at =
      std::find_if(members_.begin(), members_.end(), [link](const auto& one) { return one->link.get() == link; });
  if (at == members_.end()) return;
  const auto gone = std::move(*at);
  members_.erase(at);
  if (gone->tell_lost) gone->tell_lost(why);
  if (stopped_) return;
  // A server that lets in and closes again is not asked all the time.
  next_try_ = std::max(next_try_, clock::now() + pool_back_off_min);
  // One that was given up for its memory says nothing of the server; whether it lets in another one is told then.
  if (!any_connected() && (failures_ > 0 || (gone->connected && !gone->link->grew()))) {
    tell_(problem_ = why);
    // Those who wait learn it at once when there is no way to the server; one that closed a connection may have another.
    if (failures_ > 0) fail_all(why);
  }
  dispatch();
}

void pg_pool::fail_all(const std::string& why) {
  auto all = std::exchange(waiting_, {});
  for (auto& [what, line] : all)
    for (const auto& one : line.take_all([](const wish&) { return true; })) one.give_up(why);
}

void pg_pool::tick() {
  const auto now = clock::now();
  for (const auto what : {work::brief, work::raising, work::lengthy}) {
    const auto late = waiting_[what].take_all([now](const wish& one) { return one.deadline <= now; });
    for (const auto& one : late) one.give_up("all connections to it are in use");
  }
  if (!any_connected()) grow();
  dispatch();
  ticker_.expires_after(pool_tick);
  auto again = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled && !self->stopped_) self->tick();
  };
  ticker_.async_wait(again);
}

}  // namespace fencegate::backend
