#include "base/metrics.hpp"

#include <algorithm>

namespace fencegate::metrics {
namespace {

constexpr auto bounds_ns = [] {
  std::array<std::int64_t, histogram::bounds.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    // std::lround is not constexpr yet; bounds are positive, so that adding a half rounds.
    all[i] = static_cast<std::int64_t>(histogram::bounds[i] * 1e9 + 0.5);  // NOLINT(bugprone-incorrect-roundings)
  }
  return all;
}();
static_assert(std::is_sorted(bounds_ns.begin(), bounds_ns.end()));

}  // namespace

void histogram::observe(std::chrono::nanoseconds d) {
  // A clock that went backwards must not make the sum shrink: Prometheus would take that for a restart.
  const std::int64_t ns = std::max<std::int64_t>(d.count(), 0);
  // Bounds are inclusive ("le"), so the first bound that is not below the value is its bucket.
  const auto bucket = std::lower_bound(bounds_ns.begin(), bounds_ns.end(), ns) - bounds_ns.begin();
  buckets_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<std::uint64_t>(ns), std::memory_order_relaxed);
}

void histogram::add(const histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i].fetch_add(other.bucket(i), std::memory_order_relaxed);
  sum_ns_.fetch_add(other.sum_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void gate::add_counts(const gate& other) {
  const auto add = [&](auto gate::*figure) { (this->*figure).add((other.*figure).value()); };
  const auto add_each = [&](auto gate::*stats) {
    for (std::size_t i = 0; i < (this->*stats).size(); ++i) (this->*stats)[i].add((other.*stats)[i].value());
  };
  for (const auto figure :
       {&gate::connections_total, &gate::tls_files_refused_total, &gate::raises_total, &gate::shared_writes_total,
        &gate::sessions_cut_total, &gate::forwards_overtaken_total, &gate::regressions_total, &gate::unknown_total})
    add(figure);
  add_each(&gate::connections_rejected_total);
  add_each(&gate::requests_total);
  add_each(&gate::checks_total);
  add_each(&gate::protocol_errors_total);
  add_each(&gate::responses_total);
  add_each(&gate::clients_left_total);
  for (const auto figure :
       {&gate::check_duration_seconds, &gate::overhead_seconds, &gate::backend_seconds, &gate::takeover_seconds})
    (this->*figure).add(other.*figure);
}

void gate::add_now(const gate& other) {
  connections.add(other.connections.value());
  connections_waiting.add(other.connections_waiting.value());
  for (const auto& one : other.pools) {
    auto at = std::ranges::find_if(pools, [&](const auto& known) { return known->store == one->store; });
    if (at == pools.end()) at = pools.insert(at, std::make_unique<pool>(one->store));
    for (const auto figure : {&pool::idle, &pool::busy, &pool::beside, &pool::waiting})
      ((**at).*figure).add(((*one).*figure).value());
  }
}

std::unique_ptr<gate> gate::with(const std::vector<std::shared_ptr<gate>>& others) const {
  auto out = std::make_unique<gate>(name);
  out->times_takeovers = times_takeovers;
  out->speaks_http = speaks_http;
  out->backend_up.set(backend_up.value());
  out->said_ = backends_said();
  out->add_counts(*this);
  out->add_now(*this);
  for (const auto& one : others) {
    if (one.get() == this || one->name != name) continue;
    out->add_counts(*one);
    out->add_now(*one);
  }
  return out;
}

std::vector<std::unique_ptr<gate>> totals_of(const process& of) {
  std::vector<std::unique_ptr<gate>> out;
  for (const auto& one : of.gates) out.push_back(one->with(of.former));
  for (const auto& one : of.former)
    if (std::ranges::none_of(out, [&](const auto& known) { return known->name == one->name; }))
      out.push_back(one->with(of.former));
  return out;
}

configuration::configuration() {
  generation.set(1);
  succeeded_at.set(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
}

void gate::note_backend(std::string_view name, std::string_view problem) {
  const std::lock_guard lock(backends_mutex_);
  auto at = said_.backends.find(name);
  if (at == said_.backends.end()) at = said_.backends.emplace(name, "").first;
  at->second = problem;
  backend_up.set(std::ranges::all_of(said_.backends, [](const auto& one) { return one.second.empty(); }) ? 1 : 0);
}

void gate::note_database(const std::string& name, const std::string& problem) {
  const std::lock_guard lock(backends_mutex_);
  if (problem.empty())
    said_.databases.erase(name);
  else
    said_.databases[name] = problem;
}

gate::said gate::backends_said() const {
  const std::lock_guard lock(backends_mutex_);
  return said_;
}

}  // namespace fencegate::metrics
