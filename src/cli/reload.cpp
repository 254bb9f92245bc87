#include "cli/reload.hpp"

#include "backend/tls_files.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "cli/mark_places.hpp"
#include "cli/service_manager.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace fencegate::cli {
namespace {

constexpr std::string_view problem_type = "application/problem+json";
constexpr std::chrono::seconds secrets_looked_at_each{2};

// ── what needs a restart ────────────────────────────────────────────────────────────────────────────────────────────

bool same_place(const settings::process& now, const settings::process& next, const std::string& name) {
  const auto was = postgres_at(now, name), is = postgres_at(next, name);
  if (was.has_value() != is.has_value()) return false;
  if (was) return *was == *is;
  return redis_at(now, name) == redis_at(next, name);
}

// Those that grant leases know the servers in which their tokens are sealed from the start.
void compare_places(const settings::process& now, const settings::process& next, std::vector<std::string>& out) {
  const auto was = all_places(now), is = all_places(next);
  const auto key_of = [](const std::string& place) {
    return place.starts_with("gate:")
               ? "gates: " + std::string(name_in(place)) + ": its server (upstream, timeouts.connect, cut_timeout)"
               : "stores: " + std::string(name_in(place));
  };
  const auto say = [&](const std::string& place, const char* what) {
    out.push_back(key_of(place) + " " + what + ", and with leases in the configuration that needs a restart");
  };
  for (const auto& one : is)
    if (std::ranges::find(was, one) == was.end())
      say(one, "is new");
    else if (!same_place(now, next, one))
      say(one, "has changed");
  for (const auto& one : was)
    if (std::ranges::find(is, one) == is.end()) say(one, "was removed");
}

// Their bond to the writer's lease is one with their server.
template <class Gates>
void compare_lease_gates(const Gates& now, const Gates& next, std::set<std::string>& out) {
  for (const auto& one : next) {
    const auto* before = named(now, one.name);
    if (one.leased.wanted() && (before == nullptr || !(*before == one))) out.insert(one.name);
  }
  for (const auto& one : now) {
    const auto* behind = named(next, one.name);
    if (one.leased.wanted() && (behind == nullptr || !(*behind == one))) out.insert(one.name);
  }
}

// ── what is answered ────────────────────────────────────────────────────────────────────────────────────────────────

admin::page_answer problem_of(unsigned status, std::string_view name, std::string_view title, std::string_view detail,
                              const config_errors& errors = {}) {
  admin::page_answer out;
  out.status = status;
  out.content_type = problem_type;
  json_object problem(out.body);
  problem.add("type", "urn:fencegate:" + std::string(name));
  problem.add("title", title);
  problem.add("status", static_cast<std::int64_t>(status));
  problem.add("detail", detail);
  if (!errors.empty()) {
    problem.name("errors");
    out.body += '[';
    for (const auto& one : errors) {
      if (out.body.back() != '[') out.body += ',';
      json_object told(out.body);
      if (!one.file.empty()) told.add("file", one.file);
      if (one.line != 0) {
        told.add("line", std::int64_t{one.line});
        told.add("column", std::int64_t{one.column});
      }
      told.add("message", one.message);
      told.end();
    }
    out.body += ']';
  }
  problem.end();
  return out;
}

admin::page_answer answer_of(metrics::reload_outcome how, std::int64_t generation, const gate_changes& gates,
                             const std::vector<std::string>& passwords) {
  admin::page_answer out;
  out.content_type = "application/json";
  json_object to(out.body);
  to.add("outcome", how == metrics::reload_outcome::applied ? "applied" : "unchanged");
  to.add("generation", generation);
  to.add_list("added", gates.added);
  to.add_list("changed", gates.changed);
  to.add_list("removed", gates.removed);
  to.add_list("unchanged", gates.unchanged);
  to.add_list("passwords", passwords);
  to.end();
  return out;
}

std::string text_of(const config_error& one) { return one.file.empty() ? one.message : one.to_string(); }

std::string text_of(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& one : names) out += (out.empty() ? "" : ",") + one;
  return out;
}

}  // namespace

std::vector<std::string> needs_restart(const settings::process& now, const settings::process& next) {
  std::vector<std::string> out;
  const auto compare = [&](bool same, const char* key) {
    if (!same) out.push_back(std::string(key) + " has changed: that needs a restart");
  };
  compare(now.threads == next.threads, "threads");
  compare(now.busy_poll_us == next.busy_poll_us, "busy_poll_us");
  compare(now.admin_enabled == next.admin_enabled && now.admin == next.admin && now.admin_shown == next.admin_shown,
          "admin");
  compare(now.leased == next.leased, "leases");
  std::set<std::string> held;
  compare_lease_gates(now.redis_gates, next.redis_gates, held);
  compare_lease_gates(now.postgres_gates, next.postgres_gates, held);
  compare_lease_gates(now.http_gates, next.http_gates, held);
  for (const auto& name : held)
    out.push_back("gates: " + name + ": a gate with the key lease has changed: that needs a restart");
  if (!now.leased.issuers.empty() || !next.leased.issuers.empty()) compare_places(now, next, out);
  return out;
}

bool differs_besides_gates(const settings::process& now, const settings::process& next) {
  return now.strict != next.strict || now.drain_timeout != next.drain_timeout || now.level != next.level ||
         now.format != next.format || now.stores != next.stores;
}

// ── one attempt ─────────────────────────────────────────────────────────────────────────────────────────────────────

struct reloader::attempt {
  settings::process next;
  gate_changes gates;
  std::vector<std::string> passwords;  // of these places, that are other ones now
  answered done;
};

reloader::reloader(boost::asio::io_context& io, configuration_file& file, settings::process now, running_gates& gates,
                   metrics::process& stats, take_over take)
    : io_(io),
      file_(file),
      now_(std::move(now)),
      secrets_(now_),
      gates_(gates),
      stats_(stats),
      take_(std::move(take)),
      look_(io) {}

void reloader::reload_by_signal() {
  once_more_ = at_work_;
  if (!at_work_) reload([](const admin::page_answer&) {});
}

void reloader::reload(answered done) {
  if (is_draining())
    return done(problem_of(409, "draining", "The configuration was not read", "the process is about to end"));
  if (at_work_)
    return done(problem_of(409, "reloading", "The configuration was not read", "it is being read at this moment"));
  backend::read_tls_files_again();
  begin(file_.read(), std::move(done));
}

void reloader::watch_secrets() {
  look_.expires_after(secrets_looked_at_each);
  look_.async_wait([this](const boost::system::error_code& cancelled) {
    if (cancelled || is_draining()) return;
    if (!at_work_ && file_.secrets_have_changed()) {
      log::write(log::level::info, "a file with a secret has changed");
      begin(file_.read_secrets(), [](const admin::page_answer&) {});
    }
    watch_secrets();
  });
}

void reloader::begin(const config_result& read, answered done) {
  at_work_ = true;
  tell_reloading();
  const auto one = std::make_shared<attempt>();
  one->done = std::move(done);
  if (!read) return refuse(one, read.error());
  one->next = *read;
  config_errors errors;
  for (auto& message : needs_restart(now_, one->next)) errors.push_back({file_.path(), 0, 0, std::move(message)});
  if (!errors.empty()) return refuse(one, errors);
  one->gates = gates_.compare(one->next);
  one->passwords = secrets_.different_in(one->next);
  const auto& gates = one->gates;
  const bool same = gates.added.empty() && gates.changed.empty() && gates.removed.empty();
  if (!same || differs_besides_gates(now_, one->next)) return examine_then_change(one);
  if (!one->passwords.empty()) return succeed(one);
  file_.taken_over();
  auto& stats = stats_.configured;
  stats.succeeded_at.set(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  log::write(log::level::info, "the configuration was read again: nothing has changed");
  end(one, metrics::reload_outcome::unchanged,
      answer_of(metrics::reload_outcome::unchanged, stats.generation.value(), gates, {}));
}

// As before the start.
void reloader::examine_then_change(const attempt_ptr& one) {
  if (!one->next.strict) return change(one);
  examining_ = std::make_shared<examination>(io_, one->next);
  examining_->start([this, one](const hazard_report& report) {
    if (const auto checked = judge_strictly(report); !checked) {
      log_hazards(report);
      return refuse(one, {{"", 0, 0, checked.error().message}});
    }
    change(one);
  });
}

void reloader::change(const attempt_ptr& one) {
  gates_.change(one->next, [this, one](const result<void>& changed) {
    if (!changed) return refuse(one, {{"", 0, 0, changed.error().message}});
    succeed(one);
  });
}

void reloader::succeed(const attempt_ptr& one) {
  // A drain that has begun meanwhile keeps its time.
  if (is_draining()) one->next.drain_timeout = now_.drain_timeout;
  now_ = one->next;
  secrets_.take_over(now_);
  file_.taken_over();
  take_(now_);
  for (const auto& warning : now_.warnings) log::write(log::level::warn, "configuration", {{"detail", warning}});
  auto& stats = stats_.configured;
  stats.generation.add(1);
  stats.succeeded_at.set(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  const auto& gates = one->gates;
  log::event()
      .add("generation", stats.generation.value())
      .add("added", text_of(gates.added))
      .add("changed", text_of(gates.changed))
      .add("removed", text_of(gates.removed))
      .add("passwords", text_of(one->passwords))
      .write(log::level::info, "the configuration was taken over");
  end(one, metrics::reload_outcome::applied,
      answer_of(metrics::reload_outcome::applied, stats.generation.value(), gates, one->passwords));
}

void reloader::refuse(const attempt_ptr& one, const config_errors& errors) {
  for (const auto& each : errors)
    log::write(log::level::error, "the configuration was not taken over", {{"detail", text_of(each)}});
  end(one, metrics::reload_outcome::refused,
      problem_of(422, "configuration", "The configuration was not taken over; nothing has changed",
                 text_of(errors.front()), errors));
}

void reloader::end(const attempt_ptr& one, metrics::reload_outcome how, admin::page_answer answer) {
  stats_.configured.reloads(how).add();
  at_work_ = false;
  boost::asio::post(io_, [last = std::exchange(examining_, nullptr)] {});  // which may have called this
  if (!is_draining()) tell_ready();
  one->done(std::move(answer));
  if (std::exchange(once_more_, false)) reload_by_signal();
}

}  // namespace fencegate::cli
