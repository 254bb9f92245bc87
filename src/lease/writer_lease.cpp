#include "lease/writer_lease.hpp"

#include "base/log.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::lease {
namespace {

using metrics::lease_state;
using std::chrono::milliseconds;

constexpr milliseconds silence_interval{500};

}  // namespace

writer_lease::writer_lease(boost::asio::io_context& context, boost::asio::thread_pool& disk, writer_wish wish,
                           lease_sources sources, metrics::leases& stats, metrics::writer& state)
    : context_(context),
      disk_(disk),
      wish_(std::move(wish)),
      sources_(std::move(sources)),
      stats_(stats),
      state_(state),
      gates_(wish_.gates),
      writer_(wish_.rules, boot_clock::now()),
      pause_(context),
      silence_(context) {}

void writer_lease::start() {
  show();
  watch_silence();
  if (wish_.record) return read_record();
  if (writer_.phase() == writer_phase::standby) acquire();
}

void writer_lease::later(milliseconds pause, step next) {
  pause_.expires_after(pause);
  auto go_on = current([next](writer_lease& self) { (self.*next)(); });
  pause_.async_wait([go_on](const boost::system::error_code& cancelled) {
    if (!cancelled) go_on();
  });
}

// ── the next one ────────────────────────────────────────────────────────────────────────────────────────────────────

void writer_lease::acquire() {
  begin_anew();
  if (ending_ || reading_) return;
  auto again = current([](writer_lease& self) { self.acquire(); });
  // A term that was resumed, and to which nothing was bound yet.
  if (keeper_) return let_go(std::exchange(keeper_, nullptr), again);
  if (let_former_go(again)) return;
  if (queues_are_old_) return listen_anew();
  take();
}

void writer_lease::listen_anew() {
  const auto left = std::make_shared<std::size_t>(gates_.size());
  const auto wrong = std::make_shared<std::optional<error>>();
  auto one_done = current([left, wrong](writer_lease& self, const result<void>& outcome) {
    if (!outcome) *wrong = outcome.error();
    if (--*left > 0) return;
    if (*wrong) return self.give_up((*wrong)->message);
    self.queues_are_old_ = false;
    self.take();
  });
  for (auto* gate : gates_)
    gate->listen_anew([&context = context_, one_done](const result<void>& outcome) {
      boost::asio::post(context, [one_done, outcome] { one_done(outcome); });
    });
}

void writer_lease::take() {
  const auto source = sources_(wish_.resources, {}, {});
  if (!source) return give_up(source.error().message);
  keeper_ = make_keeper(*source, &writer_lease::on_acquired);
  count(lease_state::waiting, 1);
  keeper_->start();
}

std::shared_ptr<keeper> writer_lease::make_keeper(const lease_source& from, step acquired) {
  begin_anew();
  resumes_ = false;
  holder_ = from.request.holder;
  keeper_owner owner;
  owner.acquired = current([acquired](writer_lease& self, const term&) { (self.*acquired)(); });
  owner.not_acquired = current([](writer_lease& self, const keeper_failure& why) { self.on_failure(why); });
  owner.times_moved = current([](writer_lease& self) { self.moved(); });
  owner.lost = current([](writer_lease& self, const keeper_loss& why) { self.on_lost(why); });
  owner.waits = current([](writer_lease& self, const std::string& why) {
    self.held_by_ = self.keeper_->held_by();
    self.problem_ = self.held_by_.empty() ? why : "";
    self.show();
  });
  auto request = from.request;
  request.wait.reset();
  request.patient = true;
  return std::make_shared<keeper>(context_, from.by, from.places, std::move(request), std::move(owner));
}

void writer_lease::on_acquired() {
  count(lease_state::held, 1);
  stats_.grants(metrics::grant_outcome::granted).add();
  if (const auto took = keeper_->handover()) stats_.handover_seconds.observe(*took);
  if (!wish_.record) return hold();
  auto on_done = current([](writer_lease& self, const result<void>& outcome) { self.on_written(outcome); });
  boost::asio::post(disk_, [&context = context_, file = *wish_.record, on_done,
                            record = term_record{keeper_->held(), writer_.started_at()}] {
    boost::asio::post(context, [outcome = file.write(record), on_done] { on_done(outcome); });
  });
}

void writer_lease::on_written(const result<void>& outcome) {
  if (outcome) return hold();
  let_go(std::exchange(keeper_, nullptr), nullptr);
  give_up("the term is not written down: " + outcome.error().message);
}

// The process may have stood still since it was granted.
void writer_lease::hold() {
  if (!keeper_->holding().may_begin(clock_reading::now())) return later(milliseconds(100), &writer_lease::hold);
  const auto& held = keeper_->held();
  bond_ = std::make_shared<bond>(held.claims, keeper_->holding());
  deadline_ = keeper_->holding().deadline();
  held_by_ = holder_;
  problem_.clear();
  writer_.granted();
  log::write(log::level::info, "lease held for a writer",
             {{"writer", wish_.name}, {"tag", fence::write_tag(held.claims)}, {"holder", holder_}});
  for (auto* gate : gates_) gate->open_to(bond_);
  show();
}

// Nothing is held, and it is tried again.
void writer_lease::give_up(const std::string& why) {
  begin_anew();
  count(lease_state::held, 0);
  if (std::exchange(problem_, why) != why)
    log::write(log::level::warn, "the lease of a writer is not taken", {{"writer", wish_.name}, {"why", why}});
  held_by_.clear();
  show();
  if (writer_.phase() == writer_phase::standby) later(back_off, &writer_lease::acquire);
}

void writer_lease::on_failure(const keeper_failure& why) {
  if (resumes_) return on_not_resumed(why.message);
  using kind = keeper_failure::kind;
  stats_.grants(why.what == kind::unreachable ? metrics::grant_outcome::unreachable : metrics::grant_outcome::refused)
      .add();
  keeper_.reset();
  give_up(why.message);
}

// ── holding, and the loss ───────────────────────────────────────────────────────────────────────────────────────────

void writer_lease::moved() {
  const auto& holding = keeper_->holding();
  if (bond_) bond_->moved(holding);
  if (holding.deadline() <= std::exchange(deadline_, holding.deadline())) return;
  stats_.renewals_total.add();
}

void writer_lease::on_lost(const keeper_loss& why) {
  const bool expired = why.what == keeper_loss::kind::expired;
  stats_.lost(expired ? metrics::lease_end::expired : metrics::lease_end::superseded).add();
  keeper_.reset();
  if (bond_) return lose(why.message);
  give_up(why.message);  // before anything was bound to it
}

void writer_lease::superseded(const fence::claim& presented) {
  const auto is_it = [&](const fence::claim& one) { return one == presented; };
  // Said once; and a connection of an earlier bond tells of that one.
  if (!bond_ || std::none_of(bond_->claims().begin(), bond_->claims().end(), is_it)) return;
  stats_.lost(metrics::lease_end::superseded).add();
  lose("a gate met a mark above its token");
  if (keeper_) let_go(std::exchange(keeper_, nullptr), nullptr);
}

void writer_lease::lose(const std::string& why) {
  begin_anew();
  bond_->revoke();
  writer_.lost(boot_clock::now());  // behind that: see bond::revoke()
  log::write(log::level::warn, "lease of a writer lost",
             {{"writer", wish_.name}, {"tag", fence::write_tag(bond_->claims())}, {"why", why}});
  bond_.reset();
  count(lease_state::held, 0);
  held_by_.clear();
  problem_.clear();
  forget();
  show();
  if (writer_.phase() == writer_phase::standby) acquire();
}

// Where it stays, a later process may resume that very term, as long as the issuer confirms it: nobody has had another.
void writer_lease::forget() {
  if (wish_.record) boost::asio::post(disk_, [file = *wish_.record] { static_cast<void>(file.remove()); });
}

void writer_lease::watch_silence() {
  silence_.expires_after(silence_interval);
  silence_.async_wait([weak = weak_from_this(), set = boot_clock::now()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (cancelled || !self) return;
    const auto now = boot_clock::now();
    // This process stood still: probes that came meanwhile wait in its queues, and are heard before the next look.
    const bool late = now - set > 2 * silence_interval;
    if (!(late && !self->looked_late_) && !self->ending_ && self->writer_.is_silent(now)) self->fall_silent();
    self->looked_late_ = late;
    self->watch_silence();
  });
}

void writer_lease::fall_silent() {
  const auto held = std::exchange(keeper_, nullptr);
  if (bond_) {
    lose("its probes come no more");
  } else {
    begin_anew();
    writer_.lost(boot_clock::now());
    count(lease_state::held, 0);
    show();
  }
  if (held) let_go(held, nullptr);
}

// ── what the writer tells ───────────────────────────────────────────────────────────────────────────────────────────

writer::report writer_lease::started(std::string_view container, boot_clock::time_point start) {
  const auto before = writer_.starts();
  const auto out = writer_.started(container, start, boot_clock::now());
  // A report that is repeated changes nothing. In standby, a request of its predecessor may wait to be bound: it goes first.
  if (before == writer_.starts() || writer_.phase() != writer_phase::standby) return out;
  log::write(log::level::info, "a writer was started anew", {{"writer", wish_.name}});
  queues_are_old_ = true;
  show();
  acquire();
  return out;
}

void writer_lease::heard() {
  const auto before = writer_.phase();
  writer_.heard(boot_clock::now());
  if (before == writer_.phase()) return;
  show();
  acquire();
}

// ── what is told of it ──────────────────────────────────────────────────────────────────────────────────────────────

writer_view writer_lease::view() const {
  writer_view out{wish_.name, writer_.phase(), since_, wish_.resources};
  if (bond_) out.claims = bond_->claims();
  out.held_by = held_by_;
  out.detail = words();
  return out;
}

std::string writer_lease::words() const {
  const std::string name(name_of(writer_.phase()));
  switch (writer_.phase()) {
    case writer_phase::unknown: return name + ": the writer was not started later than this gate, or has not said so";
    case writer_phase::standby:
      if (!held_by_.empty()) return name + ": held by " + held_by_;
      return name + ": " + (problem_.empty() ? "the lease is being taken" : problem_);
    case writer_phase::holding: return name;
    case writer_phase::lost: break;
  }
  return name + ": the lease was lost, and the writer was not started anew since";
}

void writer_lease::show() {
  const auto phase = writer_.phase();
  if (std::exchange(shown_, phase) != phase) since_ = std::chrono::system_clock::now();
  for (std::size_t i = 0; i < metrics::writer_states; ++i)
    state_.in_state[i].set(i == static_cast<std::size_t>(phase) ? 1 : 0);
  if (phase == writer_phase::holding) return;
  for (auto* gate : gates_) gate->shut(phase, words());
}

// In the one state or in none.
void writer_lease::count(lease_state in, int n) {
  if (counted_) stats_.in(*counted_).add(-1);
  counted_.reset();
  if (n == 0) return;
  stats_.in(in).add(1);
  counted_ = in;
}

}  // namespace fencegate::lease
