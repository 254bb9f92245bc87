#include "lease/holder.hpp"

#include <algorithm>

namespace fencegate::lease {

holder::holder(const timing& times, clock_reading sent)
    : times_(times), confirmed_(sent), stop_at_(sent.boot + times.act_for()), deadline_(sent.boot + times.hold_for()) {}

holder::duty holder::due(clock_reading now) const {
  if (now.boot >= end_at()) return duty::end;
  if (lost_) return duty::stop;
  if (renewal_due(now)) return duty::renew;
  return now.boot >= stop_at_ ? duty::stop : duty::wait;
}

holder::time_point holder::wake(clock_reading now) const {
  if (lost_) return deadline_;
  const auto next = tried_ ? tried_->boot + times_.retry_after() : confirmed_.boot + times_.renew_every();
  const auto border = now.boot < stop_at_ ? stop_at_ : now.boot < deadline_ ? deadline_ : end_at();
  return std::min(next > now.boot ? next : border, border);
}

bool holder::may_begin(clock_reading now) const { return !lost_ && now.boot < stop_at_ && !stood_still(now); }

void holder::renewal_sent(clock_reading now) { tried_ = now; }

void holder::renewed(clock_reading sent) {
  if (lost_ || sent.boot <= confirmed_.boot) return;
  confirmed_ = sent;
  stop_at_ = sent.boot + times_.act_for();
  deadline_ = sent.boot + times_.hold_for();
  // One that was sent later is still to be answered; what was sent before is none to wait for.
  if (tried_ && tried_->boot <= sent.boot) tried_.reset();
}

void holder::lost(clock_reading now) {
  if (lost_) return;
  lost_ = true;
  stop_at_ = std::min(stop_at_, now.boot);
  deadline_ = std::min(deadline_, now.boot + times_.stop_grace);
}

bool holder::stood_still(clock_reading now) const {
  return (now.wall - confirmed_.wall) - (now.boot - confirmed_.boot) > times_.margin;
}

bool holder::renewal_due(clock_reading now) const {
  if (tried_) return now.boot >= tried_->boot + times_.retry_after();
  return now.boot >= confirmed_.boot + times_.renew_every() || stood_still(now);
}

}  // namespace fencegate::lease
