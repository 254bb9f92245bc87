// A Redis gate: its listener, and its sessions spread over the workers.
#pragma once

#include "backend/redis_state.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "gate/redis_session.hpp"
#include "gate/rejection_log.hpp"
#include "gate/workers.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <unordered_set>
#include <vector>

namespace fencegate::gate {

class redis_server {
 public:
  // REQUIRES: everything given lives longer than the workers run.
  redis_server(workers& threads, const settings::redis_gate& gate, metrics::gate& figures, rejection_log& rejections);
  ~redis_server();

  // Listens. The error says which address and why. REQUIRES: before the workers start.
  [[nodiscard]] result<void> start();
  // Connections end at their next boundary; new ones are still accepted. Any thread.
  void drain();
  // Connections of clients now. Any thread.
  [[nodiscard]] std::int64_t connections() const { return figures_.connections.value(); }

 private:
  using acceptor = boost::asio::basic_socket_acceptor<backend::stream>;
  struct shard;

  void accept();
  void welcome(backend::stream::socket socket, const backend::stream::endpoint& from);
  void tick(shard& s);

  workers& workers_;
  const settings::redis_gate& gate_;
  metrics::gate& figures_;
  std::shared_ptr<backend::redis_state> state_;
  std::vector<std::unique_ptr<shard>> shards_;
  acceptor acceptor_;
  boost::asio::steady_timer accept_pause_;
  std::size_t next_ = 0;
};

}  // namespace fencegate::gate
