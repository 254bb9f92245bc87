#include "admin/metrics_page.hpp"

#include "admin/log_sink.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>

#include <time.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace fencegate::admin {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// In the order of the enums in base/metrics.hpp.
constexpr std::array<std::string_view, metrics::request_classes> class_names{"read", "write", "other"};
constexpr std::array<std::string_view, metrics::check_outcomes> outcome_names{
    "admitted", "raised", "stale", "missing", "malformed", "equal", "jump", "unavailable", "refused", "unknown"};
constexpr std::array<std::string_view, metrics::connection_rejections> rejection_names{"limit", "backend", "files",
                                                                                       "lease", "tls"};
constexpr std::array<std::string_view, metrics::sides> side_names{"client", "backend"};
constexpr std::array<std::string_view, metrics::left_clients> left_names{"given_up", "awaited"};
constexpr std::array<std::string_view, metrics::response_classes> response_names{"2xx", "3xx", "4xx", "5xx"};
constexpr std::array<std::string_view, metrics::lease_states> lease_state_names{"waiting", "held"};
constexpr std::array<std::string_view, metrics::writer_states> writer_state_names{"unknown", "standby", "holding",
                                                                                  "lost"};
constexpr std::array<std::string_view, metrics::grant_outcomes> grant_outcome_names{"granted", "busy", "unreachable",
                                                                                    "refused", "abandoned"};
constexpr std::array<std::string_view, metrics::reload_outcomes> reload_names{"applied", "unchanged", "refused"};
constexpr std::array<std::string_view, metrics::lease_ends> lease_end_names{"expired", "superseded"};

ClientMetric metric_of(const metrics::counter& c) {
  ClientMetric m;
  m.counter.value = static_cast<double>(c.value());
  return m;
}

ClientMetric metric_of(const metrics::gauge& g) {
  ClientMetric m;
  m.gauge.value = static_cast<double>(g.value());
  return m;
}

ClientMetric metric_of(const metrics::histogram& h) {
  ClientMetric m;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i <= metrics::histogram::bounds.size(); ++i) {
    cumulative += h.bucket(i);
    const bool last = i == metrics::histogram::bounds.size();
    m.histogram.bucket.push_back(
        {cumulative, last ? std::numeric_limits<double>::infinity() : metrics::histogram::bounds[i]});
  }
  // From the same reads as the buckets: a count that differs from the +Inf bucket is an invalid histogram.
  m.histogram.sample_count = cumulative;
  m.histogram.sample_sum = h.sum_seconds();
  return m;
}

class page {
 public:
  explicit page(const metrics::process& process) : gates_(metrics::totals_of(process)) {}

  // One value per gate, or for each of which `has` says so.
  template <class Member>
  void per_gate(MetricType type, std::string name, std::string help, Member member,
                bool metrics::gate::*has = nullptr) {
    MetricFamily& family = add(type, "fencegate_" + std::move(name), std::move(help));
    for (const auto& gate : gates_) {
      if (has != nullptr && !((*gate).*has)) continue;
      ClientMetric m = metric_of((*gate).*member);
      m.label = {{"gate", gate->name}};
      family.metric.push_back(std::move(m));
    }
  }

  // One counter per gate and value of `label`.
  template <std::size_t N>
  void per_gate(std::string name, std::string help, std::array<metrics::counter, N> metrics::gate::*member,
                std::string_view label, const std::array<std::string_view, N>& values,
                bool metrics::gate::*has = nullptr) {
    MetricFamily& family = add(MetricType::Counter, "fencegate_" + std::move(name), std::move(help));
    for (const auto& gate : gates_) {
      if (has != nullptr && !((*gate).*has)) continue;
      for (std::size_t i = 0; i < N; ++i) {
        ClientMetric m = metric_of(((*gate).*member)[i]);
        m.label = {{"gate", gate->name}, {std::string(label), std::string(values[i])}};
        family.metric.push_back(std::move(m));
      }
    }
  }

  // Of the stores of HTTP gates.
  void stores_up() {
    MetricFamily& family = add(MetricType::Gauge, "fencegate_store_up", "1 while the store answers the gate.");
    for (const auto& gate : gates_)
      for (const auto& [store, problem] : gate->backends_said().backends) {
        if (store.empty()) continue;
        ClientMetric m;
        m.gauge.value = problem.empty() ? 1 : 0;
        m.label = {{"gate", gate->name}, {"store", store}};
        family.metric.push_back(std::move(m));
      }
  }

  void pools() {
    MetricFamily& connections =
        add(MetricType::Gauge, "fencegate_store_connections", "Connections of a gate's pool to a store in PostgreSQL.");
    for_each_pool(connections, &metrics::pool::idle, {{"state", "idle"}});
    for_each_pool(connections, &metrics::pool::busy, {{"state", "busy"}});
    for_each_pool(connections, &metrics::pool::beside, {{"state", "beside"}});
    for_each_pool(
        add(MetricType::Gauge, "fencegate_store_waiting", "Requests that wait for a connection to the store."),
        &metrics::pool::waiting, {});
  }

  void single(MetricType type, std::string name, std::string help, std::optional<double> value,
              std::vector<ClientMetric::Label> labels = {}) {
    if (!value) return;
    ClientMetric m;
    (type == MetricType::Counter ? m.counter.value : m.gauge.value) = *value;
    m.label = std::move(labels);
    add(type, std::move(name), std::move(help)).metric.push_back(std::move(m));
  }

  // One value of the process.
  template <class Figure>
  void one(MetricType type, std::string name, std::string help, const Figure& value) {
    add(type, std::move(name), std::move(help)).metric.push_back(metric_of(value));
  }

  // One for each value of `label`.
  template <class Figure, std::size_t N>
  void one_for_each(MetricType type, std::string name, std::string help, const std::array<Figure, N>& stats,
                    std::string_view label, const std::array<std::string_view, N>& values) {
    MetricFamily& family = add(type, std::move(name), std::move(help));
    for (std::size_t i = 0; i < N; ++i) {
      ClientMetric m = metric_of(stats[i]);
      m.label = {{std::string(label), std::string(values[i])}};
      family.metric.push_back(std::move(m));
    }
  }

  void per_writer(std::string name, std::string help, const std::vector<std::unique_ptr<metrics::writer>>& writers) {
    if (writers.empty()) return;
    MetricFamily& family = add(MetricType::Gauge, std::move(name), std::move(help));
    for (const auto& one : writers)
      for (std::size_t i = 0; i < metrics::writer_states; ++i) {
        ClientMetric m = metric_of(one->in_state[i]);
        m.label = {{"writer", one->name}, {"state", std::string(writer_state_names[i])}};
        family.metric.push_back(std::move(m));
      }
  }

  void per_file(std::string name, std::string help, const std::map<std::string, std::int64_t>& values) {
    MetricFamily& family = add(MetricType::Gauge, std::move(name), std::move(help));
    for (const auto& [path, value] : values) {
      ClientMetric m;
      m.gauge.value = static_cast<double>(value);
      m.label = {{"file", path}};
      family.metric.push_back(std::move(m));
    }
  }

  [[nodiscard]] std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  void for_each_pool(MetricFamily& family, metrics::gauge metrics::pool::*member,
                     const std::vector<ClientMetric::Label>& more) {
    for (const auto& gate : gates_)
      for (const auto& pool : gate->pools) {
        ClientMetric m = metric_of((*pool).*member);
        m.label = {{"gate", gate->name}, {"store", pool->store}};
        m.label.insert(m.label.end(), more.begin(), more.end());
        family.metric.push_back(std::move(m));
      }
  }

  MetricFamily& add(MetricType type, std::string name, std::string help) {
    MetricFamily family;
    family.name = std::move(name);
    family.help = std::move(help);
    family.type = type;
    return families_.emplace_back(std::move(family));
  }

  const std::vector<std::unique_ptr<metrics::gate>> gates_;
  std::vector<MetricFamily> families_;
};

std::optional<double> resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double total_pages = 0;
  double resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return std::nullopt;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> cpu_seconds() {
  timespec spent{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent) != 0) return std::nullopt;
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

std::optional<double> open_fds() {
  std::error_code failed;
  std::filesystem::directory_iterator at("/proc/self/fd", failed);
  double n = -1;  // the iterator's own
  for (; !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) ++n;
  if (failed) return std::nullopt;
  return n;
}

std::optional<double> max_fds() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return static_cast<double>(limit.rlim_cur);
}

// Seconds since 1970.
std::optional<double> start_time() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  // The second field is the program's name in parentheses, which may hold blanks and parentheses itself.
  const auto after_name = line.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(after_name + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks_after_boot = 0;
  if (!(fields >> ticks_after_boot)) return std::nullopt;

  std::ifstream system("/proc/stat");
  while (std::getline(system, line)) {
    std::istringstream words(line);
    std::string key;
    double boot = 0;
    if (words >> key >> boot && key == "btime")
      return boot + ticks_after_boot / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return std::nullopt;
}

void add_process(page& p, const metrics::process& process) {
  p.single(MetricType::Gauge, "fencegate_draining", "1 from the first SIGTERM or POST /quit on.",
           static_cast<double>(process.draining.value()));
  const auto& configured = process.configured;
  p.one(MetricType::Gauge, "fencegate_config_generation",
        "1 at the start, one more with each configuration that was taken over.", configured.generation);
  p.one_for_each(MetricType::Counter, "fencegate_reloads_total", "How often the configuration was read again.",
                 configured.reloads_total, "outcome", reload_names);
  p.one(MetricType::Gauge, "fencegate_config_last_reload_success_timestamp_seconds",
        "When the configuration was read last, and not refused, in seconds since 1970.", configured.succeeded_at);
  p.one(MetricType::Counter, "fencegate_admin_tls_rejected_total",
        "Peers of the admin listener that were not served through TLS.", process.admin_tls_rejected_total);
  p.one(MetricType::Counter, "fencegate_admin_tls_files_refused_total",
        "New certificates, keys and authorities of the admin listener that could not be used.",
        process.admin_tls_files_refused_total);
  p.per_file("fencegate_certificate_expires_seconds",
             "When the first certificate of the file expires, in seconds since 1970.", process.certificates.at());
  p.single(MetricType::Counter, "fencegate_log_lines_dropped_total", "Log lines that nobody read in time.",
           static_cast<double>(log_lines_dropped()));
  p.single(MetricType::Gauge, "fencegate_log_lines_queued", "Log lines that wait to be written.",
           static_cast<double>(log_lines_queued()));
  p.single(MetricType::Gauge, "fencegate_build_info", "Always 1; the version is in the label.", 1.0,
           {{"version", FENCEGATE_VERSION}});
  p.single(MetricType::Gauge, "process_resident_memory_bytes", "Resident memory in bytes.", resident_bytes());
  p.single(MetricType::Counter, "process_cpu_seconds_total", "User and system CPU time spent in seconds.",
           cpu_seconds());
  p.single(MetricType::Gauge, "process_open_fds", "Open file descriptors.", open_fds());
  p.single(MetricType::Gauge, "process_max_fds", "Largest possible number of open file descriptors.", max_fds());
  p.single(MetricType::Gauge, "process_start_time_seconds", "Start of the process, in seconds since 1970.",
           start_time());
}

void add_traffic(page& p) {
  using metrics::gate;
  p.per_gate(MetricType::Gauge, "connections", "Client connections that are open.", &gate::connections);
  p.per_gate(MetricType::Gauge, "connections_waiting",
             "Client connections whose session at the server is over, and which are told so when they next speak.",
             &gate::connections_waiting);
  p.per_gate(MetricType::Counter, "connections_total", "Client connections accepted.", &gate::connections_total);
  p.per_gate("connections_rejected_total", "Client connections closed at once.", &gate::connections_rejected_total,
             "reason", rejection_names);
  p.per_gate(MetricType::Counter, "tls_files_refused_total",
             "New certificates, keys and authorities of the listener that could not be used.",
             &gate::tls_files_refused_total);
  p.per_gate("requests_total", "Requests from clients.", &gate::requests_total, "class", class_names);
  p.per_gate("protocol_errors_total", "Messages that break the protocol, by who sent them.",
             &gate::protocol_errors_total, "side", side_names);
  p.per_gate(MetricType::Gauge, "backend_up", "1 while the backend answers the gate.", &gate::backend_up);
  p.stores_up();
  p.pools();
  p.per_gate("http_responses_total", "Answers to clients of HTTP gates.", &gate::responses_total, "class",
             response_names, &gate::speaks_http);
  p.per_gate(MetricType::Histogram, "overhead_seconds", "From reading a client's bytes until they were sent on.",
             &gate::overhead_seconds);
  p.per_gate(MetricType::Histogram, "backend_seconds", "From sending to the backend until its next bytes came.",
             &gate::backend_seconds);
  p.per_gate("clients_left_total", "Requests whose client left before the answer.", &gate::clients_left_total,
             "outcome", left_names, &gate::speaks_http);
}

void add_fencing(page& p) {
  using metrics::gate;
  p.per_gate("checks_total", "Checks of a token; in monitor mode, what the outcome would have been.",
             &gate::checks_total, "outcome", outcome_names);
  p.per_gate(MetricType::Histogram, "check_duration_seconds",
             "From sending a check or a raise until its proof was read.", &gate::check_duration_seconds);
  p.per_gate(MetricType::Counter, "unknown_outcomes_total",
             "Requests, or sessions that ended, of which nobody knows what was applied.", &gate::unknown_total);
  p.per_gate(MetricType::Counter, "raises_total", "Marks raised.", &gate::raises_total);
  p.per_gate(MetricType::Counter, "shared_writes_total",
             "Writes and fenced reads that went over a link which several connections use.",
             &gate::shared_writes_total);
  p.per_gate(MetricType::Counter, "sessions_cut_total", "Sessions of superseded holders that were ended.",
             &gate::sessions_cut_total);
  p.per_gate(MetricType::Counter, "forwards_overtaken_total",
             "Forwards that were only checked, and a higher token was admitted before they were answered.",
             &gate::forwards_overtaken_total);
  p.per_gate(MetricType::Histogram, "takeover_seconds",
             "From a new holder's arrival until its mark was raised; of Redis and PostgreSQL gates.",
             &gate::takeover_seconds, &gate::times_takeovers);
  p.per_gate(MetricType::Counter, "regressions_total", "Marks that the backend showed lower than before.",
             &gate::regressions_total);
}

void add_leases(page& p, const metrics::leases& of) {
  p.one_for_each(MetricType::Gauge, "fencegate_leases", "Leases of this process's clients and gates.", of.now, "state",
                 lease_state_names);
  p.one_for_each(MetricType::Counter, "fencegate_lease_grants_total",
                 "What became of clients' wishes for a lease; abandoned: the client left before.", of.grants_total,
                 "outcome", grant_outcome_names);
  p.one(MetricType::Counter, "fencegate_lease_renewals_total", "Renewals that were confirmed.", of.renewals_total);
  p.one_for_each(MetricType::Counter, "fencegate_lease_lost_total",
                 "Leases that were lost: not renewed in time, or another's by now.", of.lost_total, "reason",
                 lease_end_names);
  p.one(MetricType::Histogram, "fencegate_handover_seconds",
        "From when a release was heard of until the next holder could act.", of.handover_seconds);
  p.per_writer("fencegate_writer_state", "1 for the state of a writer whose lease gates hold.", of.writers);
}

}  // namespace

std::string metrics_page(const metrics::process& process) {
  page p(process);
  add_traffic(p);
  add_fencing(p);
  if (process.leased) add_leases(p, *process.leased);
  add_process(p, process);
  return p.text();
}

}  // namespace fencegate::admin
