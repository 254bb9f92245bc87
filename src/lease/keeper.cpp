#include "lease/keeper.hpp"

#include "base/random_id.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;

// Between two questions whether it is free.
constexpr milliseconds ask_again{200}, ask_again_most{5'000};
// Granted tokens end there.
constexpr std::int64_t token_max = std::int64_t{1} << 62U;

// What an issuer may wait itself.
constexpr std::chrono::hours wait_at_issuer{1};

// A seal below or at another's mark: the lease is had again, above it.
bool is_outrun(const fence::rejection& r) { return r.why == fence::reason::stale || r.why == fence::reason::equal; }

}  // namespace

keeper::keeper(boost::asio::io_context& context, std::shared_ptr<issuer> by,
               std::vector<std::shared_ptr<seal_place>> places, keeper_request wanted, keeper_owner owner)
    : context_(context),
      issuer_(std::move(by)),
      places_(std::move(places)),
      wanted_(std::move(wanted)),
      owner_(std::move(owner)),
      pause_(context),
      renewals_(context),
      wait_until_(wanted_.wait ? clock::now() + *wanted_.wait : clock::time_point::max()),
      place_ids_(places_.size()),
      floors_(wanted_.resources.size(), 0),
      note_(issuer_, wanted_.holder) {}

void keeper::start() {
  boost::asio::post(context_, [self = shared_from_this()] { self->identify(); });
}

void keeper::adopt(term held, clock_reading sent) {
  term_ = std::move(held);
  holder_.emplace(wanted_.times, sent);
  acquired_ = true;
  renew_in_time();
}

void keeper::resume(term held, const std::string& issuer_id, clock_reading sent) {
  resumes_ = true;
  term_ = std::move(held);
  issuer_id_ = issuer_id;
  holder_.emplace(wanted_.times, sent);
  renew_in_time();
  // Called later: the owner is told of nothing from within this function.
  if (holder_) boost::asio::post(context_, [self = shared_from_this()] { self->seal(); });
}

void keeper::stop(milliseconds patience, std::function<void(const result<void>&)> done) {
  stopped_ = true;
  owner_ = {};
  releases_ = nullptr;
  note_.end();
  pause_.cancel();
  renewals_.cancel();
  if (!holder_ && !asking_) return boost::asio::post(context_, [done = std::move(done)] { done({}); });
  const auto once = std::make_shared<std::function<void(const result<void>&)>>(std::move(done));
  auto finish = [self = shared_from_this(), once](const result<void>& outcome) {
    self->pause_.cancel();
    self->answered_late_ = nullptr;
    if (const auto call = std::exchange(*once, nullptr)) call(outcome);
  };
  pause_.expires_after(patience);
  pause_.async_wait([finish](const boost::system::error_code& cancelled) {
    if (!cancelled) finish(error{"the issuer does not answer"});
  });
  if (holder_) return let_go_then(finish);
  answered_late_ = finish;
  issuer_->give_up();
}

// An issuer that says itself how long the holder may act: as if the request had been sent when this leaves just so long.
clock_reading keeper::counted(clock_reading sent, std::optional<milliseconds> act_for) const {
  if (!act_for) return sent;
  const auto later = *act_for - wanted_.times.act_for();
  return {sent.boot + later, sent.wall + later};
}

// ── who everybody is, and where the marks stand ─────────────────────────────────────────────────────────────────────

void keeper::identify() {
  unanswered_ = 1 + places_.size();
  problem_.reset();
  const auto answered = [self = shared_from_this()](const std::string& whom, std::string& id,
                                                    const answer<std::string>& outcome) {
    if (outcome)
      id = *outcome;
    else
      self->note(whom, outcome.error());
    if (--self->unanswered_ > 0 || self->stopped_) return;
    if (self->problem_) return self->missed("", *self->problem_, &keeper::identify);
    self->look();
  };
  issuer_->identify([=, this](const answer<std::string>& id) { answered("the issuer", issuer_id_, id); });
  for (std::size_t i = 0; i < places_.size(); ++i)
    places_[i]->identify([=, this](const answer<std::string>& id) { answered(places_[i]->name(), place_ids_[i], id); });
}

void keeper::look() {
  if (places_.empty()) return acquire();
  unanswered_ = places_.size();
  std::fill(floors_.begin(), floors_.end(), 0);
  problem_.reset();
  for (const auto& place : places_) {
    auto answered = [self = shared_from_this(), place](const answer<std::vector<backend::looked_mark>>& marks) {
      if (!marks) self->note(place->name(), marks.error());
      if (marks)
        for (const auto& one : *marks) {
          const auto& names = self->wanted_.resources;
          const auto at = std::find(names.begin(), names.end(), one.resource);
          if (at == names.end() || !one.mark) continue;
          if (one.mark->value() > token_max)
            self->note(place->name(), {{"the mark of " + one.resource + ", " + one.mark->to_string() +
                                        ", is too high for leases, whose tokens end at 2^62"},
                                       true});
          auto& floor = self->floors_[static_cast<std::size_t>(at - names.begin())];
          floor = std::max(floor, one.mark->value());
        }
      if (--self->unanswered_ > 0 || self->stopped_) return;
      if (self->problem_) return self->missed("", *self->problem_, &keeper::look);
      self->reached_ = true;
      self->acquire();
    };
    place->look(wanted_.resources, std::move(answered));
  }
}

// ── the grant ───────────────────────────────────────────────────────────────────────────────────────────────────────

void keeper::acquire() {
  pausing_ = false;
  if (term_.grant.empty()) term_.grant = wanted_.id.empty() || !first_ ? random_id() : wanted_.id;
  first_ = false;
  grant_request request{wanted_.resources, term_.grant,    wanted_.holder,   wanted_.times.ttl,  floors_,
                        place_ids_,        wanted_.stride, wanted_.at_least, wanted_.lock_delay, wanted_.how};
  if (wait_until_ > clock::now())
    request.wait =
        std::chrono::ceil<milliseconds>(std::min<clock::duration>(wait_until_ - clock::now(), wait_at_issuer));
  const auto sent = clock_reading::now();
  asking_ = true;
  released_ = false;
  issuer_->acquire(request, [self = shared_from_this(), sent](const grant_answer& a) { self->on_grant(sent, a); });
}

void keeper::on_grant(clock_reading sent, const grant_answer& answer) {
  asking_ = false;
  if (stopped_) {  // it came too late for whoever wanted it
    auto done = std::exchange(answered_late_, nullptr);
    if (!done) done = [](const result<void>&) {};
    if (answer.what != grant_answer::kind::granted) return done({});
    // This object lives until that is answered.
    auto released = [self = shared_from_this(), done = std::move(done)](const result<void>& outcome) { done(outcome); };
    return issuer_->release({answer.claims, answer.id.empty() ? term_.grant : answer.id}, true, std::move(released));
  }
  switch (answer.what) {
    case grant_answer::kind::granted:
      term_.claims = answer.claims;
      if (!answer.id.empty()) term_.grant = answer.id;
      holder_.emplace(wanted_.times, counted(sent, answer.act_for));
      renew_in_time();
      if (holder_) seal();  // else its time was over when the answer came
      return;
    case grant_answer::kind::held: {
      const auto took = std::chrono::ceil<milliseconds>(clock_reading::now().boot - sent.boot);
      return wait_until_free(answer, took);
    }
    case grant_answer::kind::over:
      if (term_.grant == wanted_.id)
        return fail({keeper_failure::kind::over, "the time of this id has passed: it is granted once only"});
      term_.grant.clear();  // an earlier answer was lost, and its time has passed
      return try_again(milliseconds(1), &keeper::acquire);
    case grant_answer::kind::uncovered:
      return fail(
          {keeper_failure::kind::refused,
           "former holders of " + answer.resource + " sealed the store " + answer.by +
               ", which this configuration does not name, or which is another one by now. All holders of a lease "
               "seal the same places. If it is no more: fencegate lease forget-store " +
               answer.resource + " " + answer.by});
    case grant_answer::kind::refused: return fail({keeper_failure::kind::refused, answer.detail});
    case grant_answer::kind::failed: return missed("the issuer", error{answer.detail}, &keeper::look);
  }
}

void keeper::wait_until_free(const grant_answer& held, milliseconds took) {
  const auto what = held.resource + " is held by " + held.by;
  reached_ = true;
  const auto left = wait_until_ - clock::now();
  if (left <= clock::duration::zero()) {
    note_.end(wanted_.renews ? milliseconds(0) : waiting_note::comes_back);
    return fail({keeper_failure::kind::busy, what, held.resource, held.by, held.left});
  }
  held_by_ = held.by;
  note_.say(held.resource, term_.grant);
  wait_for(what);
  if (releases_ == nullptr)
    releases_ = issuer_->on_release([weak = weak_from_this()](const std::string& resource) {
      if (const auto self = weak.lock()) self->on_release(resource);
    });
  // Many who wait do not keep an issuer busy: the longer it takes to answer, the more seldom it is asked.
  const auto seldom = held.waited ? milliseconds(50) : std::clamp(10 * took, ask_again, ask_again_most);
  const auto pause = std::min({seldom, held.left, std::chrono::ceil<milliseconds>(left)});
  try_again(released_ ? milliseconds(0) : std::max(pause, milliseconds(1)), &keeper::acquire);
  pausing_ = true;
}

void keeper::on_release(const std::string& resource) {
  const auto& names = wanted_.resources;
  if (stopped_ || std::find(names.begin(), names.end(), resource) == names.end()) return;
  // The answer that is under way may be of before the release.
  if (asking_) {
    released_ = true;
    heard_ = clock::now();
  }
  if (!pausing_ || pause_.cancel() == 0) return;  // it is about to ask
  heard_ = clock::now();
  try_again(milliseconds(0), &keeper::acquire);
}

// ── the seals ───────────────────────────────────────────────────────────────────────────────────────────────────────

void keeper::seal() {
  if (stopped_ || !holder_) return;  // resumed: it was lost meanwhile
  if (places_.empty()) {             // its issuer has sealed it
    not_sealed_.reset();
    return all_answered();
  }
  unanswered_ = places_.size();
  not_sealed_.reset();
  ++round_;
  for (const auto& place : places_)
    place->seal(term_, issuer_id_,
                [self = shared_from_this(), place, round = round_](const backend::store_result<void>& outcome) {
                  self->on_sealed(round, *place, outcome);
                });
}

void keeper::on_sealed(std::uint64_t round, const seal_place& place, const backend::store_result<void>& outcome) {
  if (round != round_ || stopped_) return;
  if (outcome.has_error() && (!not_sealed_ || is_outrun(*not_sealed_))) {
    not_sealed_ = outcome.error();
    not_sealed_->detail = place.name() + (not_sealed_->detail.empty() ? "" : ": ") + not_sealed_->detail;
  }
  if (--unanswered_ == 0) all_answered();
}

void keeper::all_answered() {
  if (resumes_ && (not_sealed_ || !holder_->may_begin(clock_reading::now()))) return not_resumed();
  if (!not_sealed_) {
    if (!holder_->may_begin(clock_reading::now())) {
      return let_go_then([self = shared_from_this()](const result<void>&) { self->begin_anew(); });
    }
    acquired_ = true;
    releases_ = nullptr;
    note_.end();
    if (heard_) handover_ = clock::now() - *heard_;
    const auto tell = owner_.acquired;  // which may stop this keeper
    return tell(term_);
  }
  const auto why = *not_sealed_;
  auto next = [self = shared_from_this(), why](const result<void>&) {
    if (self->stopped_) return;
    if (is_outrun(why)) return self->begin_anew();
    if (why.why == fence::reason::refused) return self->fail({keeper_failure::kind::refused, fence::describe(why)});
    self->missed("it was not sealed", error{fence::describe(why)}, &keeper::look);
  };
  let_go_then(next);
}

// A seal that is equal and of the same grant is admitted, so it may be repeated as long as the term holds.
void keeper::not_resumed() {
  const auto why = std::exchange(not_sealed_, std::nullopt);
  const auto message = why ? fence::describe(*why) : std::string("the clock may have stood still");
  if (!why || !(is_outrun(*why) || why->why == fence::reason::refused)) {
    wait_for("it was not sealed: " + message);
    return try_again(back_off, &keeper::seal);
  }
  let_go_then([self = shared_from_this(), message](const result<void>&) {
    self->fail({keeper_failure::kind::refused, message});
  });
}

// ── beginning anew ──────────────────────────────────────────────────────────────────────────────────────────────────

// What an operator takes by force is taken once: by now it may be the lease of somebody else, who is not to lose it.
void keeper::begin_anew() {
  if (wanted_.how == taking::when_free) return try_again(back_off, &keeper::look);
  if (!stopped_) fail({keeper_failure::kind::unreachable, "it was not sealed everywhere in time; do it again"});
}

void keeper::try_again(milliseconds pause, step from) {
  if (stopped_) return;
  pause_.expires_after(pause);
  pause_.async_wait([self = shared_from_this(), from](const boost::system::error_code& cancelled) {
    if (!cancelled && !self->stopped_) (self.get()->*from)();
  });
}

// The next acquisition is another one, with an id of its own.
void keeper::let_go_then(std::function<void(const result<void>&)> done) {
  renewals_.cancel();
  holder_.reset();
  const auto held = std::exchange(term_, {});
  issuer_->release(held, !acquired_ && !resumes_, std::move(done));
}

// Those that were never reached are told at once: somebody may wait for ever for a name that is wrong.
void keeper::missed(const std::string& whom, const unanswered& why, step from) {
  const auto message = (whom.empty() ? "" : whom + ": ") + why.message;
  if (why.lasts) return fail({keeper_failure::kind::refused, message});
  if ((!reached_ && !wanted_.patient) || clock::now() >= wait_until_)
    return fail({keeper_failure::kind::unreachable, message});
  held_by_.clear();
  wait_for(message);
  try_again(back_off, from);
}

void keeper::note(const std::string& whom, const unanswered& why) {
  if (problem_ && (problem_->lasts || !why.lasts)) return;
  problem_.emplace(error{whom + ": " + why.message}, why.lasts);
}

void keeper::wait_for(const std::string& what) {
  if (std::exchange(waits_for_, what) != what && owner_.waits) owner_.waits(what);
}

void keeper::fail(keeper_failure why) {
  if (const auto tell = owner_.not_acquired) tell(why);  // which may stop this keeper
}

}  // namespace fencegate::lease
