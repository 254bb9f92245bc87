#include "admin/metrics_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <ctime>
#include <set>
#include <sstream>
#include <vector>

namespace fencegate::admin {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

std::vector<std::string> lines_of(const std::string& page) {
  std::istringstream all(page);
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

// The value of the only sample that is called `name` and has no labels.
double sample(const std::string& page, const std::string& name) {
  for (const std::string& line : lines_of(page)) {
    if (line.rfind(name + " ", 0) == 0) return std::stod(line.substr(name.size() + 1));
  }
  ADD_FAILURE() << name << " is missing";
  return -1;
}

class MetricsPage : public testing::Test {
 protected:
  MetricsPage() { process.gates.push_back(std::make_unique<metrics::gate>("cache")); }
  metrics::gate& cache() { return *process.gates[0]; }
  std::vector<std::string> lines() { return lines_of(metrics_page(process)); }

  metrics::process process;
};

// The contract with users' dashboards: a change here is a breaking change.
TEST_F(MetricsPage, HasExactlyTheDocumentedFamilies) {
  std::set<std::string> types;
  for (const std::string& line : lines()) {
    if (line.rfind("# TYPE ", 0) == 0) types.insert(line.substr(7));
  }
  EXPECT_EQ(types, (std::set<std::string>{
                       "fencegate_admin_tls_files_refused_total counter",
                       "fencegate_admin_tls_rejected_total counter",
                       "fencegate_backend_seconds histogram",
                       "fencegate_backend_up gauge",
                       "fencegate_build_info gauge",
                       "fencegate_certificate_expires_seconds gauge",
                       "fencegate_log_lines_dropped_total counter",
                       "fencegate_log_lines_queued gauge",
                       "fencegate_check_duration_seconds histogram",
                       "fencegate_checks_total counter",
                       "fencegate_config_generation gauge",
                       "fencegate_config_last_reload_success_timestamp_seconds gauge",
                       "fencegate_connections gauge",
                       "fencegate_connections_rejected_total counter",
                       "fencegate_tls_files_refused_total counter",
                       "fencegate_connections_total counter",
                       "fencegate_connections_waiting gauge",
                       "fencegate_draining gauge",
                       "fencegate_forwards_overtaken_total counter",
                       "fencegate_clients_left_total counter",
                       "fencegate_http_responses_total counter",
                       "fencegate_overhead_seconds histogram",
                       "fencegate_protocol_errors_total counter",
                       "fencegate_raises_total counter",
                       "fencegate_regressions_total counter",
                       "fencegate_reloads_total counter",
                       "fencegate_requests_total counter",
                       "fencegate_sessions_cut_total counter",
                       "fencegate_shared_writes_total counter",
                       "fencegate_store_connections gauge",
                       "fencegate_store_up gauge",
                       "fencegate_store_waiting gauge",
                       "fencegate_takeover_seconds histogram",
                       "fencegate_unknown_outcomes_total counter",
                       "process_cpu_seconds_total counter",
                       "process_max_fds gauge",
                       "process_open_fds gauge",
                       "process_resident_memory_bytes gauge",
                       "process_start_time_seconds gauge",
                   }));
}

TEST_F(MetricsPage, ShowsEachValueUnderItsOwnLabel) {
  auto count = [n = 0](metrics::counter& c) mutable { c.add(static_cast<std::uint64_t>(++n)); };
  for (auto& c : cache().requests_total) count(c);
  for (auto& c : cache().checks_total) count(c);
  for (auto& c : cache().connections_rejected_total) count(c);
  for (auto& c : cache().protocol_errors_total) count(c);
  const auto all = lines();
  int n = 0;
  for (const char* value : {"read", "write", "other"}) {
    EXPECT_THAT(all, Contains("fencegate_requests_total{gate=\"cache\",class=\"" + std::string(value) + "\"} " +
                              std::to_string(++n)));
  }
  for (const char* value :
       {"admitted", "raised", "stale", "missing", "malformed", "equal", "jump", "unavailable", "refused", "unknown"}) {
    EXPECT_THAT(all, Contains("fencegate_checks_total{gate=\"cache\",outcome=\"" + std::string(value) + "\"} " +
                              std::to_string(++n)));
  }
  for (const char* value : {"limit", "backend", "files", "lease", "tls"}) {
    EXPECT_THAT(all, Contains("fencegate_connections_rejected_total{gate=\"cache\",reason=\"" + std::string(value) +
                              "\"} " + std::to_string(++n)));
  }
  for (const char* value : {"client", "backend"}) {
    EXPECT_THAT(all, Contains("fencegate_protocol_errors_total{gate=\"cache\",side=\"" + std::string(value) + "\"} " +
                              std::to_string(++n)));
  }
}

TEST_F(MetricsPage, ShowsTheStoresOfAnHttpGate) {
  auto& api = *process.gates.emplace_back(std::make_unique<metrics::gate>("api"));
  api.speaks_http = true;
  api.note_backend("ledger", "connection refused");
  api.note_backend("cache", "");
  cache().note_backend("", "");
  auto& pool = *api.pools.emplace_back(std::make_unique<metrics::pool>("ledger"));
  pool.idle.set(3);
  pool.busy.set(7);
  pool.waiting.set(2);
  pool.beside.set(1);
  api.left(metrics::left_client::awaited).add(6);
  api.responses_total[3].add(5);
  api.unknown_total.add(4);
  const auto all = lines();
  EXPECT_THAT(all, Contains("fencegate_store_up{gate=\"api\",store=\"ledger\"} 0"));
  EXPECT_THAT(all, Contains("fencegate_store_up{gate=\"api\",store=\"cache\"} 1"));
  EXPECT_THAT(all, Contains("fencegate_store_connections{gate=\"api\",store=\"ledger\",state=\"idle\"} 3"));
  EXPECT_THAT(all, Contains("fencegate_store_connections{gate=\"api\",store=\"ledger\",state=\"busy\"} 7"));
  EXPECT_THAT(all, Contains("fencegate_store_connections{gate=\"api\",store=\"ledger\",state=\"beside\"} 1"));
  EXPECT_THAT(all, Contains("fencegate_clients_left_total{gate=\"api\",outcome=\"awaited\"} 6"));
  EXPECT_THAT(all, Contains("fencegate_store_waiting{gate=\"api\",store=\"ledger\"} 2"));
  EXPECT_THAT(all, Contains("fencegate_http_responses_total{gate=\"api\",class=\"5xx\"} 5"));
  EXPECT_THAT(all, Contains("fencegate_unknown_outcomes_total{gate=\"api\"} 4"));
  for (const auto& line : all) {
    EXPECT_EQ(line.find("fencegate_http_responses_total{gate=\"cache\""), std::string::npos);
    EXPECT_EQ(line.find("fencegate_store_up{gate=\"cache\""), std::string::npos);
  }
}

TEST_F(MetricsPage, ShowsTheStateOfEachWriter) {
  process.leased = std::make_unique<metrics::leases>();
  for (const auto* name : {"app", "jobs"}) process.leased->writers.push_back(std::make_unique<metrics::writer>(name));
  process.leased->writers[1]->in_state[2].set(1);
  EXPECT_THAT(lines(), Contains("fencegate_writer_state{writer=\"jobs\",state=\"holding\"} 1"));
  EXPECT_THAT(lines(), Contains("fencegate_writer_state{writer=\"app\",state=\"lost\"} 0"));
}

TEST_F(MetricsPage, ShowsPlainCountersAndGaugesPerGate) {
  process.gates.push_back(std::make_unique<metrics::gate>("db"));
  cache().connections.add(7);
  cache().connections_total.add(8);
  cache().raises_total.add(9);
  cache().sessions_cut_total.add(10);
  cache().forwards_overtaken_total.add(12);
  cache().regressions_total.add(11);
  cache().shared_writes_total.add(13);
  process.gates[1]->backend_up.set(1);
  const auto all = lines();
  EXPECT_THAT(all, Contains("fencegate_connections{gate=\"cache\"} 7"));
  EXPECT_THAT(all, Contains("fencegate_connections_total{gate=\"cache\"} 8"));
  EXPECT_THAT(all, Contains("fencegate_raises_total{gate=\"cache\"} 9"));
  EXPECT_THAT(all, Contains("fencegate_sessions_cut_total{gate=\"cache\"} 10"));
  EXPECT_THAT(all, Contains("fencegate_regressions_total{gate=\"cache\"} 11"));
  EXPECT_THAT(all, Contains("fencegate_forwards_overtaken_total{gate=\"cache\"} 12"));
  EXPECT_THAT(all, Contains("fencegate_shared_writes_total{gate=\"cache\"} 13"));
  EXPECT_THAT(all, Contains("fencegate_backend_up{gate=\"cache\"} 0"));
  EXPECT_THAT(all, Contains("fencegate_backend_up{gate=\"db\"} 1"));
  EXPECT_THAT(all, Contains("fencegate_connections{gate=\"db\"} 0"));
}

TEST_F(MetricsPage, ShowsDrainingAndTheVersion) {
  process.draining.set(1);
  const auto all = lines();
  EXPECT_THAT(all, Contains("fencegate_draining 1"));
  EXPECT_THAT(all, Contains("fencegate_build_info{version=\"" FENCEGATE_VERSION "\"} 1"));
}

TEST_F(MetricsPage, BucketsAreCumulativeAndEndWithTheCount) {
  cache().takeover_seconds.observe(20us);
  cache().takeover_seconds.observe(2ms);
  cache().takeover_seconds.observe(1min);
  const auto all = lines();
  const std::string name = "fencegate_takeover_seconds";
  EXPECT_THAT(all, Contains(name + "_bucket{gate=\"cache\",le=\"2.5e-05\"} 1"));
  EXPECT_THAT(all, Contains(name + "_bucket{gate=\"cache\",le=\"0.001\"} 1"));
  EXPECT_THAT(all, Contains(name + "_bucket{gate=\"cache\",le=\"0.0025\"} 2"));
  EXPECT_THAT(all, Contains(name + "_bucket{gate=\"cache\",le=\"10\"} 2"));
  EXPECT_THAT(all, Contains(name + "_bucket{gate=\"cache\",le=\"+Inf\"} 3"));
  EXPECT_THAT(all, Contains(name + "_count{gate=\"cache\"} 3"));
  EXPECT_THAT(all, Contains(name + "_sum{gate=\"cache\"} 60.00202"));
  EXPECT_THAT(all, Contains("fencegate_overhead_seconds_count{gate=\"cache\"} 0"));
}

TEST_F(MetricsPage, HasNoTakeoversOfAGateThatDoesNotTimeThem) {
  process.gates.push_back(std::make_unique<metrics::gate>("api"));
  process.gates[1]->times_takeovers = false;
  const auto all = lines();
  EXPECT_THAT(all, Contains("fencegate_takeover_seconds_count{gate=\"cache\"} 0"));
  EXPECT_THAT(all, Not(Contains(HasSubstr("fencegate_takeover_seconds_count{gate=\"api\"}"))));
  EXPECT_THAT(all, Contains("fencegate_overhead_seconds_count{gate=\"api\"} 0"));
}

TEST_F(MetricsPage, EscapesTheGatesName) {
  process.gates[0] = std::make_unique<metrics::gate>("a\"b\\c\nd");
  EXPECT_THAT(lines(), Contains(R"(fencegate_connections{gate="a\"b\\c\nd"} 0)"));
}

TEST_F(MetricsPage, KnowsTheProcess) {
  const std::string before = metrics_page(process);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const std::string with_pipe = metrics_page(process);
  close(fds[0]);
  close(fds[1]);
  EXPECT_EQ(sample(with_pipe, "process_open_fds"), sample(before, "process_open_fds") + 2);
  EXPECT_GT(sample(before, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(sample(before, "process_cpu_seconds_total"), 0);
  // Two seconds of grace: the kernel gives the time of boot in whole seconds.
  const double now = static_cast<double>(std::time(nullptr));
  EXPECT_LT(sample(before, "process_start_time_seconds"), now + 2);
  EXPECT_GT(sample(before, "process_start_time_seconds"), now - 3600);
}

}  // namespace
}  // namespace fencegate::admin
