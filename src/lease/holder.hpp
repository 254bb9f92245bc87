// What a holder of a lease does when: a machine without clock and without I/O. Its owner tells it what happened and when,
// and does what it is due to do.
//
// Rule kept: the deadline counts from the moment when a request was *sent* whose answer granted or renewed the lease. It
// never moves for any other reason but forward by an answer, or back by a loss.
#pragma once

#include "lease/clock.hpp"
#include "lease/timing.hpp"

#include <cstdint>
#include <optional>

namespace fencegate::lease {

class holder {
 public:
  using time_point = boot_clock::time_point;

  enum class duty : std::uint8_t {
    wait,   // nothing until wake()
    renew,  // send a renewal, and say so by renewal_sent()
    stop,  // begin nothing new, and end what is under way; renewals go on. With a grace: what is under way stands still
           // from the deadline on
    end    // it is over
  };

  // The lease was granted by the answer to a request that was sent then.
  holder(const timing& times, clock_reading sent);

  // REQUIRES: times do not go back.
  [[nodiscard]] duty due(clock_reading now) const;
  // When due() may say something else than it did at `now`.
  [[nodiscard]] time_point wake(clock_reading now) const;
  // Nothing new is begun from D on; nor while the time of day has gained on the clock, which may have stood still, until a
  // renewal is confirmed.
  [[nodiscard]] bool may_begin(clock_reading now) const;

  void renewal_sent(clock_reading now);
  // The store has renewed this very term, as a request asked that was sent then.
  void renewed(clock_reading sent);
  // The store says that the lease is another's, or that its token is below a mark: what is under way has until the
  // deadline to end, and no longer than stop_grace.
  void lost(clock_reading now);

  [[nodiscard]] bool is_lost() const { return lost_; }
  // D, and the deadline.
  [[nodiscard]] time_point stop_at() const { return stop_at_; }
  [[nodiscard]] time_point deadline() const { return deadline_; }
  // The deadline, and the grace behind it. None is left when the lease is lost.
  [[nodiscard]] time_point end_at() const { return lost_ ? deadline_ : deadline_ + times_.grace; }

 private:
  [[nodiscard]] bool stood_still(clock_reading now) const;
  [[nodiscard]] bool renewal_due(clock_reading now) const;

  const timing times_;
  clock_reading confirmed_;               // when the request was sent by which the deadline counts
  std::optional<clock_reading> tried_{};  // the last renewal behind it
  time_point stop_at_, deadline_;
  bool lost_ = false;
};

}  // namespace fencegate::lease
