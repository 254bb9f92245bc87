#include "cli/serve.hpp"

#include "admin/admin_server.hpp"
#include "admin/log_sink.hpp"
#include "admin/status_board.hpp"
#include "admin/status_desk.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "cli/certificates.hpp"
#include "cli/examination.hpp"
#include "cli/file_limit.hpp"
#include "cli/gate_facts.hpp"
#include "cli/processor_time.hpp"
#include "cli/reload.hpp"
#include "cli/running_gates.hpp"
#include "cli/service_manager.hpp"
#include "cli/sidecar_leases.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/workers.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <malloc.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <utility>

namespace fencegate::cli {
namespace {

constexpr std::chrono::seconds hazards_asked_after{3};

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds watch_interval{100};
constexpr milliseconds log_flushed_for{1'000};  // at the end, where stderr is not read

// The first SIGTERM: not ready at once, and each connection ends at its next boundary; those at rest are at one. Where
// there were any, the application in this pod may be finishing its own work: for a fifth of the drain time, new ones are
// accepted and served. The process ends when its last client has left, at the latest when the drain time is over. Then what
// its gates have held is released. A second
// SIGTERM ends at once.
class drain_watch {
 public:
  drain_watch(asio::io_context& io, milliseconds limit, metrics::process& stats, running_gates& gates,
              sidecar_leases& leases)
      : io_(io), limit_(limit), stats_(stats), gates_(gates), leases_(leases), timer_(io) {}

  void begin() {
    if (stats_.draining.value() != 0) {
      log::write(log::level::warn, "stopping at once");
      io_.stop();
      return;
    }
    log::write(log::level::info, "draining",
               {{"seconds", std::chrono::duration_cast<std::chrono::seconds>(limit_).count()}});
    stats_.draining.set(1);
    began_ = clock::now();
    accepts_for_ = empty() ? watch_interval : limit_ / 5;
    gates_.drain();
    leases_.drain();
    tell_stopping(limit_);
    watch();
  }

  // REQUIRES: it has not begun, or this is its limit.
  void take(milliseconds limit) { limit_ = limit; }

 private:
  void watch() {
    const auto passed = clock::now() - began_;
    if (passed >= limit_ || (empty() && passed >= accepts_for_)) {
      if (!empty()) log::write(log::level::warn, "drain_timeout reached; closing what is left");
      io_.stop();
      return;
    }
    if (passed >= accepts_for_ && std::exchange(accepting_, false)) gates_.stop_accepting();
    timer_.expires_after(watch_interval);
    auto again = [this](const boost::system::error_code& cancelled) {
      if (!cancelled) watch();
    };
    timer_.async_wait(again);
  }

  [[nodiscard]] bool empty() const { return gates_.connections() == 0; }

  asio::io_context& io_;
  milliseconds limit_;
  metrics::process& stats_;
  running_gates& gates_;
  sidecar_leases& leases_;
  asio::steady_timer timer_;
  clock::time_point began_;
  milliseconds accepts_for_{};
  bool accepting_ = true;
};

// Rejections are put on the board, which lives longer. REQUIRES: no thread runs yet.
void show_on(admin::status_board& board, gate::rejection_log& rejections) {
  using wall = std::chrono::system_clock;
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
  return judge_strictly(report);
}

}  // namespace

int serve(const settings::process& config, configuration_file& file) {
  admin::install_log_sink(config.level, config.format);
  std::signal(SIGPIPE, SIG_IGN);
  // What reopens files of other programs must not end this one without a drain; nor may SIGHUP, before it is awaited below.
  for (const int ignored : {SIGHUP, SIGUSR1, SIGUSR2}) std::signal(ignored, SIG_IGN);
  raise_file_limit();
  // Buffers of large values go back to the system when they are freed.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  mallopt(M_TRIM_THRESHOLD, 256 * 1024);

  for (const auto& one : config.warnings) log::write(log::level::warn, "configuration", {{"detail", one}});
  compare_file_limit(config);

  const auto fail = [](const std::string& message) {
    log::write(log::level::error, "cannot start", {{"detail", message}});
    admin::flush_log(log_flushed_for);
    return 1;
  };
  if (const auto checked = check_strictly(config); !checked) return fail(checked.error().message);

  admin::status_board board;
  metrics::process stats;
  gate::rejection_log rejections;
  const auto busy_poll = config.busy_poll_us ? std::chrono::microseconds(*config.busy_poll_us) : busy_poll_by_itself();
  const auto threads = config.threads ? static_cast<unsigned>(*config.threads) : threads_by_itself();
  gate::workers workers(threads, busy_poll);
  asio::io_context io(1);
  auto show_rises = [&board, shown = config.admin_enabled](metrics::gate& of) {
    if (!shown) return;
    of.on_rise = [&board, &gate = of.name](std::string_view resource, std::int64_t mark, std::uint64_t lowering,
                                           bool first) {
      board.note_rise(gate, resource, {lowering, mark}, first, std::chrono::system_clock::now());
    };
  };
  running_gates gates(io, workers, stats, rejections, show_rises);
  sidecar_leases leases(io, config, stats);
  if (!config.leased.writers.empty())  // whose gates hold leases
    rejections.hear_of_stale(
        [&leases](std::string_view gate, const fence::rejection& why) { leases.superseded(gate, why); });
  if (config.admin_enabled) show_on(board, rejections);
  drain_watch drain(io, config.drain_timeout, stats, gates, leases);

  if (const auto started = gates.start(config); started.has_error()) return fail(started.error().message);
  admin::status_desk status(io, gate_facts_of(config), stats, board, [&leases] { return leases.status(); });
  admin::admin_server admin(io, config.admin, stats, [&drain] { drain.begin(); });
  if (config.admin_shown.wanted()) admin.secure(config.admin_shown);
  admin.serve_marks(gates.marks());
  admin.serve_status(status);
  file.taken_over();
  certificate_watch certificates(io, stats);
  certificates.show(config);
  reloader reloading(io, file, config, gates, stats, [&](const settings::process& now) {
    admin::install_log_sink(now.level, now.format);
    drain.take(now.drain_timeout);
    admin.serve_marks(gates.marks());
    status.show(gate_facts_of(now));
    compare_file_limit(now);
    certificates.show(now);
  });
  admin.serve_reloads([&reloading](auto done) { reloading.reload(std::move(done)); });
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

  asio::signal_set signals(io, SIGTERM, SIGINT, SIGHUP);
  std::function<void()> wait_signal = [&] {
    auto on_signal = [&](const boost::system::error_code& cancelled, int number) {
      if (cancelled) return;
      number == SIGHUP ? reloading.reload_by_signal() : drain.begin();
      wait_signal();
    };
    signals.async_wait(on_signal);
  };
  wait_signal();

  reloading.watch_secrets();
  workers.start();
  stats.ready = true;
  tell_ready();
  io.run();
  workers.stop();
  gates.clear();  // and with them all connections
  leases.release();
  rejections.flush(clock::now());
  log::write(log::level::info, "stopped");
  admin::flush_log(log_flushed_for);
  return 0;
}

}  // namespace fencegate::cli
