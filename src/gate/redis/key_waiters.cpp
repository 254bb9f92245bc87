#include "gate/redis/key_waiters.hpp"

#include <algorithm>
#include <set>

namespace fencegate::gate {

bool key_waiters::wait(key_waiter& who, int database, const std::vector<std::string>& keys) {
  std::vector<place> wanted;
  wanted.reserve(keys.size());
  for (const auto& key : keys) wanted.push_back({key, database});
  auto& mine = by_waiter_[&who];
  if (mine != wanted) {
    leave(who);
    by_waiter_[&who] = wanted;
  }
  bool watched = !wanted.empty();
  for (const auto& at : wanted) {
    const auto [found, is_new] = places_.try_emplace(at);
    auto& one = found->second;
    const auto same = [&](const waiting& w) { return w.who == &who; };
    if (std::none_of(one.order.begin(), one.order.end(), same)) one.order.push_back({&who});
    if (is_new && up_) ask(at, one);
    if (one.awake == &who) one.awake = nullptr;
    wake_next(one);
    watched = watched && one.is == state::watched;
  }
  return watched;
}

void key_waiters::leave(key_waiter& who) {
  const auto mine = by_waiter_.find(&who);
  if (mine == by_waiter_.end()) return;
  const auto left = std::move(mine->second);
  by_waiter_.erase(mine);
  woken_.remove(&who);
  for (const auto& at : left) {
    const auto found = places_.find(at);
    if (found == places_.end()) continue;
    auto& one = found->second;
    one.order.remove_if([&](const waiting& w) { return w.who == &who; });
    if (one.awake == &who) one.awake = nullptr;
    if (one.order.empty())
      places_.erase(found);
    else
      wake_next(one);
  }
}

// Somebody who is awake will come back, or leave.
void key_waiters::wake_next(watch& one) {
  if (one.is != state::watched || !one.exists || one.awake != nullptr) return;
  const auto next =
      std::find_if(one.order.begin(), one.order.end(), [&](const waiting& w) { return w.looked != one.version; });
  if (next == one.order.end()) return;
  next->looked = one.version;
  one.awake = next->who;
  woken_.push_back(next->who);
}

key_waiter* key_waiters::next_woken() {
  if (woken_.empty()) return nullptr;
  auto* next = woken_.front();
  woken_.pop_front();
  return next;
}

void key_waiters::ask(const place& at, watch& one) {
  one.is = state::asked;
  questions_.push_back(at);
  asked_.push_back(at);
}

// Between a question and its answer a touch changes nothing: the server answers in order, so the answer is younger.
void key_waiters::on_touched(std::string_view name) {
  for (auto at = places_.lower_bound({std::string(name), 0}); at != places_.end() && at->first.key == name; ++at)
    touch(at->first, at->second);
}

void key_waiters::on_all_touched() {
  for (auto& [at, one] : places_) touch(at, one);
}

void key_waiters::touch(const place& at, watch& one) {
  if (one.is == state::watched) ask(at, one);
}

void key_waiters::on_answer(bool exists) { settle(false, exists); }

void key_waiters::on_refusal() { settle(true, false); }

void key_waiters::settle(bool refused, bool exists) {
  if (asked_.empty()) return;
  const auto found = places_.find(asked_.front());
  asked_.pop_front();
  if (found == places_.end()) return;  // nobody waits there any more
  auto& one = found->second;
  one.is = refused ? state::refused : state::watched;
  one.exists = exists;
  ++one.version;
  wake_next(one);
}

void key_waiters::on_up() {
  up_ = true;
  for (auto& [at, one] : places_) ask(at, one);
}

void key_waiters::on_lost() {
  up_ = false;
  questions_.clear();
  asked_.clear();
  woken_.clear();
  std::set<const key_waiter*> told;
  for (auto& [at, one] : places_) {
    one.is = state::unasked;
    one.awake = nullptr;
    for (const auto& w : one.order)
      if (told.insert(w.who).second) woken_.push_back(w.who);
  }
}

}  // namespace fencegate::gate
