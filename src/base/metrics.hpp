// Counters on the hot path: relaxed atomics, no locks, no strings. admin/metrics_page.hpp turns them into the Prometheus
// text format; names and labels there are the contract with users.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::metrics {

class counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class gauge {
 public:
  void add(std::int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(std::int64_t n) { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// Fixed buckets, upper bounds in seconds: 25 µs … 10 s, then +Inf.
class histogram {
 public:
  static constexpr std::array<double, 18> bounds{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3,
                                                 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,  2.5,    5.0,  10.0};
  void observe(std::chrono::nanoseconds d);
  void add(const histogram& other);
  [[nodiscard]] std::uint64_t bucket(std::size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }
  [[nodiscard]] double sum_seconds() const {
    return static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
  }

 private:
  std::array<std::atomic<std::uint64_t>, bounds.size() + 1> buckets_{};  // not cumulative
  std::atomic<std::uint64_t> sum_ns_{0};
};

// When something was seen last.
class moment {
 public:
  void note() { at_.store(since_start(), std::memory_order_relaxed); }
  [[nodiscard]] bool within(std::chrono::steady_clock::duration ago) const {
    const auto at = at_.load(std::memory_order_relaxed);
    return at != never && since_start() - at < ago.count();
  }

 private:
  static std::chrono::steady_clock::rep since_start() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }
  static constexpr std::chrono::steady_clock::rep never = -1;
  std::atomic<std::chrono::steady_clock::rep> at_{never};
};

enum class request_class : std::uint8_t { read, write, other };
inline constexpr std::size_t request_classes = 3;

enum class check_outcome : std::uint8_t {
  admitted,
  raised,
  stale,
  missing,
  malformed,
  equal,
  jump,
  unavailable,
  refused,
  unknown  // HTTP: of what was checked nobody knows whether it was applied; a forward was admitted before
};
inline constexpr std::size_t check_outcomes = 10;

enum class connection_rejection : std::uint8_t { limit, backend, files, lease, tls };
inline constexpr std::size_t connection_rejections = 5;

enum class side : std::uint8_t { client, backend };
inline constexpr std::size_t sides = 2;

// What became of a request whose client left before the answer.
enum class left_client : std::uint8_t {
  given_up,  // the upstream was told by the end of its connection, or had not been asked
  awaited    // a hold: it lasts until the upstream has answered
};
inline constexpr std::size_t left_clients = 2;

inline constexpr std::size_t response_classes = 4;  // 2xx to 5xx

// Connections of an HTTP gate to one of its stores.
struct pool {
  explicit pool(std::string store_name) : store(std::move(store_name)) {}
  const std::string store;
  gauge idle, busy;
  gauge beside;   // beyond the pool's size: each holds marks for a request whose client has left
  gauge waiting;  // requests that wait for one
};

// The stats of one gate's server.
struct gate {
  explicit gate(std::string gate_name) : name(std::move(gate_name)) {}
  const std::string name;
  // What these stats are a part of, with the server's settings, where that may end before the process: kept by whatever may
  // be at work for a moment when the server has gone.
  std::weak_ptr<const void> whole;

  gauge connections;
  gauge connections_waiting;  // PostgreSQL: their session is over, and they have not asked for anything since
  counter connections_total;
  moment files_short;  // a client could not be accepted, for want of file descriptors
  std::array<counter, connection_rejections> connections_rejected_total;
  counter tls_files_refused_total;                      // of its listener: new ones that could not be used
  std::array<counter, request_classes> requests_total;  // rejected ones, too
  std::array<counter, check_outcomes> checks_total;     // in monitor mode: what would have been the outcome
  histogram check_duration_seconds;                     // sending an arm or a raise until its proof was read
  histogram overhead_seconds;                           // from reading a client's bytes until they were sent on
  histogram backend_seconds;                            // from sending to the backend until its next bytes came
  counter raises_total;
  counter shared_writes_total;  // Redis: went over a link that several connections use; with fenced reads
  counter sessions_cut_total;
  counter forwards_overtaken_total;  // HTTP, only checked: a higher token was admitted before the answer had come
  histogram takeover_seconds;
  bool times_takeovers = true;  // not HTTP: there marks rise inside of what a request does; set before the first thread
  counter regressions_total;
  gauge backend_up;  // 1 or 0; where there are several backends, 1 while all of them are up
  std::array<counter, sides> protocol_errors_total;

  std::array<counter, response_classes> responses_total;  // HTTP: to clients, by the first digit of the status
  std::array<counter, left_clients> clients_left_total;   // HTTP
  counter unknown_total;     // nobody knows what of it was applied: requests of HTTP, else sessions that ended so
  bool speaks_http = false;  // set before the first thread
  std::vector<std::unique_ptr<pool>> pools;  // fixed before its server starts

  counter& requests(request_class c) { return requests_total[static_cast<std::size_t>(c)]; }
  counter& checks(check_outcome o) { return checks_total[static_cast<std::size_t>(o)]; }
  counter& rejected(connection_rejection r) { return connections_rejected_total[static_cast<std::size_t>(r)]; }
  counter& left(left_client l) { return clients_left_total[static_cast<std::size_t>(l)]; }
  counter& protocol_errors(side s) { return protocol_errors_total[static_cast<std::size_t>(s)]; }

  // One of the gate's backends says how it is: why it is not usable, or "". `name`: of a store; "": the gate's upstream.
  void note_backend(std::string_view name, std::string_view problem);
  // The same of a further database of the upstream, for which backend_up does not stand.
  void note_database(const std::string& name, const std::string& problem);
  // What they said last: of databases, only problems.
  struct said {
    std::map<std::string, std::string, std::less<>> backends, databases;
  };
  [[nodiscard]] said backends_said() const;

  // What was counted there is counted here, too.
  void add_counts(const gate& other);
  // This one's stats, and those of these others of its name: what there is now of all, what was counted of all, and what
  // this one's backends have said.
  [[nodiscard]] std::unique_ptr<gate> with(const std::vector<std::shared_ptr<gate>>& others) const;

  // Hears of each mark that this process has seen rise, or sees for the first time (`first`). Any thread; returns at once.
  // Set before the first thread.
  std::function<void(std::string_view resource, std::int64_t mark, std::uint64_t lowering, bool first)> on_rise;

 private:
  void add_now(const gate& other);

  mutable std::mutex backends_mutex_;
  said said_;
};

enum class lease_state : std::uint8_t { waiting, held };
inline constexpr std::size_t lease_states = 2;

enum class grant_outcome : std::uint8_t { granted, busy, unreachable, refused, abandoned };
inline constexpr std::size_t grant_outcomes = 5;

enum class lease_end : std::uint8_t { expired, superseded };
inline constexpr std::size_t lease_ends = 2;

inline constexpr std::size_t writer_states = 4;  // unknown, standby, holding, lost

// Who is behind gates that hold its lease.
struct writer {
  explicit writer(std::string writer_name) : name(std::move(writer_name)) {}
  const std::string name;
  std::array<gauge, writer_states> in_state;  // 1 in the one it is in
};

// Leases that the sidecar takes for its clients, and holds for its gates.
struct leases {
  std::array<gauge, lease_states> now;
  std::array<counter, grant_outcomes> grants_total;
  counter renewals_total;  // that were confirmed
  std::array<counter, lease_ends> lost_total;
  histogram handover_seconds;                    // from when a release was heard of until the next holder could act
  std::vector<std::unique_ptr<writer>> writers;  // fixed before the first thread starts

  gauge& in(lease_state s) { return now[static_cast<std::size_t>(s)]; }
  counter& grants(grant_outcome o) { return grants_total[static_cast<std::size_t>(o)]; }
  counter& lost(lease_end e) { return lost_total[static_cast<std::size_t>(e)]; }
};

enum class reload_outcome : std::uint8_t { applied, unchanged, refused };
inline constexpr std::size_t reload_outcomes = 3;

// Of the configuration that is served.
struct configuration {
  configuration();

  gauge generation;    // 1 at the start, one more with each reload that was applied
  gauge succeeded_at;  // seconds since 1970: the start, or the last reload that was not refused
  std::array<counter, reload_outcomes> reloads_total;

  counter& reloads(reload_outcome o) { return reloads_total[static_cast<std::size_t>(o)]; }
};

// All gates of the process, in the order of the configuration, and what belongs to none of them.
// When each certificate expires, by the path of its file; in seconds since 1970. From any thread.
class certificate_expiry {
 public:
  void set(std::map<std::string, std::int64_t> at) {
    const std::lock_guard lock(mutex_);
    at_ = std::move(at);
  }
  [[nodiscard]] std::map<std::string, std::int64_t> at() const {
    const std::lock_guard lock(mutex_);
    return at_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> at_;
};

struct process {
  std::vector<std::shared_ptr<gate>> gates;   // once threads run: of the admin listener's thread
  std::vector<std::shared_ptr<gate>> former;  // the same: of servers that serve their last connections
  configuration configured;
  std::unique_ptr<leases> leased;  // nullptr: it takes none; set before the first thread starts
  gauge draining;                  // 1 from the first SIGTERM on
  std::atomic<bool> ready{false};  // set once every listener is up
  moment files_short;              // the admin listener could not accept, for want of file descriptors
  certificate_expiry certificates;
  counter admin_tls_rejected_total, admin_tls_files_refused_total;  // of the admin listener, as of gates
};

// Of each gate, the sum of the stats of its servers; of those that have left the configuration, too.
[[nodiscard]] std::vector<std::unique_ptr<gate>> totals_of(const process& of);

}  // namespace fencegate::metrics
