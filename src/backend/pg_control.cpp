#include "backend/pg_control.hpp"

#include "backend/pg_claims.hpp"
#include "backend/pg_dial.hpp"
#include "backend/pg_store_common.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "fence/compare.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <charconv>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds tick_interval{250};
constexpr milliseconds look_interval{2'000};
constexpr seconds sweep_interval{60};
constexpr milliseconds back_off_min{100}, back_off_max{5'000};
// A raise that heals a mark may have to end sessions first.
constexpr milliseconds answer_allowance{10'000};
// A raise that is in front of another ends within its own time, and what its answer takes.
constexpr milliseconds line_allowance{2'000};
// Connections to databases of the clients' choice. The server's own limit comes first, mostly.
constexpr std::size_t databases_max = 1'000;

// The marks that came back are the proof: each at its token, or it is an error.
pg_raise_result raised_of(const pg_result& answered, const pg_control::claims& wanted) {
  if (!answered) return answered.error();
  const auto marks = raised_marks({wanted}, *answered);
  if (!marks) return wire::pg_error{"ERROR", {}, "the mark was not raised", {}, {}};
  pg_raised out;
  for (const auto& one : *marks) {
    if (one.raised) out.rose.push_back(one.at.resource);
    if (one.lowering) out.found.push_back({one.at.resource, one.at.presented, *one.lowering});
  }
  for (const auto& columns : *answered) {
    std::uint64_t cut = 0;
    const std::string& digits = columns.size() == 5 && columns[3] ? *columns[3] : std::string();
    if (std::from_chars(digits.data(), digits.data() + digits.size(), cut).ec == std::errc()) out.cut += cut;
  }
  return out;
}

// Behind a pooler, the session may have settings that some client left there. These hold for one transaction, and raise
// no warning outside of a block, as SET TRANSACTION and SET LOCAL do.
std::vector<pg_statement> whatever_was_set(pg_statement last) {
  return {{"SET transaction_isolation = 'read committed'"},
          {"SET transaction_read_only = off"},
          {"SELECT pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('role', 'none', true)"},
          std::move(last)};
}

// As the server would reject it. nullopt: no mark is above its token.
std::optional<wire::pg_error> stale_of(const pg_control::claims& wanted, const pg_rows& rows) {
  for (const auto& claim : wanted)
    for (const auto& row : rows) {
      const auto mark = row.size() > 1 && row[0] == claim.resource ? token_of(row[1]) : std::nullopt;
      if (fence::compare(claim.presented, mark) == fence::comparison::stale)
        return stale_error(claim, {claim.resource, *mark, lowering_of(row.back()).value_or(0)});
    }
  return std::nullopt;
}

// `done` is called on the thread of `reply_to`.
pg_answer to_raise(asio::io_context& reply_to, const pg_control::claims& wanted, pg_control::raise_callback done) {
  return [&reply_to, wanted, done = std::move(done)](const pg_result& rows) {
    asio::post(reply_to, [done, out = raised_of(rows, wanted)] { done(out); });
  };
}

}  // namespace

pg_control::pg_control(asio::io_context& context, const settings::postgres_gate& gate, metrics::gate& stats)
    : whole_(stats.whole.lock()),
      context_(context),
      gate_(gate),
      stats_(stats),
      ticker_(context),
      address_(std::make_shared<upstream_address>(context, gate.upstream)) {}

void pg_control::start(std::shared_ptr<void> unsettled) {
  at(gate_.control_database);
  address_->start(std::move(unsettled));
  tick();
}

void pg_control::stop() {
  stopped_ = true;
  address_->stop();
  ticker_.cancel();
  for (auto& [name, one] : databases_) {
    for (const auto& by : {one.own, one.raising})
      if (by.link != nullptr) by.link->close("the gate is stopping");
    if (one.raises != nullptr) one.raises->close("the gate is stopping");
  }
}

mark_memory& pg_control::marks(const std::string& database) {
  const std::lock_guard lock(mutex_);
  auto& slot = memories_[database];
  if (slot == nullptr) {
    slot = std::make_unique<mark_memory>();
    slot->tell_rises(stats_);
    // Where there is a mark to remember there is one that may go back, and sessions to sweep.
    asio::post(context_, [self = shared_from_this(), database] { self->at(database); });
  }
  return *slot;
}

std::optional<fence::token> pg_control::seen(const std::string& database, const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  const auto at = memories_.find(database);
  return at == memories_.end() ? std::nullopt : at->second->seen(resource);
}

void pg_control::saw(const std::string& database, const found_mark& found) {
  auto& known = marks(database);
  learn(known, *known.cell(found.resource), found.mark, found.lowering, [&] { return about(database); });
}

log::event pg_control::about(const std::string& database) const {
  return log::event().add("gate", gate_.name).add("database", database);
}

// ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────────

pg_control::looked_after* pg_control::at(const std::string& name) {
  if (stopped_ || (databases_.size() >= databases_max && databases_.find(name) == databases_.end())) return nullptr;
  auto& one = databases_[name];
  if (one.own.link == nullptr) {
    one.name = name;
    one.own = unconnected();
    auto how = [self = weak_from_this(), name]() -> std::optional<pg_link::parameters> {
      const auto alive = self.lock();
      return alive == nullptr ? std::nullopt : alive->how_to_connect(name);
    };
    const pg_raises::patience most{gate_.cut_timeout + line_allowance, gate_.cut_timeout,
                                   gate_.cut_timeout + answer_allowance};
    one.raises = std::make_shared<pg_raises>(context_, most, std::move(how));
  }
  return &one;
}

pg_control::connection pg_control::unconnected() {
  return {std::make_shared<pg_link>(context_, gate_.cut_timeout + answer_allowance)};
}

// Begins to connect, where it is not and may.
void pg_control::keep_connected(looked_after& to, connection& by) {
  if (by.link->connected() || by.connecting || clock::now() < by.next_try) return;
  const auto how = how_to_connect(to.name);
  if (!how) return;
  by.connecting = true;
  auto done = [self = shared_from_this(), &to, &by](const result<void>& outcome) {
    by.connecting = false;
    if (outcome) {
      by.failures = 0;
      if (&by == &to.own) to.next_look = {};
      return;
    }
    const auto back_off = std::min(back_off_max, back_off_min * (1 << std::min(by.failures++, 6)));
    by.next_try = clock::now() + back_off;
    if (&by != &to.own) return;
    self->note_problem(to, outcome.error().message);
    // Where the server has room for one, it is this one.
    if (to.raising.link != nullptr) to.raising.link->close("the other connection comes first");
  };
  by.link->connect(*how, std::move(done));
}

std::optional<pg_link::parameters> pg_control::how_to_connect(const std::string& database) const {
  const auto known = endpoints();
  if (known.empty() || stopped_) return std::nullopt;
  std::vector<asio::ip::address> addresses;
  if (!gate_.upstream.is_unix()) {
    for (const auto& one : known) {
      asio::ip::tcp::endpoint tcp;
      std::copy_n(static_cast<const char*>(static_cast<const void*>(one.data())), one.size(),
                  static_cast<char*>(static_cast<void*>(tcp.data())));
      tcp.resize(one.size());
      addresses.push_back(tcp.address());
    }
  }
  return parameters_of({gate_.upstream, gate_.control, database, gate_.secured}, addresses);
}

void pg_control::tick() {
  if (stopped_) return;
  const auto now = clock::now();
  for (auto& [name, one] : databases_) {
    keep_connected(one, one.own);
    if (!one.own.link->connected()) continue;
    // Where it failed, it is tried again when there is something to raise.
    if (one.raising.link != nullptr && one.raising.failures == 0) keep_connected(one, one.raising);
    if (now >= one.next_look && one.unanswered == 0) {
      one.next_look = now + look_interval;
      look_after(one);
    }
  }
  ticker_.expires_after(tick_interval);
  auto again = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->tick();
  };
  ticker_.async_wait(again);
}

void pg_control::note_problem(looked_after& one, const std::string& problem) {
  if (stopped_) return;  // it ended its connections by itself
  if (one.name == gate_.control_database)
    stats_.note_backend("", problem);
  else
    stats_.note_database(one.name, problem);
  if (one.problem == problem) return;
  if (problem.empty())
    log::write(log::level::info, "backend up", {{"gate", gate_.name}, {"database", one.name}});
  else
    log::write(log::level::warn, "backend not usable",
               {{"gate", gate_.name}, {"database", one.name}, {"detail", problem}});
  one.problem = problem;
}

// ── looking after a database ────────────────────────────────────────────────────────────────────────────────────────

void pg_control::look_after(looked_after& one) {
  if (!one.compared) one.compared.emplace(marks(one.name));
  auto seen =
      gate_.policy.mode == fence::enforcement::enforce ? lost_marks::some_of(*one.compared) : lost_marks::seen_marks();
  const auto names = lost_marks::names_of(seen);
  ++one.unanswered;
  auto on_marks = [self = shared_from_this(), &one, seen = std::move(seen)](const pg_result& rows) {
    --one.unanswered;
    if (rows) {
      self->note_problem(one, "");
      return self->compare_marks(one, seen, *rows);
    }
    const bool not_ours = is_of_another_version(rows.error());
    self->note_problem(one, rows.error().message + (not_ours ? " (run fencegate install)" : ""));
  };
  one.own.link->transaction({look_statement(names)}, std::move(on_marks));
  if (clock::now() < one.next_sweep) return;
  one.next_sweep = clock::now() + sweep_interval;
  one.own.link->query("SELECT fencegate.sweep()", {}, [](const pg_result&) {});
}

void pg_control::note_loss(const looked_after& one, const std::string& resource, std::optional<fence::token> found) {
  stats_.regressions_total.add();
  log_regression(about(one.name), *marks(one.name).cell(resource), found);
}

void pg_control::went_back(const std::string& database, const found_mark& to) {
  if (marks(database).cell(to.resource)->lowering() < to.lowering) return;
  asio::post(context_, [self = shared_from_this(), database, resource = to.resource] {
    if (auto* one = self->at(database); one != nullptr && one->lost.note(resource))
      self->note_loss(*one, resource, std::nullopt);
  });
}

void pg_control::compare_marks(looked_after& one, const lost_marks::seen_marks& seen, const pg_rows& rows) {
  const auto where = [&] { return about(one.name); };
  for (const auto& loss : one.lost.compare(marks(one.name), seen, looked_marks(rows), where)) {
    if (loss.news) note_loss(one, loss.to.resource, loss.found);
    ++one.unanswered;
    auto on_raised = [self = shared_from_this(), &one, loss](const pg_result& raised) {
      --one.unanswered;
      // Where somebody else was first, that will be told, too.
      if (raised && was_put_back(loss, *raised)) one.lost.is_back(loss.to.resource);
    };
    auto put_back = [loss](milliseconds waits) {
      return whatever_was_set(put_back_statement(loss, waits, milliseconds(0)));
    };
    one.raises->raise({loss.to}, std::move(put_back), nullptr, std::move(on_raised));
  }
}

pg_raises::raise_statements pg_control::raise_statements(const claims& wanted, std::int64_t max_step) {
  return [wanted, max_step](milliseconds waits) {
    return whatever_was_set(
        in_text("SELECT resource, mark, raised, cut, lowering FROM fencegate.raise_all($1::pg_catalog.text[], "
                "$2::pg_catalog.int8[], $3::pg_catalog.int4, $4::pg_catalog.int8)",
                {resources_of(wanted), tokens_of(wanted), std::to_string(waits.count()), std::to_string(max_step)}));
  };
}

// ── questions of sessions ───────────────────────────────────────────────────────────────────────────────────────────

void pg_control::ask(const std::string& name, std::vector<pg_statement> statements, pg_answer done) {
  auto* one = at(name);
  if (one == nullptr)
    return done(wire::pg_error{"FATAL", {}, "no connection of the gate's own to this database", {}, {}});
  keep_connected(*one, one->own);
  one->own.link->transaction(std::move(statements), std::move(done));
}

void pg_control::ended(asio::io_context& reply_to, const std::string& database, std::int32_t pid, ended_callback done) {
  auto answer = [&reply_to, done = std::move(done)](const pg_result& rows) {
    std::optional<std::vector<ended_registration>> out;
    if (rows) {
      out.emplace();
      for (const auto& row : *rows) {
        if (row.size() != 5 || !row[0]) continue;
        const auto held = token_of(row[1]);
        if (held) out->push_back({{*row[0], *held}, token_of(row[2]), row[3] == "t", lowering_of(row[4])});
      }
    }
    asio::post(reply_to, [done, out = std::move(out)] { done(out); });
  };
  auto begin = [self = shared_from_this(), database, pid, answer = std::move(answer)] {
    self->ask(database,
              {in_text("SELECT resource, token, mark, raising, lowering FROM fencegate.ended($1::pg_catalog.int4)",
                       {std::to_string(pid)})},
              answer);
  };
  asio::post(context_, std::move(begin));
}

void pg_control::look(asio::io_context& reply_to, const std::string& database, const claims& of, look_callback done) {
  std::vector<std::string> names;
  for (const auto& c : of) names.push_back(c.resource);
  auto answer = [&reply_to, done = std::move(done)](const pg_result& rows) {
    std::optional<found_marks> out;
    if (rows) {
      out.emplace();
      for (const auto& one : looked_marks(*rows))
        if (one.mark) out->push_back({one.resource, *one.mark, one.lowering});
    }
    asio::post(reply_to, [done, out = std::move(out)] { done(out); });
  };
  auto begin = [self = shared_from_this(), database, names = std::move(names), answer = std::move(answer)] {
    self->ask(database, {look_statement(names)}, answer);
  };
  asio::post(context_, std::move(begin));
}

void pg_control::raise(asio::io_context& reply_to, const std::string& database, const claims& wanted,
                       pg_raises::has_left left, raise_callback done) {
  auto answer = to_raise(reply_to, wanted, std::move(done));
  // Marks that are at their tokens already need no raise: a look proves it as well, and waits for nobody. Nor does one that
  // is higher already need one.
  auto looked = [self = shared_from_this(), database, wanted, left = std::move(left),
                 answer = std::move(answer)](const pg_result& rows) {
    if (!rows || raised_of(rows, wanted)) return answer(rows);
    if (const auto stale = stale_of(wanted, *rows)) return answer(*stale);
    auto* one = self->at(database);
    if (one == nullptr) return answer(wire::pg_error{"ERROR", {}, "the gate is stopping", {}, {}});
    one->raises->raise(wanted, raise_statements(wanted, self->gate_.policy.max_step), left, answer);
  };
  auto begin = [self = shared_from_this(), database, wanted, looked = std::move(looked)] {
    self->ask(
        database,
        whatever_was_set(in_text("SELECT resource, mark, false, 0, lowering FROM fencegate.look($1::pg_catalog.text[])",
                                 {resources_of(wanted)})),
        looked);
  };
  asio::post(context_, std::move(begin));
}

void pg_control::raise_ahead(asio::io_context& reply_to, const std::string& database, const claims& wanted,
                             raise_callback done) {
  auto answer = to_raise(reply_to, wanted, std::move(done));
  auto begin = [self = shared_from_this(), database, wanted, answer = std::move(answer)] {
    const wire::pg_error not_free{"ERROR", {}, "the gate's own connection is not free", {}, {}};
    auto* one = self->at(database);
    if (one == nullptr) return answer(not_free);
    auto& by = one->raising;
    if (by.link == nullptr) by = self->unconnected();
    if (one->own.link->connected()) self->keep_connected(*one, by);
    if (!by.link->idle()) return answer(not_free);
    by.link->transaction(raise_statements(wanted, self->gate_.policy.max_step)(self->gate_.cut_timeout), answer);
  };
  asio::post(context_, std::move(begin));
}

}  // namespace fencegate::backend
