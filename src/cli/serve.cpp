#include "cli/serve.hpp"

#include "admin/admin_server.hpp"
#include "admin/log_sink.hpp"
#include "admin/status_board.hpp"
#include "admin/status_desk.hpp"
#include "backend/load_libpq.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "cli/examination.hpp"
#include "cli/gate_facts.hpp"
#include "cli/service_manager.hpp"
#include "cli/sidecar_leases.hpp"
#include "gate/http/http_marks.hpp"
#include "gate/http/http_server.hpp"
#include "gate/postgres/pg_server.hpp"
#include "gate/redis/redis_server.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/resource.h>

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

constexpr std::chrono::seconds hazards_asked_after{3};

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds watch_interval{100};

// The first SIGTERM: not ready at once, and each connection ends at its next boundary; those at rest are at one. Where
// there were any, the application in this pod may be finishing its own work: for a fifth of the drain time, new ones are
// accepted and served. The process ends when its last client has left, at the latest when the drain time is over. Then what
// its gates have held is released. A second
// SIGTERM ends at once.
class drain_watch {
 public:
  drain_watch(asio::io_context& io, milliseconds limit, metrics::process& figures,
              const std::vector<std::unique_ptr<gate::server>>& gates, sidecar_leases& leases)
      : io_(io), limit_(limit), figures_(figures), gates_(gates), leases_(leases), timer_(io) {}

  void begin() {
    if (figures_.draining.value() != 0) {
      log::write(log::level::warn, "stopping at once");
      io_.stop();
      return;
    }
    log::write(log::level::info, "draining",
               {{"seconds", std::chrono::duration_cast<std::chrono::seconds>(limit_).count()}});
    figures_.draining.set(1);
    began_ = clock::now();
    accepts_for_ = empty() ? watch_interval : limit_ / 5;
    for (const auto& one : gates_) one->drain();
    leases_.drain();
    tell_stopping(limit_);
    watch();
  }

 private:
  void watch() {
    const auto passed = clock::now() - began_;
    if (passed >= limit_ || (empty() && passed >= accepts_for_)) {
      if (!empty()) log::write(log::level::warn, "drain_timeout reached; closing what is left");
      io_.stop();
      return;
    }
    if (passed >= accepts_for_ && std::exchange(accepting_, false))
      for (const auto& one : gates_) one->stop_accepting();
    timer_.expires_after(watch_interval);
    auto again = [this](const boost::system::error_code& cancelled) {
      if (!cancelled) watch();
    };
    timer_.async_wait(again);
  }

  [[nodiscard]] bool empty() const {
    return std::all_of(gates_.begin(), gates_.end(), [](const auto& g) { return g->connections() == 0; });
  }

  asio::io_context& io_;
  const milliseconds limit_;
  metrics::process& figures_;
  const std::vector<std::unique_ptr<gate::server>>& gates_;
  sidecar_leases& leases_;
  asio::steady_timer timer_;
  clock::time_point began_;
  milliseconds accepts_for_{};
  bool accepting_ = true;
};

// Each client takes two file descriptors, one of them to its backend: as many as the system lets the process have.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &files));
}

bool needs_postgres(const settings::process& config) {
  const auto in_postgres = [](const settings::mark_store& one) {
    return one.speaks == settings::mark_store::kind::postgres;
  };
  const auto keeps_marks_there = [&](const settings::http_gate& one) {
    return std::ranges::any_of(one.stores, in_postgres);
  };
  return !config.postgres_gates.empty() || std::ranges::any_of(config.http_gates, keeps_marks_there);
}

// The marks of a gate with seal: admin, at the admin listener. REQUIRES: they live on this context's thread.
admin::marks_service marks_service_of(std::unique_ptr<gate::http_marks_desk> made) {
  return [desk = std::shared_ptr<gate::http_marks_desk>(std::move(made))](
             const admin::marks_request& asked, std::function<void(admin::page_answer)> done) {
    auto on_answer = [done = std::move(done)](gate::http_marks_desk::answer given) {
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

// What the gates meet is put on the board, which lives longer. REQUIRES: no thread runs yet.
void show_on(admin::status_board& board, metrics::process& figures, gate::rejection_log& rejections) {
  using wall = std::chrono::system_clock;
  for (const auto& one : figures.gates)
    one->on_rise = [&board, &gate = one->name](std::string_view resource, std::int64_t mark, bool first) {
      board.note_rise(gate, resource, mark, first, wall::now());
    };
  rejections.hear_of_all([&board](const gate::rejection_log::told& one) {
    const auto number_of = [](const std::optional<fence::token>& token) {
      return token ? std::optional(token->value()) : std::nullopt;
    };
    admin::rejection_seen seen;
    seen.at = wall::now() - std::chrono::duration_cast<wall::duration>(clock::now() - one.at);
    seen.count = one.count;
    seen.gate = one.gate;
    seen.resource = one.why.resource;
    seen.token = number_of(one.why.presented);
    seen.mark = number_of(one.why.mark);
    seen.why = one.why.why;
    seen.client = one.client;
    seen.command = one.command;
    seen.detail = one.why.detail;
    seen.trace = one.trace;
    seen.monitor = one.monitor;
    board.note_rejections(std::move(seen));
  });
}

// Before anything is bound, or begun at a server. Errors: there is a hazard, or a server could not be asked.
result<void> check_strictly(const settings::process& config) {
  if (!config.strict) return {};
  const auto report = examine(config);
  log_hazards(report);
  if (const auto hazards = report.hazards(); hazards > 0)
    return error{"strict: true, and there " +
                 (hazards == 1 ? "is 1 hazard" : "are " + std::to_string(hazards) + " hazards")};
  if (const auto servers = report.unreached(); !servers.empty())
    return error{"strict: true, and it is not known what is hazardous in " + servers};
  return {};
}

}  // namespace

int serve(const settings::process& config) {
  admin::install_log_sink(config.level, config.format);
  std::signal(SIGPIPE, SIG_IGN);
  // What reloads or reopens other programs must not end this one without a drain.
  for (const int meant_for_others : {SIGHUP, SIGUSR1, SIGUSR2}) std::signal(meant_for_others, SIG_IGN);
  raise_file_limit();
  // Buffers of large values go back to the system when they are freed.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  mallopt(M_TRIM_THRESHOLD, 256 * 1024);

  for (const auto& one : config.warnings) log::write(log::level::warn, "configuration", {{"detail", one}});

  const auto fail = [](const std::string& message) {
    log::write(log::level::error, "cannot start", {{"detail", message}});
    return 1;
  };
  if (const auto checked = check_strictly(config); !checked) return fail(checked.error().message);

  admin::status_board board;
  metrics::process figures;
  for (const auto& one : config.redis_gates) figures.gates.push_back(std::make_unique<metrics::gate>(one.name));
  for (const auto& one : config.postgres_gates) figures.gates.push_back(std::make_unique<metrics::gate>(one.name));
  for (const auto& one : config.http_gates) {
    figures.gates.push_back(std::make_unique<metrics::gate>(one.name));
    figures.gates.back()->times_takeovers = false;
    figures.gates.back()->speaks_http = true;
  }
  gate::rejection_log rejections;
  gate::workers workers(config.threads, std::chrono::microseconds(config.busy_poll_us));
  std::vector<std::unique_ptr<gate::server>> gates;
  asio::io_context io(1);
  sidecar_leases leases(io, config, figures);
  if (!config.leased.writers.empty())  // whose gates hold leases
    rejections.hear_of_stale(
        [&leases](std::string_view gate, const fence::rejection& why) { leases.superseded(gate, why); });
  if (config.admin_enabled) show_on(board, figures, rejections);
  drain_watch drain(io, config.drain_timeout, figures, gates, leases);

  if (needs_postgres(config))
    if (const auto& loaded = backend::load_libpq(); !loaded) return fail(loaded.error().message);
  std::size_t next = 0;  // of the figures, which stand in the same order
  for (const auto& one : config.redis_gates)
    gates.push_back(gate::make_redis_server(workers, one, *figures.gates[next++], rejections));
  for (const auto& one : config.postgres_gates)
    gates.push_back(gate::make_pg_server(workers, one, *figures.gates[next++], rejections));
  admin::marks_service marks;
  for (const auto& one : config.http_gates) {
    auto& counted = *figures.gates[next++];
    const auto stores = std::make_shared<gate::http_store_set>(workers, one, counted);
    auto plan = gate::plan_routes(one);
    if (plan.has_error()) return fail("gate " + one.name + ": " + plan.error().message);
    gates.push_back(gate::make_http_server(workers, one, *plan, stores, counted, rejections));
    if (one.seal == settings::http_seal::admin)
      marks = marks_service_of(std::make_unique<gate::http_marks_desk>(
          std::make_unique<gate::http_session_stores>(stores, io), one, std::move(*plan), counted, rejections));
  }
  for (const auto& one : gates)
    if (const auto started = one->start(); started.has_error()) return fail(started.error().message);
  admin::status_desk status(io, gate_facts_of(config), figures, board, [&leases] { return leases.status(); });
  admin::admin_server admin(io, config.admin, figures, [&drain] { drain.begin(); });
  admin.serve_marks(std::move(marks));
  admin.serve_status(status);
  if (config.admin_enabled) {
    if (const auto started = admin.start(); started.has_error()) return fail(started.error().message);
    status.start();
  }

  if (const auto started = leases.start(gates); started.has_error()) return fail(started.error().message);

  // Behind the gates' own connections: a server may have room for no more than these.
  const auto hazards = std::make_shared<examination>(io, config);
  asio::steady_timer when_settled(io, hazards_asked_after);
  auto ask = [&](const boost::system::error_code& cancelled) {
    if (!cancelled && !config.strict) hazards->start(log_hazards);
  };
  when_settled.async_wait(std::move(ask));

  asio::signal_set signals(io, SIGTERM, SIGINT);
  std::function<void()> wait_signal = [&] {
    auto on_signal = [&](const boost::system::error_code& cancelled, int) {
      if (cancelled) return;
      drain.begin();
      wait_signal();
    };
    signals.async_wait(on_signal);
  };
  wait_signal();

  workers.start();
  figures.ready = true;
  tell_ready();
  io.run();
  workers.stop();
  gates.clear();  // and with them all connections
  leases.release();
  rejections.flush(clock::now());
  log::write(log::level::info, "stopped");
  return 0;
}

}  // namespace fencegate::cli
