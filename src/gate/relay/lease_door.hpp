// What a lease gate does with a connection that it has accepted: binds it to the grant that is held, or lets it wait, or
// refuses it. Pure but for the clock that is passed in.
//
// Rule kept: a connection is bound once, to what is held at that moment, or never.
//
// All of it runs on one thread.
#pragma once

#include "fence/gate_settings.hpp"
#include "gate/relay/session.hpp"
#include "lease/bond.hpp"
#include "lease/writer.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::gate {

// Arrival: a connection that was accepted; it can be moved.
template <class Arrival>
class lease_door {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  struct owner {
    std::function<void(Arrival, bound_tag)> admit;
    std::function<void(Arrival, const std::string& why)> refuse;
    // mode: monitor: it is served without a tag, though it would be refused for this.
    std::function<void(Arrival, const std::string& why)> let_pass;
    std::function<void(Arrival)> drop;  // without a word
    std::function<lease::clock_reading()> clock;
    // It was closed by its peer, or half-closed. Such a client may be legal and wait for its answer, but it looks like one whose
    // process has died, and nothing of it was sent on yet: it is dropped as long as it waits to be bound.
    std::function<bool(Arrival&)> is_gone;
  };

  lease_door(const settings::gate_lease& rules, bool monitors, owner calls)
      : rules_(rules), monitors_(monitors), owner_(std::move(calls)) {}

  void arrive(Arrival one, time_point now) {
    if (binds()) return owner_.admit(std::move(one), tag_);
    if (monitors_) return owner_.let_pass(std::move(one), why_);
    if (may_wait()) return waiting_.push_back({std::move(one), now + rules_.standby_wait}), void();
    owner_.refuse(std::move(one), why_);
  }

  void open_to(std::shared_ptr<const lease::bond> held) {
    bond_ = std::move(held);
    phase_ = lease::writer_phase::holding;
    why_ = "holding: the lease was not renewed in time";
    auto tag = std::make_shared<fence::claims_list>();
    for (const auto& name : rules_.resources)
      for (const auto& one : bond_->claims())
        if (one.resource == name) tag->push_back(one);
    tag_ = std::move(tag);
    admit_waiting();
  }

  // True: connections were bound, and are to be cut.
  [[nodiscard]] bool shut(lease::writer_phase phase, const std::string& why) {
    phase_ = phase;
    why_ = why;
    tag_ = nullptr;
    const bool was_open = std::exchange(bond_, nullptr) != nullptr;
    if (!may_wait())
      for (auto& one : std::exchange(waiting_, {})) owner_.refuse(std::move(one.who), why_);
    return was_open;
  }

  // The writer that may have opened those is dead.
  void drop_waiting() {
    for (auto& one : std::exchange(waiting_, {})) owner_.drop(std::move(one.who));
  }

  // Now and then, while some wait.
  void tick(time_point now) {
    drop_gone();
    admit_waiting();
    while (!waiting_.empty() && waiting_.front().until <= now) {
      auto one = std::move(waiting_.front());
      waiting_.pop_front();
      owner_.refuse(std::move(one.who), why_);
    }
  }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  struct waiter {
    Arrival who;
    time_point until;
  };

  [[nodiscard]] bool binds() const { return bond_ != nullptr && bond_->may_bind(owner_.clock()); }
  [[nodiscard]] bool may_wait() const {
    return rules_.waits && (phase_ == lease::writer_phase::standby || phase_ == lease::writer_phase::holding);
  }
  void admit_waiting() {
    while (!waiting_.empty() && binds()) {
      auto one = std::move(waiting_.front());
      waiting_.pop_front();
      if (owner_.is_gone(one.who))
        owner_.drop(std::move(one.who));
      else
        owner_.admit(std::move(one.who), tag_);
    }
  }
  void drop_gone() {
    std::list<waiter> gone;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto one = at++;
      if (owner_.is_gone(one->who)) gone.splice(gone.end(), waiting_, one);
    }
    for (auto& one : gone) owner_.drop(std::move(one.who));
  }

  const settings::gate_lease& rules_;
  const bool monitors_;
  const owner owner_;
  lease::writer_phase phase_ = lease::writer_phase::unknown;
  std::string why_ = "unknown: the gate has just started";
  std::shared_ptr<const lease::bond> bond_;
  bound_tag tag_;              // of the bond, for this gate's resources
  std::list<waiter> waiting_;  // in the order in which they came
};

}  // namespace fencegate::gate
