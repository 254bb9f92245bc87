// The keeper of a lease that was granted: renewals in time, and how it is lost.
#include "lease/keeper.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::lease {

void keeper::renew_in_time() {
  if (stopped_ || !holder_) return;
  const auto now = clock_reading::now();
  const auto due = holder_->due(now);
  if (due == holder::duty::end)
    return lose({keeper_loss::kind::expired, "no renewal was confirmed in time" + not_renewed_});
  if (due == holder::duty::renew && (wanted_.renews || !acquired_)) renew(nullptr);
  if (!holder_) return;
  if (acquired_ && owner_.expiring && !told_expiring_ && !holder_->may_begin(now)) {
    told_expiring_ = true;
    owner_.expiring();
  }
  // This timer's clock stands still while the machine sleeps, so it is looked at now and then.
  const auto until_wake = holder_->wake(now) - now.boot;
  renewals_.expires_after(std::min<clock::duration>(until_wake, std::chrono::seconds(1)));
  renewals_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->renew_in_time();
  });
}

void keeper::renew(std::function<void(const result<bool>&)> done) {
  const auto sent = clock_reading::now();
  holder_->renewal_sent(sent);
  auto answered = [self = shared_from_this(), sent, grant = term_.grant,
                   done = std::move(done)](const result<renewal>& confirmed) {
    // What was not answered is asked again in time.
    if (!confirmed) {
      self->not_renewed_ = ": " + confirmed.error().message;
      return done ? done(confirmed.error()) : void();
    }
    const bool holds =
        !self->stopped_ && self->holder_ && self->term_.grant == grant && self->on_renewed(sent, *confirmed);
    if (done) done(holds);
  };
  issuer_->renew(term_, std::move(answered));
}

// False: it is lost.
bool keeper::on_renewed(clock_reading sent, const renewal& confirmed) {
  if (confirmed.claims.size() != term_.claims.size()) {
    holder_->lost(clock_reading::now());
    lose({keeper_loss::kind::superseded, "it was granted to another, or a mark has risen above its token"});
    return false;
  }
  holder_->renewed(counted(sent, confirmed.act_for));
  not_renewed_.clear();
  told_expiring_ = false;
  if (acquired_ && owner_.times_moved) owner_.times_moved();
  return true;
}

void keeper::lose(keeper_loss why) {
  renewals_.cancel();
  if (!acquired_) {  // seals are under way; what they answer does not count any more
    ++round_;
    pause_.cancel();
    return let_go_then([self = shared_from_this(), why](const result<void>&) {
      if (self->resumes_) return self->fail({keeper_failure::kind::over, why.message});
      self->begin_anew();
    });
  }
  if (owner_.times_moved) owner_.times_moved();
  if (const auto tell = std::exchange(owner_.lost, nullptr)) tell(why);
}

}  // namespace fencegate::lease
