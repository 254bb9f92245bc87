#include "cli/certificates.hpp"

#include "backend/tls_files.hpp"
#include "base/log.hpp"
#include "cli/config_url.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

namespace fencegate::cli {
namespace {

constexpr std::chrono::minutes looked_at_each{1};
constexpr std::time_t told_each_seconds = 24 * 3'600;

}  // namespace

std::vector<named_certificate> certificates_of(const settings::process& config) {
  std::vector<named_certificate> out;
  const auto add = [&](const std::string& where, const std::string& path) {
    if (!path.empty()) out.push_back({where, path});
  };
  const auto add_gates = [&](const auto& gates) {
    for (const auto& one : gates) {
      add("gate:" + one.name, one.shown.certificate);
      add("gate:" + one.name, one.secured.certificate);
    }
  };
  if (config.admin_enabled) add("admin", config.admin_shown.certificate);
  for (const auto& one : config.stores)
    if (const auto url = parse_store_url(one)) add("store:" + one.name, url->secured.certificate);
  add_gates(config.redis_gates);
  add_gates(config.postgres_gates);
  add_gates(config.http_gates);
  std::ranges::stable_sort(out, {}, &named_certificate::path);
  const auto twice = std::ranges::unique(out, {}, &named_certificate::path);
  out.erase(twice.begin(), twice.end());
  return out;
}

void certificate_watch::show(const settings::process& config) {
  all_ = certificates_of(config);
  look();
}

void certificate_watch::look() {
  const auto now = std::time(nullptr);
  std::map<std::string, std::int64_t> expire_at;
  for (const auto& [where, path] : all_) {
    if (const auto found = backend::validity_of(path)) expire_at[path] = found->until;
    const auto problem = backend::validity_problem(path, now);
    auto& told = told_[path];
    if (problem.empty() || now - told < told_each_seconds) continue;
    told = now;
    log::write(log::level::warn, "certificate", {{"where", where}, {"file", path}, {"detail", problem}});
  }
  stats_.certificates.set(std::move(expire_at));
  if (all_.empty()) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(looked_at_each);
  timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) look();
  });
}

}  // namespace fencegate::cli
