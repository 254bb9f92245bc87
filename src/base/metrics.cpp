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
