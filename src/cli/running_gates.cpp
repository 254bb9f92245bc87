#include "cli/running_gates.hpp"

#include "backend/load_libpq.hpp"
#include "base/address_text.hpp"
#include "base/log.hpp"
#include "gate/http/http_server.hpp"
#include "gate/postgres/pg_server.hpp"
#include "gate/redis/redis_server.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;

const error about_to_end{"the process is about to end"};

bool needs_postgres(const settings::http_gate& gate) {
  return std::ranges::any_of(gate.stores,
                             [](const auto& one) { return one.speaks == settings::mark_store::kind::postgres; });
}

template <class All>
bool contains(const All& all, const auto& one) {
  return std::ranges::find(all, one) != all.end();
}

}  // namespace

running_gates::running_gates(asio::io_context& io, gate::workers& threads, metrics::process& stats,
                             gate::rejection_log& rejections, std::function<void(metrics::gate&)> prepare)
    : io_(io), workers_(threads), stats_(stats), rejections_(rejections), prepare_(std::move(prepare)) {}

// ── units ───────────────────────────────────────────────────────────────────────────────────────────────────────────

std::vector<running_gates::gate_settings> running_gates::gates_of(const settings::process& config) {
  std::vector<gate_settings> out;
  out.insert(out.end(), config.redis_gates.begin(), config.redis_gates.end());
  out.insert(out.end(), config.postgres_gates.begin(), config.postgres_gates.end());
  out.insert(out.end(), config.http_gates.begin(), config.http_gates.end());
  return out;
}

const std::string& running_gates::name_of(const gate_settings& one) {
  return std::visit([](const auto& gate) -> const std::string& { return gate.name; }, one);
}

running_gates::unit_ptr running_gates::unit_of(std::string_view name) const {
  const auto at = std::ranges::find_if(units_, [&](const auto& one) { return one->server->name() == name; });
  return at == units_.end() ? nullptr : *at;
}

// Those of the units of this name that still have sessions, whether they are served or were.
std::shared_ptr<gate::cancel_routes> running_gates::cancels_of(std::string_view name) const {
  for (const auto* list : {&units_, &retired_})
    for (const auto& one : *list)
      if (one->server->name() == name) return one->cancels;
  return std::make_shared<gate::cancel_routes>();
}

result<running_gates::unit_ptr> running_gates::make(const gate_settings& wanted) {
  const auto& name = name_of(wanted);
  auto out = std::make_shared<unit>();
  out->on = std::make_shared<ground>(wanted, name);
  out->on->stats.whole = out->on;
  prepare_(out->on->stats);
  out->cancels = cancels_of(name);
  const auto made = std::visit([&](const auto& gate) { return make_server(*out, gate); }, out->on->settings);
  if (!made) return error{"gate " + name + ": " + made.error().message};
  return out;
}

result<void> running_gates::make_server(unit& of, const settings::redis_gate& gate) {
  of.server = gate::make_redis_server(workers_, gate, of.on->stats, rejections_);
  return {};
}

result<void> running_gates::make_server(unit& of, const settings::postgres_gate& gate) {
  if (auto loaded = backend::load_libpq(); !loaded) return error{loaded.error().message};
  of.server = gate::make_pg_server(workers_, gate, of.on->stats, rejections_, of.cancels);
  return {};
}

result<void> running_gates::make_server(unit& of, const settings::http_gate& gate) {
  auto& stats = of.on->stats;
  stats.times_takeovers = false;
  stats.speaks_http = true;
  if (needs_postgres(gate))
    if (auto loaded = backend::load_libpq(); !loaded) return error{loaded.error().message};
  auto plan = gate::plan_routes(gate);
  if (!plan) return plan.error();
  const auto stores = std::make_shared<gate::http_store_set>(workers_, gate, stats);
  of.server = gate::make_http_server(workers_, gate, *plan, stores, stats, rejections_);
  if (gate.seal == settings::http_seal::admin)
    of.desk = std::make_shared<gate::http_marks_desk>(std::make_unique<gate::http_session_stores>(stores, io_), gate,
                                                      std::move(*plan), stats, rejections_);
  return {};
}

result<void> running_gates::start(const settings::process& config) {
  for (const auto& one : gates_of(config)) {
    auto made = make(one);
    if (!made) return made.error();
    units_.push_back(std::move(*made));
  }
  show();
  for (const auto& one : units_)
    if (auto started = one->server->start(); !started) return started;
  return {};
}

void running_gates::show() {
  const auto stats_of = [](const unit_ptr& one) { return std::shared_ptr<metrics::gate>(one->on, &one->on->stats); };
  stats_.gates.clear();
  for (const auto& one : units_) stats_.gates.push_back(stats_of(one));
}

// ── another configuration ───────────────────────────────────────────────────────────────────────────────────────────

gate_changes running_gates::compare(const settings::process& next) const {
  gate_changes out;
  std::vector<std::string> names;
  for (const auto& wanted : gates_of(next)) {
    const auto known = unit_of(names.emplace_back(name_of(wanted)));
    auto& list = !known ? out.added : known->on->settings == wanted ? out.unchanged : out.changed;
    list.push_back(names.back());
  }
  for (const auto& one : units_)
    if (!contains(names, one->server->name())) out.removed.push_back(one->server->name());
  return out;
}

void running_gates::change(const settings::process& next, changed done) {
  const auto one = std::make_shared<changing>();
  one->done = std::move(done);
  one->unsettled = 1;  // until all have started
  changing_ = one;
  // Sockets that may be closed by now are not taken over.
  const auto prepared = draining_ ? result<void>(about_to_end) : prepare_change(*one, next);
  auto then = [this, alive = std::weak_ptr(alive_), one, prepared] {
    if (alive.expired() || one != changing_) return;
    if (!prepared)
      give_up(one, prepared.error());
    else
      settle(one);
  };
  asio::post(io_, std::move(then));
}

// The socket of one that goes is taken over, by whatever gate listens there from now on.
result<void> running_gates::prepare_change(changing& to, const settings::process& next) {
  for (const auto& wanted : gates_of(next)) {
    const auto known = unit_of(name_of(wanted));
    if (known && known->on->settings == wanted) {
      to.all.push_back(known);
      continue;
    }
    auto made = make(wanted);
    if (!made) return made.error();
    to.fresh.push_back(*made);
    to.all.push_back(std::move(*made));
  }
  for (const auto& one : units_)
    if (!contains(to.all, one)) to.going.push_back(one);
  for (const auto& one : to.fresh) {
    const auto before = listening_at(to.going, one->server->address());
    auto settled = [this, alive = std::weak_ptr(alive_), &io = io_, to = changing_] {
      asio::post(io, [this, alive, to] {
        if (!alive.expired()) settle(to);
      });
    };
    // One whose address became wider or narrower: both listen until the change is done.
    const bool beside = !before && share_port_of(to.going, one->server->address(), true);
    auto started = one->server->start(before ? before->server.get() : nullptr, std::move(settled), beside);
    if (beside) {
      share_port_of(to.going, one->server->address(), false);
      one->server->share_port(false);
    }
    if (!started) return started;
    ++to.unsettled;
  }
  return {};
}

running_gates::unit_ptr running_gates::listening_at(const std::vector<unit_ptr>& units,
                                                    const settings::address& where) {
  const auto at = std::ranges::find_if(units, [&](const auto& one) { return one->server->address() == where; });
  return at == units.end() ? nullptr : *at;
}

bool running_gates::share_port_of(const std::vector<unit_ptr>& units, const settings::address& where, bool shares) {
  bool any = false;
  for (const auto& one : units) {
    if (one->server->address().is_unix() || !overlap(one->server->address(), where)) continue;
    one->server->share_port(shares);
    any = true;
  }
  return any;
}

void running_gates::settle(const std::shared_ptr<changing>& one) {
  if (one != changing_ || --one->unsettled > 0) return;
  if (draining_) return give_up(one, about_to_end);
  switch_over(one);
}

void running_gates::give_up(const std::shared_ptr<changing>& one, const error& why) {
  for (const auto& made : one->fresh) retire(made);
  end_change();
  one->done(why);
}

// One that has not settled keeps what it would tell.
void running_gates::end_change() {
  const auto one = std::exchange(changing_, nullptr);
  for (auto* list : {&one->all, &one->fresh, &one->going}) list->clear();
}

void running_gates::switch_over(const std::shared_ptr<changing>& one) {
  for (const auto& made : one->fresh) {
    const auto before = listening_at(one->going, made->server->address());
    made->server->go_live(before ? before->server.get() : nullptr);
  }
  for (const auto& former : one->going) {
    stats_.former.emplace_back(former->on, &former->on->stats);
    retire(former);
  }
  units_ = one->all;
  end_change();
  show();
  // Where connections are accepted, this has happened by then.
  asio::post(workers_.context(0), [&io = io_, alive = std::weak_ptr(alive_), done = one->done] {
    asio::post(io, [alive, done] {
      if (!alive.expired()) done({});
    });
  });
}

void running_gates::retire(const unit_ptr& one) {
  retired_.push_back(one);
  one->server->retire([this, alive = std::weak_ptr(alive_), &io = io_, raw = one.get()] {
    asio::post(io, [this, alive, raw] {
      if (!alive.expired()) forget(raw);
    });
  });
}

void running_gates::forget(const unit* gone) {
  const auto at = std::ranges::find_if(retired_, [&](const auto& one) { return one.get() == gone; });
  if (at == retired_.end()) return;  // all were cleared
  const auto* stats = &gone->on->stats;
  const auto shown = std::ranges::find_if(stats_.former, [&](const auto& one) { return one.get() == stats; });
  if (shown != stats_.former.end()) {
    if (const auto now = unit_of(stats->name)) now->on->stats.add_counts(*stats);
    log::write(log::level::info, "the last connection under a former configuration has ended", {{"gate", stats->name}});
    stats_.former.erase(shown);
  }
  retired_.erase(at);
}

// ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────────

gate::server* running_gates::find(std::string_view name) const {
  const auto known = unit_of(name);
  return known ? known->server.get() : nullptr;
}

std::string_view running_gates::protocol_of(std::string_view name) const {
  constexpr std::array<std::string_view, std::variant_size_v<gate_settings>> names{"redis", "postgres", "http"};
  const auto known = unit_of(name);
  return known ? names[known->on->settings.index()] : std::string_view();
}

admin::marks_service running_gates::marks() const {
  const auto at = std::ranges::find_if(units_, [](const auto& one) { return one->desk != nullptr; });
  if (at == units_.end()) return {};
  return [desk = (*at)->desk, server = (*at)->server.get()](const admin::marks_request& asked,
                                                            std::function<void(admin::page_answer)> done) {
    auto on_answer = [done = std::move(done), desk, used = server->in_use()](gate::http_marks_desk::answer given) {
      admin::page_answer out;
      out.status = static_cast<unsigned>(given.status);
      out.content_type = std::move(given.content_type);
      out.body = std::move(given.body);
      out.fencing_mark = std::move(given.mark);
      if (given.status == 405) out.allow = "GET, HEAD, PUT";
      done(std::move(out));
    };
    desk->ask({asked.method, asked.target, asked.host, asked.fields, asked.client}, std::move(on_answer));
  };
}

void running_gates::drain() {
  draining_ = true;
  // Its sockets, which nobody would serve, would go on to take connections.
  if (const auto unsettled = changing_) give_up(unsettled, about_to_end);
  for (const auto* list : {&units_, &retired_})
    for (const auto& one : *list) one->server->drain();
}

void running_gates::stop_accepting() {
  for (const auto* list : {&units_, &retired_})
    for (const auto& one : *list) one->server->stop_accepting();
}

std::int64_t running_gates::connections() const {
  std::int64_t sum = 0;
  for (const auto* list : {&units_, &retired_})
    for (const auto& one : *list) sum += one->server->connections();
  return sum;
}

void running_gates::clear() {
  if (changing_) end_change();
  units_.clear();
  retired_.clear();
}

}  // namespace fencegate::cli
