// Holding marks, and statements behind their check.
#include "backend/pg_claims.hpp"
#include "backend/pg_store.hpp"
#include "backend/pg_store_common.hpp"
#include "fence/compare.hpp"
#include "wire/sql_lead.hpp"
#include "wire/sql_pieces.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;

// How often marks are raised for one request before others win.
constexpr int attempts_max = 4;
// How long all statements are sent between BEGIN and COMMIT when one had to be.
constexpr std::chrono::minutes blocks_for{1};
// For the raise that has ended a statement, to commit; behind the request's deadline, and in front of it.
constexpr std::chrono::milliseconds explain_least{1'000}, explain_most{5'000};
// How often, 200 ms apart.
constexpr int explain_questions = 3;

// What is sent in one go for a statement: where its check stands, and how many there are.
struct run_shape {
  std::size_t check, steps;
};
// BEGIN, the time limit, the check, the statement, COMMIT.
constexpr run_shape in_block{2, 5};
// The check with the time limit, the statement: the Sync commits.
constexpr run_shape up_to_sync{0, 2};

pg_statement hold_statement(const std::vector<fence::claim>& claims, std::chrono::milliseconds wait) {
  return in_text("SELECT fencegate.hold($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.int4)",
                 {resources_of(claims), tokens_of(claims), std::to_string(wait.count())});
}

// The usual check, and the time limit of what follows.
pg_statement guard_and_limit(const presented_claims& wanted, std::chrono::milliseconds most) {
  return in_text(
      "SELECT fencegate.guard_under($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.int4), "
      "pg_catalog.set_config('statement_timeout', $3::pg_catalog.int4::pg_catalog.text, true)",
      {resources_of(wanted.claims), tokens_of(wanted.claims), std::to_string(most.count())});
}

// One row in any case but where marks are read, or tokens are spent; `most`: how long that may wait, `grace`: for holders.
pg_statement check_statement(const presented_claims& wanted, std::chrono::milliseconds most,
                             std::chrono::milliseconds grace) {
  if (wanted.claims.empty()) return in_text("SELECT true", {});
  if (wanted.spends) return raise_statement(wanted, most - grace, grace);
  if (wanted.read_only)
    return in_text("SELECT resource, mark, lowering FROM fencegate.look($1::pg_catalog.text[])",
                   {resources_of(wanted.claims)});
  return in_text("SELECT fencegate.guard_under($1::pg_catalog.text[], $2::pg_catalog.int8[])",
                 {resources_of(wanted.claims), tokens_of(wanted.claims)});
}

// What the check answered is what the statement needs.
bool is_proven(const presented_claims& wanted, const pg_outcome& outcome, const run_shape& shape) {
  if (outcome.steps.size() <= shape.check || !outcome.steps[shape.check]) return false;
  const auto& rows = outcome.steps[shape.check]->rows;
  if (wanted.claims.empty() || !(wanted.read_only || wanted.spends)) return rows.size() == 1;
  return wanted.read_only || raised_marks(wanted, rows).has_value();
}

// Whether a statement may be sent without a BEGIN. It must not be able to end the transaction that its check is in, as
// CALL and DO can, VACUUM and others do. And it is not for the session's defaults to say what kind of transaction it is
// where that is the point: of what only reads, and of what raises.
bool fits_one_sync(const presented_claims& wanted, const wire::sql_lead& lead) {
  static constexpr std::array<std::string_view, 8> plain{"SELECT", "INSERT", "UPDATE", "DELETE",
                                                         "MERGE",  "WITH",   "VALUES", "TABLE"};
  return !wanted.claims.empty() && !wanted.read_only && !wanted.spends &&
         std::any_of(plain.begin(), plain.end(), [&](std::string_view word) { return lead.begins_with(word); });
}

// The check itself has failed: sessions begin other transactions by default (25000) or have a time limit of their own that
// is too short for it (57014), or the fence is of an older version, whose guard has no such limit (42883).
bool wants_block(const pg_outcome& outcome) {
  if (!outcome.lost.empty() || outcome.steps.size() != 1) return false;
  const auto& state = outcome.steps[0].error().sqlstate;
  return state == "25000" || state == "57014" || state == "42883";
}

// "" when this may be run behind a check, or why not.
std::string_view unfitness(std::string_view sql, const wire::sql_lead& lead) {
  const auto pieces = wire::split_sql(sql, false);  // the server refuses what this takes for one and is more
  if (pieces.size() != 1 || pieces.front().text.empty()) return "it must be one statement";
  static constexpr std::array<std::string_view, 9> transactions{"BEGIN", "START",     "COMMIT",  "END",    "ROLLBACK",
                                                                "ABORT", "SAVEPOINT", "RELEASE", "PREPARE"};
  static constexpr std::array<std::string_view, 8> sessions{"SET",        "RESET",  "DISCARD",  "EXECUTE",
                                                            "DEALLOCATE", "LISTEN", "UNLISTEN", "LOAD"};
  const auto begins = [&](std::string_view word) { return lead.begins_with(word); };
  if (std::any_of(transactions.begin(), transactions.end(), begins))
    return "the gate begins and ends the transaction: a statement that does so would run unchecked";
  if (std::any_of(sessions.begin(), sessions.end(), begins))
    return "it would change the session, which is used for other requests too";
  if (begins("COPY")) return "COPY is not served";
  return {};
}

// What the marks that were read say of a request that only reads.
std::optional<fence::rejection> stale_reader(const presented_claims& wanted, const pg_rows& marks) {
  for (const auto& row : marks)
    for (const auto& claim : wanted.claims)
      if (const auto mark = row.size() == 3 && row[0] == claim.resource ? token_of(row[1]) : std::nullopt;
          fence::compare(claim.presented, mark) == fence::comparison::stale) {
        fence::rejection why{fence::reason::stale, claim.resource, claim.presented, mark, {}};
        why.lowering = lowering_of(row[2]);
        return why;
      }
  return std::nullopt;
}

}  // namespace

struct pg_store::attempt {
  store_caller from;
  presented_claims wanted;
  int tries = 0;
  cut_callback on_cut{};  // of hold
  hold_callback held{};
  pg_statement statement{};  // of run
  run_callback ran{};
  const run_shape* shape = &in_block;
  std::chrono::steady_clock::time_point sent{};
};

std::string_view unfit_statement(std::string_view sql) { return unfitness(sql, wire::read_sql_lead(sql)); }

void pg_store::give_up(const std::shared_ptr<attempt>& a, fence::rejection why) {
  if (a->held) return answer(a->from, a->held, store_result<held_marks>(std::move(why)));
  answer(a->from, a->ran, run_outcome{run_outcome::kind::rejected, {}, {}, std::move(why)});
}

// A mark that may be lower is raised first, on a connection that lengthy work does not take: else a new holder would
// wait for forwards of the old one, and the raise that ends them for the new holder. Where tokens are spent, this raise is
// what admits the hold, and no other follows; that of a statement is in the statement's own transaction.
void pg_store::begin(const std::shared_ptr<attempt>& a, step first) {
  auto go_on = [self = shared_from_this(), a, first] {
    if (a->wanted.spends) return a->held ? self->raise_then(a, first) : (self.get()->*first)(a);
    if (a->wanted.read_only || self->known_raised(a->wanted.claims)) return (self.get()->*first)(a);
    self->raise_then(a, first);
  };
  asio::post(context_, std::move(go_on));
}

void pg_store::raise_then(const std::shared_ptr<attempt>& a, step again) {
  if (a->tries >= attempts_max) return give_up(a, unavailable("its mark is raised by others all the time"));
  auto on_sealed = [self = shared_from_this(), a, again](const seal_result& sealed) {
    if (!sealed) return self->give_up(a, sealed.error());
    (self.get()->*again)(a);
  };
  seal_now(a->from.deadline, a->wanted, std::move(on_sealed));
}

// ── holding ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_store::hold(store_caller from, presented_claims wanted, cut_callback on_cut, hold_callback done) {
  if (auto why = known_rejected(marks_, wanted)) return answer(from, done, store_result<held_marks>(*why));
  auto a = std::make_shared<attempt>(
      attempt{std::move(from), std::move(wanted), 0, std::move(on_cut), std::move(done), {}, {}});
  begin(a, &pg_store::try_hold);
}

void pg_store::try_hold(const std::shared_ptr<attempt>& a) {
  ++a->tries;
  auto begin = [self = shared_from_this(), a](const pg_pool::lent& link) {
    if (a->from.session.expired()) return self->pool_->give_back(link);  // its client has left
    const auto left = budget_until(a->from.deadline);
    auto on_answer = [self, a, link](pg_outcome& outcome) { self->on_hold(a, link, outcome); };
    a->sent = clock::now();
    link->pipeline({in_text(begin_transaction, {}), hold_statement(a->wanted.claims, left.server)}, left.link, any_rows,
                   std::move(on_answer));
  };
  ask(pg_pool::work::lengthy, a->wanted.claims, a->from.deadline, std::move(begin),
      [a](fence::rejection why) { give_up(a, std::move(why)); });
}

void pg_store::on_hold(const std::shared_ptr<attempt>& a, const pg_pool::lent& link, pg_outcome& outcome) {
  if (!outcome.lost.empty() && !failed_at(outcome)) return give_up(a, unavailable(outcome.lost));
  if (outcome.lost.empty() && outcome.steps.size() == 2 && outcome.steps[1] && outcome.steps[1]->rows.size() == 1) {
    saw(a->wanted.claims, outcome.steps[1]->rows[0].at(0));
    return lend_marks(a, link);
  }
  if (outcome.lost.empty()) end_transaction(link, "ROLLBACK");
  if (!failed_at(outcome)) return give_up(a, unavailable("an unexpected answer of the server"));
  const auto& e = outcome.steps.back().error();
  // What was spent is not spent again, not even where the mark went back meanwhile.
  if (is_not_raised(e) && !a->wanted.spends) return raise_then(a, &pg_store::try_hold);
  give_up(a, noted(rejection_of(e, a->wanted.claims)));
}

void pg_store::lend_marks(const std::shared_ptr<attempt>& a, const pg_pool::lent& link) {
  stats_.check_duration_seconds.observe(clock::now() - a->sent);
  if (a->from.session.expired()) return end_transaction(link, "COMMIT");
  const auto state = std::make_shared<held_marks::session_state>(link->socket());
  link->doubts(state->in_doubt);
  auto lost = [self = shared_from_this(), a, state](const std::string&) {
    *state->in_doubt = true;
    if (state->released) return;
    self->stats_.sessions_cut_total.add();
    const auto tell = [state, on_cut = a->on_cut](const std::optional<fence::rejection>& why) {
      if (!state->released && on_cut) on_cut(why);
    };
    answer(a->from, tell, std::optional<fence::rejection>());
    auto asked = std::make_shared<attempt>(attempt{a->from, a->wanted});
    asked->from.deadline = clock::now();
    asked->held = [tell](const store_result<held_marks>& why) { tell(why.error()); };
    self->explain(asked, unavailable("the hold was ended"), explain_questions);
  };
  pool_->on_lost(link, std::move(lost));
  auto let_go = [self = shared_from_this(), link] {
    if (self->stopped_) return;  // its connections are closed, with everything that they hold
    auto end = [self, link] {
      link->doubts(nullptr);
      self->pool_->on_lost(link, nullptr);
      self->end_transaction(link, "COMMIT");
    };
    asio::post(self->context_, std::move(end));
  };
  auto set_aside = [self = shared_from_this(), link] {
    asio::post(self->context_, [self, link] { self->pool_->set_aside(link); });
  };
  answer(a->from, a->held, store_result<held_marks>(held_marks(state, std::move(let_go), std::move(set_aside))));
}

// ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_store::run(store_caller from, presented_claims wanted, pg_statement statement, run_callback done) {
  using kind = run_outcome::kind;
  if (auto why = known_rejected(marks_, wanted)) return answer(from, done, run_outcome{kind::rejected, {}, {}, *why});
  const auto refuse = [&](const char* sqlstate, std::string_view why) {
    answer(from, done, run_outcome{kind::failed, {}, {"ERROR", sqlstate, std::string(why), {}, {}}, {}});
  };
  const auto lead = wire::read_sql_lead(statement.sql);
  if (const auto why = unfitness(statement.sql, lead); !why.empty()) return refuse("0A000", why);
  for (const auto& one : statement.parameters)
    if (one.value && !one.binary && one.value->find('\0') != std::string::npos)
      return refuse("22021", "a text has a NUL byte in it");
  const auto* shape = fits_one_sync(wanted, lead) ? &up_to_sync : &in_block;
  auto a = std::make_shared<attempt>(
      attempt{std::move(from), std::move(wanted), 0, {}, {}, std::move(statement), std::move(done), shape});
  begin(a, &pg_store::try_run);
}

// What spends tokens is a raise, too: it does not wait for the connections that forwards of an old holder took.
void pg_store::try_run(const std::shared_ptr<attempt>& a) {
  ++a->tries;
  if (clock::now() < blocks_until_) a->shape = &in_block;
  const bool spends = a->wanted.spends && !a->wanted.claims.empty();
  auto begin = [self = shared_from_this(), a, spends](const pg_pool::lent& link) {
    if (a->from.session.expired()) return self->pool_->give_back(link);  // nothing was sent, nor will be
    // The server ends what takes too long: then it is known that nothing was applied. In the time of a raise, those who
    // hold the mark are waited for, then ended.
    const auto left = budget_until(a->from.deadline);
    const auto raise_least = spends ? self->grace_ + cut_least : std::chrono::milliseconds(0);
    const auto most = std::max(left.server, raise_least);
    std::vector<pg_statement> steps;
    steps.reserve(a->shape->steps);
    if (a->shape == &up_to_sync) {
      steps.push_back(guard_and_limit(a->wanted, most));
    } else {
      steps.push_back(in_text(a->wanted.read_only ? begin_reading : begin_transaction, {}));
      steps.push_back(
          in_text("SELECT pg_catalog.set_config('statement_timeout', $1, true)", {std::to_string(most.count())}));
      steps.push_back(check_statement(a->wanted, most, self->grace_));
    }
    steps.push_back(a->statement);
    if (a->shape == &in_block) steps.push_back(in_text("COMMIT", {}));
    auto on_answer = [self, a, link](pg_outcome& outcome) { self->on_run(a, link, outcome); };
    a->sent = clock::now();
    link->pipeline(std::move(steps), std::max(left.link, raise_least + cut_least), limits::pg_row_bytes_max,
                   std::move(on_answer));
  };
  ask(spends ? pg_pool::work::raising : pg_pool::work::lengthy, a->wanted.claims, a->from.deadline, std::move(begin),
      [a](fence::rejection why) { give_up(a, std::move(why)); });
}

// What the check of a statement has shown of its marks, which are at their tokens.
void pg_store::saw_checked(const presented_claims& wanted, const pg_rows& rows) {
  if (wanted.claims.empty()) return;
  if (!wanted.spends) return saw(wanted.claims, rows.at(0).at(0));
  for (const auto& one : raised_marks(wanted, rows).value_or(std::vector<sealed_mark>{}))
    if (one.lowering) saw(one.at.resource, one.at.presented, *one.lowering);
}

void pg_store::on_run(const std::shared_ptr<attempt>& a, const pg_pool::lent& link, pg_outcome& outcome) {
  using kind = run_outcome::kind;
  const auto tell = [&](run_outcome out) { answer(a->from, a->ran, std::move(out)); };
  const auto& shape = *a->shape;
  const bool at_sync = a->shape == &up_to_sync;
  const bool committed = at_sync ? has_committed_at_sync(outcome, shape.steps) : has_committed(outcome, shape.steps);
  if (!committed && (at_sync ? proves_rollback_at_sync(outcome, shape.steps) : proves_rollback(outcome, shape.steps))) {
    if (outcome.lost.empty() && at_sync)
      pool_->give_back(link);
    else if (outcome.lost.empty())
      end_transaction(link, "ROLLBACK");
    if (at_sync && wants_block(outcome)) {
      blocks_until_ = clock::now() + blocks_for;
      return try_run(a);
    }
    const auto& e = outcome.steps.back().error();
    // A FATAL error of the server in front of the commit's answer: the transaction was rolled back. So ends what a
    // raise has waited for long enough.
    if (e.sqlstate == admin_shutdown)
      return explain(a, unavailable("the server ended the transaction: " + e.message), explain_questions);
    if (outcome.steps.size() - 1 > shape.check) return tell({kind::failed, {}, e, {}});
    if (is_not_raised(e) && !a->wanted.spends) return raise_then(a, &pg_store::try_run);
    return give_up(a, noted(rejection_of(e, a->wanted.claims)));
  }
  if (!outcome.lost.empty() && !outcome.sent) return give_up(a, unavailable(outcome.lost));
  const bool reads_marks = a->wanted.read_only && !a->wanted.claims.empty();
  if (committed && is_proven(a->wanted, outcome, shape)) {
    if (!a->wanted.claims.empty()) stats_.check_duration_seconds.observe(clock::now() - a->sent);
    if (at_sync || is_committed(outcome, shape.steps))
      pool_->give_back(link);
    else if (outcome.lost.empty())
      link->close("the server ended the session");
    if (reads_marks) {
      if (auto stale = stale_reader(a->wanted, outcome.steps[shape.check]->rows)) return give_up(a, noted(*stale));
    } else {
      saw_checked(a->wanted, outcome.steps[shape.check]->rows);
      if (a->wanted.spends) stats_.raises_total.add(a->wanted.claims.size());
    }
    return tell({kind::done, std::move(*outcome.steps[shape.check + 1]), {}, {}});
  }
  const std::string said =
      failed_at(outcome) ? outcome.steps.back().error().message : "an unexpected answer of the server";
  const std::string why = outcome.lost.empty() || failed_at(outcome) ? said : outcome.lost;
  if (outcome.lost.empty()) link->close(why);
  tell({kind::unknown, {}, {"FATAL", {}, why, {}, {}}, {}});
}

// Nothing was applied. A raise that did it takes its lock next, and keeps it until it has committed: asking for the lock
// waits for that. Who asks before the raise has come to the lock asks again.
void pg_store::explain(const std::shared_ptr<attempt>& a, const fence::rejection& otherwise, int questions) {
  const auto wait = std::clamp(time_left(a->from.deadline), explain_least, explain_most);
  auto ask_for_it = [self = shared_from_this(), a, otherwise, wait, questions](const pg_pool::lent& link) {
    auto on_answer = [self, a, otherwise, link, questions](pg_outcome& outcome) {
      if (outcome.lost.empty()) self->end_transaction(link, "ROLLBACK");
      if (!failed_at(outcome))
        return outcome.lost.empty() && questions > 1 ? self->explain(a, otherwise, questions - 1)
                                                     : give_up(a, otherwise);
      const auto why = self->noted(rejection_of(outcome.steps.back().error(), a->wanted.claims));
      give_up(a, why.why == fence::reason::stale ? why : otherwise);
    };
    std::vector<pg_statement> steps{in_text(begin_transaction, {}), hold_statement(a->wanted.claims, wait)};
    if (questions < explain_questions) steps.insert(steps.begin() + 1, in_text("SELECT pg_catalog.pg_sleep(0.2)", {}));
    link->pipeline(std::move(steps), wait + cut_least, any_rows, std::move(on_answer));
  };
  ask(pg_pool::work::brief, a->wanted.claims, clock::now() + wait, std::move(ask_for_it),
      [a, otherwise](const fence::rejection&) { give_up(a, otherwise); });
}

}  // namespace fencegate::backend
