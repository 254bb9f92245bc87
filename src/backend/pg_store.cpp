#include "backend/pg_store.hpp"

#include "backend/pg_claims.hpp"
#include "backend/pg_store_common.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds watch_interval{2'000};
// For each of its questions.
constexpr milliseconds watch_patience{4'000};

}  // namespace

pg_store::pg_store(asio::io_context& context, std::string gate, const settings::mark_store& store, milliseconds grace,
                   metrics::gate& stats)
    : whole_(stats.whole.lock()),
      context_(context),
      gate_(std::move(gate)),
      store_(store),
      grace_(grace),
      stats_(stats),
      pool_stats_(*stats.pools.emplace_back(std::make_unique<metrics::pool>(store.name))),
      watch_timer_(context) {
  marks_.tell_rises(stats);
}

void pg_store::start() {
  auto tell = [weak = weak_from_this(), whole = whole_](const std::string& problem) {
    const auto self = weak.lock();
    if (self == nullptr || self->stopped_) return;
    if (problem.empty())
      self->watch();
    else
      self->note_problem(self->named(problem));
  };
  const pg_target target{store_.where, store_.login, store_.database, store_.secured};
  pool_ = std::make_shared<pg_pool>(context_, target, store_.pool, store_.connect, pool_stats_, std::move(tell));
  pool_->start();
}

void pg_store::stop(const asio::io_context& thread) {
  if (&thread != &context_) return;
  stopped_ = true;
  watch_timer_.cancel();
  if (pool_) pool_->stop();
}

void pg_store::ask(pg_pool::work what, const fence::claims_list& about, clock::time_point deadline,
                   std::function<void(const pg_pool::lent&)> begin, std::function<void(fence::rejection)> give_up) {
  if (pool_ == nullptr) return give_up(unavailable("the gate is starting"));
  auto refused = [self = shared_from_this(), give_up = std::move(give_up)](const std::string& why) {
    give_up(unavailable(self->named(why)));
  };
  pool_->ask({what, resources_of(about), deadline, std::move(begin), std::move(refused)});
}

// ── what this process has seen ──────────────────────────────────────────────────────────────────────────────────────

bool pg_store::known_raised(const std::vector<fence::claim>& claims) const {
  return std::all_of(claims.begin(), claims.end(),
                     [this](const auto& one) { return marks_.seen(one.resource) == one.presented; });
}

// Under which lowering a mark was seen, the server says: where it does not, nobody knows, and it is not remembered.
void pg_store::saw(const std::string& resource, fence::token mark, std::uint64_t lowering) {
  learn(marks_, *marks_.cell(resource), mark, lowering, [this] { return about(); });
}

// The marks were at their tokens. `lowerings`: as fencegate.guard has answered.
void pg_store::saw(const std::vector<fence::claim>& claims, const std::optional<std::string>& lowerings) {
  const auto each = lowerings_of(lowerings);
  for (std::size_t i = 0; i < claims.size() && i < each.size(); ++i)
    if (each[i]) saw(claims[i].resource, claims[i].presented, *each[i]);
}

log::event pg_store::about() const { return log::event().add("gate", gate_).add("store", store_.name); }

fence::rejection pg_store::noted(fence::rejection why) {
  const bool about_marks = why.why == fence::reason::stale || why.why == fence::reason::equal;
  if (about_marks && why.mark && why.lowering) saw(why.resource, *why.mark, *why.lowering);
  return why;
}

// ── looking and raising ─────────────────────────────────────────────────────────────────────────────────────────────

void pg_store::end_transaction(const pg_pool::lent& link, const char* how) {
  auto ended = [self = shared_from_this(), link](const pg_result& done) {
    if (done)
      self->pool_->give_back(link);
    else
      link->close(done.error().message);
  };
  link->query(how, {}, std::move(ended));
}

void pg_store::look(store_caller from, std::vector<std::string> resources, look_callback done) {
  auto begin = [self = shared_from_this(), from, resources = std::move(resources), done = std::move(done)] {
    self->look_now(from.deadline, resources, [from, done](auto found) { answer(from, done, std::move(found)); });
  };
  asio::post(context_, std::move(begin));
}

void pg_store::look_now(clock::time_point deadline, const std::vector<std::string>& resources,
                        const look_callback& done) {
  auto begin = [self = shared_from_this(), deadline, resources, done](const pg_pool::lent& link) {
    auto on_answer = [self, link, resources, done](pg_outcome& outcome) {
      if (!outcome.lost.empty()) return done(unavailable(outcome.lost));
      self->pool_->give_back(link);
      if (outcome.steps.size() != 1) return done(unavailable("the server gave no answer"));
      if (outcome.steps[0].has_error()) return done(rejection_of(outcome.steps[0].error(), {}));
      auto found = looked_marks(outcome.steps[0]->rows);
      if (found.size() != resources.size()) return done(unavailable("an unexpected answer"));
      done(std::move(found));
    };
    link->pipeline({look_statement(resources)}, budget_until(deadline).link, any_rows, std::move(on_answer));
  };
  ask(pg_pool::work::brief, {}, deadline, std::move(begin), [done](fence::rejection why) { done(std::move(why)); });
}

void pg_store::seal(store_caller from, presented_claims wanted, seal_callback done) {
  if (auto why = known_rejected(marks_, wanted)) return answer(from, done, seal_result(*why));
  auto begin = [self = shared_from_this(), from, wanted = std::move(wanted), done = std::move(done)] {
    self->seal_now(from.deadline, wanted, [from, done](auto sealed) { answer(from, done, std::move(sealed)); });
  };
  asio::post(context_, std::move(begin));
}

void pg_store::seal_now(clock::time_point deadline, const presented_claims& wanted, const seal_callback& done) {
  auto begin = [self = shared_from_this(), deadline, wanted, done](const pg_pool::lent& link) {
    auto on_answer = [self, link, wanted, done, began = clock::now()](pg_outcome& outcome) {
      auto out = self->sealed(link, wanted, outcome);
      if (out) self->stats_.check_duration_seconds.observe(clock::now() - began);
      done(std::move(out));
    };
    const auto left = budget_until(deadline);
    const auto cut = std::max(left.server - self->grace_, cut_least);
    link->pipeline({in_text(begin_transaction, {}), raise_statement(wanted, cut, self->grace_), in_text("COMMIT", {})},
                   std::max(left.link, self->grace_ + 2 * cut_least), any_rows, std::move(on_answer));
  };
  ask(pg_pool::work::brief, wanted.claims, deadline, std::move(begin),
      [done](fence::rejection why) { done(std::move(why)); });
}

// What a raise answered, and what is left to do on its connection.
pg_store::seal_result pg_store::sealed(const pg_pool::lent& link, const presented_claims& wanted, pg_outcome& outcome) {
  if (outcome.lost.empty() && failed_at(outcome)) end_transaction(link, "ROLLBACK");
  if (failed_at(outcome)) return noted(rejection_of(outcome.steps.back().error(), wanted.claims));
  if (!outcome.lost.empty()) return unavailable(outcome.lost);
  // The marks that came back, and their commit, are the proof.
  const auto marks = is_committed(outcome, 3) ? raised_marks(wanted, outcome.steps[1]->rows) : std::nullopt;
  if (!marks) {
    link->close("an unexpected answer");
    return unavailable("an unexpected answer of the server");
  }
  pool_->give_back(link);
  for (const auto& one : *marks) {
    if (one.lowering) saw(one.at.resource, one.at.presented, *one.lowering);
    if (one.raised) stats_.raises_total.add();
  }
  return *marks;
}

// ── looking after the marks ─────────────────────────────────────────────────────────────────────────────────────────

void pg_store::watch() {
  if (stopped_) return;
  if (unanswered_ == 0) look_at_marks();
  watch_timer_.expires_after(watch_interval);
  auto again = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->watch();
  };
  watch_timer_.async_wait(again);
}

void pg_store::look_at_marks() {
  auto seen = lost_marks::some_of(compared_);
  const auto names = lost_marks::names_of(seen);
  ++unanswered_;
  auto on_found = [self = shared_from_this(),
                   seen = std::move(seen)](const store_result<std::vector<looked_mark>>& found) {
    --self->unanswered_;
    if (self->stopped_) return;
    self->note_problem(found ? "" : found.error().detail);
    if (found) self->compare(seen, *found);
  };
  look_now(clock::now() + watch_patience, names, std::move(on_found));
}

void pg_store::compare(const lost_marks::seen_marks& seen, const std::vector<looked_mark>& found) {
  for (const auto& loss : lost_.compare(marks_, seen, found, [this] { return about(); })) {
    if (loss.news) {
      stats_.regressions_total.add();
      log_regression(about(), *marks_.cell(loss.to.resource), loss.found);
    }
    put_back(loss);
  }
}

void pg_store::put_back(const lost_marks::loss& loss) {
  ++unanswered_;
  auto begin = [self = shared_from_this(), loss](const pg_pool::lent& link) {
    const auto left = budget_until(clock::now() + watch_patience);
    const auto cut = std::max(left.server - self->grace_, cut_least);
    auto on_answer = [self, loss, link](pg_outcome& outcome) { self->on_put_back(loss, link, outcome); };
    link->pipeline({in_text(begin_transaction, {}), put_back_statement(loss, cut, self->grace_), in_text("COMMIT", {})},
                   std::max(left.link, self->grace_ + 2 * cut_least), any_rows, std::move(on_answer));
  };
  auto given_up = [self = shared_from_this()](const fence::rejection&) { --self->unanswered_; };
  ask(pg_pool::work::brief, {}, clock::now() + watch_patience, std::move(begin), std::move(given_up));
}

// Where it was not put back, the next look says why: it finds what stands there.
void pg_store::on_put_back(const lost_marks::loss& loss, const pg_pool::lent& link, pg_outcome& outcome) {
  --unanswered_;
  if (!outcome.lost.empty()) return;
  if (failed_at(outcome)) return end_transaction(link, "ROLLBACK");
  if (!is_committed(outcome, 3)) return link->close("an unexpected answer");
  pool_->give_back(link);
  if (!was_put_back(loss, outcome.steps[1]->rows)) return;
  stats_.raises_total.add();
  lost_.is_back(loss.to.resource);
}

void pg_store::note_problem(const std::string& problem) {
  stats_.note_backend(store_.name, problem);
  if (problem_ == problem) return;
  if (problem.empty())
    log::write(log::level::info, "backend up", {{"gate", gate_}, {"store", store_.name}});
  else
    log::write(log::level::warn, "backend not usable", {{"gate", gate_}, {"store", store_.name}, {"detail", problem}});
  problem_ = problem;
}

}  // namespace fencegate::backend
