// The stores that an HTTP gate's configuration names, for all of its threads; and what they answer, in HTTP's words.
#pragma once

#include "backend/pg_store.hpp"
#include "backend/redis_store.hpp"
#include "gate/http/http_stores.hpp"
#include "gate/relay/workers.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace fencegate::gate {

class http_store_set {
 public:
  using store = std::variant<std::shared_ptr<backend::pg_store>, std::shared_ptr<backend::redis_store>>;

  // REQUIRES: all lives longer. Stores that have one thread live on the first of these.
  http_store_set(workers& threads, const settings::http_gate& gate, metrics::gate& stats);

  // `unsettled`: see protocol_shard::start().
  // On the first thread.
  void start(const std::shared_ptr<void>& unsettled);
  // What lives on this thread; there, or when it has ended.
  void stop(const boost::asio::io_context& thread);

  [[nodiscard]] const settings::http_gate& gate() const { return gate_; }
  [[nodiscard]] metrics::gate& stats() const { return stats_; }
  [[nodiscard]] const store& of(http_host::where route) const;
  // Of each parameter of the route's statement: whether its value goes as the bytes that it has.
  [[nodiscard]] const std::vector<bool>& as_bytes(std::size_t route) const { return as_bytes_[route]; }

 private:
  const std::shared_ptr<const void> whole_;  // of which the settings and stats are parts
  const settings::http_gate& gate_;
  metrics::gate& stats_;
  std::map<std::string, store, std::less<>> stores_;
  std::vector<std::vector<bool>> as_bytes_;
};

// One session's view of them: answers come to its thread, and only while it lives.
class http_session_stores final : public http_stores, public std::enable_shared_from_this<http_session_stores> {
 public:
  http_session_stores(std::shared_ptr<http_store_set> set, boost::asio::io_context& thread)
      : set_(std::move(set)), thread_(thread) {}

  void look(std::weak_ptr<const void> session, where route, const claims_list& wanted, fence_callback done) override;
  void raise(std::weak_ptr<const void> session, where route, const claims_list& wanted, fence_callback done) override;
  [[nodiscard]] std::unique_ptr<mark_hold> hold(std::weak_ptr<const void> session, where route,
                                                const claims_list& wanted, fence_callback done,
                                                hold_lost lost) override;
  [[nodiscard]] std::optional<fence::rejection> known_stale(where route, const claims_list& claims) override;
  void count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) override;
  void run(std::weak_ptr<const void> session, std::size_t route, const claims_list& wanted, route_values values,
           bool read_only, std::function<void(const atomic_answer&)> done) override;

 private:
  [[nodiscard]] backend::store_caller from(std::weak_ptr<const void> session) const;
  [[nodiscard]] backend::presented_claims presented(where route, const claims_list& wanted) const;

  const std::shared_ptr<http_store_set> set_;
  boost::asio::io_context& thread_;
};

}  // namespace fencegate::gate
