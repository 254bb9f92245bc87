// A writer's lease where the sidecar begins and ends: the term of an earlier process, and what is given back.
#include "base/log.hpp"
#include "lease/writer_lease.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace fencegate::lease {
namespace {

using metrics::lease_state;

}  // namespace

// Whatever begins meanwhile waits for it: until then it is not known what has to be released first.
void writer_lease::read_record() {
  reading_ = true;
  ++leaving_;
  auto on_read = [weak = weak_from_this()](const result<std::optional<term_record>>& read) {
    if (const auto self = weak.lock()) self->on_record(read);
  };
  boost::asio::post(disk_, [&context = context_, file = *wish_.record, on_read] {
    boost::asio::post(context, [read = file.read(), on_read] { on_read(read); });
  });
}

void writer_lease::on_record(const result<std::optional<term_record>>& read) {
  reading_ = false;
  if (!read)
    log::write(log::level::warn, "no term is resumed", {{"writer", wish_.name}, {"why", read.error().message}});
  if (read && *read && are_same(names_of((*read)->held.claims), wish_.resources)) former_ = (*read)->held;
  const bool was_started = queues_are_old_;  // meanwhile
  if (ending_)
    give_back();
  else if (former_ && !was_started)
    resume();
  else if (writer_.phase() == writer_phase::standby)
    acquire();
  settled();
}

// It goes on only with this very term, and only when the issuer has just confirmed it.
void writer_lease::resume() {
  const auto source = sources_(wish_.resources, {}, {});
  if (!source) return give_up(source.error().message);
  auto identified = current([from = *source](writer_lease& self, const result<std::string>& known) {
    if (!known) return self.later(back_off, &writer_lease::resume);
    const auto sent = clock_reading::now();
    auto renewed = self.current([from, sent, id = *known](writer_lease& me, const result<renewal>& confirmed) {
      me.on_renewed(from, id, sent, confirmed);
    });
    from.by->renew(*self.former_, renewed);
  });
  source->by->identify(identified);
}

void writer_lease::on_renewed(const lease_source& from, const std::string& issuer_id, clock_reading sent,
                              const result<renewal>& confirmed) {
  if (!confirmed) return later(back_off, &writer_lease::resume);
  const auto held = *former_;
  if (confirmed->claims.size() != held.claims.size()) {
    former_.reset();
    return on_not_resumed("another has it, or it is over");
  }
  // As long as it was granted for, which the configuration may have changed since.
  auto source = sources_(wish_.resources, confirmed->ttl, {});
  if (!source) source = from;
  former_.reset();
  keeper_ = make_keeper(*source, &writer_lease::hold);
  resumes_ = true;
  count(lease_state::held, 1);
  // The configuration may name places by now that were never sealed for it.
  keeper_->resume(held, issuer_id, sent);
}

// Nothing is held any more.
void writer_lease::on_not_resumed(const std::string& why) {
  begin_anew();
  keeper_.reset();
  count(lease_state::held, 0);
  log::write(log::level::warn, "no term is resumed", {{"writer", wish_.name}, {"why", why}});
  forget();
  if (writer_.phase() == writer_phase::standby) acquire();
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void writer_lease::drain() {
  ending_ = true;
  if (!bond_) give_back();
}

void writer_lease::release(std::function<void()> done) {
  gates_.clear();
  ending_ = true;
  silence_.cancel();
  if (bond_) bond_->revoke();
  released_ = std::move(done);
  ++leaving_;
  give_back();
  boost::asio::post(context_, [self = shared_from_this()] { self->settled(); });
}

void writer_lease::give_back() {
  begin_anew();
  count(lease_state::held, 0);
  if (keeper_) let_go(std::exchange(keeper_, nullptr), nullptr);
  static_cast<void>(let_former_go(nullptr));
}

// `then`: nullptr, or called when it is released, or is not known to be.
void writer_lease::let_go(std::shared_ptr<keeper> held, std::function<void()> then) {
  ++leaving_;
  held->stop(release_patience, [weak = weak_from_this(), held, then = std::move(then)](const result<void>& outcome) {
    if (const auto self = weak.lock()) self->gone(outcome);
    if (then) then();
  });
}

// Nobody works under it any more. Where it cannot be released, its time ends by itself. False: there is none.
bool writer_lease::let_former_go(std::function<void()> then) {
  if (!former_) return false;
  const auto held = *std::exchange(former_, std::nullopt);
  const auto source = sources_(wish_.resources, {}, {});
  if (!source) return false;
  // A keeper that only releases.
  const auto only = std::make_shared<keeper>(context_, source->by, source->places, source->request, keeper_owner{});
  only->adopt(held, clock_reading::now());
  let_go(only, std::move(then));
  return true;
}

void writer_lease::gone(const result<void>& outcome) {
  if (!outcome)
    log::write(log::level::warn, "the lease of a writer is not released",
               {{"writer", wish_.name}, {"why", outcome.error().message}});
  // Where it stays, the issuer confirms that term to nobody.
  else if (ending_ && wish_.record)
    static_cast<void>(wish_.record->remove());
  settled();
}

void writer_lease::settled() {
  if (--leaving_ == 0 && released_) std::exchange(released_, nullptr)();
}

}  // namespace fencegate::lease
