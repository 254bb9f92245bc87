// The API of leases for the programs beside this one (pages: lease_pages.hpp): HTTP/1.1 on unix sockets and loopback ports.
//
// A client that closes its connection while it waits for a lease, or shuts down its sending side, has left: nothing is asked
// for it any more. A grant whose answer cannot be written is released. Bounded in every direction: see limits::lease_*.
#pragma once

#include "base/limits.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "lease/desk.hpp"
#include "lease/gate_switch.hpp"
#include "lease/operation.hpp"
#include "lease/writer_desk.hpp"

#include <boost/asio/io_context.hpp>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace fencegate::admin {

struct lease_server_times {
  std::chrono::milliseconds request = limits::lease_timeout;    // from its first byte to its last; to take an answer
  std::chrono::milliseconds idle = limits::lease_idle_timeout;  // between requests
  std::chrono::milliseconds heartbeat = limits::lease_heartbeat;
};

class lease_server {
 public:
  static constexpr ::mode_t socket_mode_default = 0660;

  // `socket_mode`: the rights of the files of unix sockets. REQUIRES: one thread at a time runs `io`, which is the desk's;
  // `desk` outlives this object, `process` outlives `io`.
  lease_server(boost::asio::io_context& io, const std::vector<settings::address>& listen, ::mode_t socket_mode,
               lease::desk& desk, metrics::process& process, lease_server_times times = {});
  // Stops listening, closes all connections, drops what clients wait for, and releases grants that no client has heard of.
  // REQUIRES: `io` is not running, or this is its thread.
  ~lease_server();
  lease_server(const lease_server&) = delete;
  lease_server& operator=(const lease_server&) = delete;

  // From then on it answers about writers, too. REQUIRES: `io` does not run yet; `writers` outlives this object.
  void serve_writers(lease::writer_desk& writers);

  // From then on clients of a lease may go on as clients of a gate. REQUIRES: `io` does not run yet; `gates` outlives this object.
  void serve_gates(lease::gate_switch& gates);

  // From then on operators may ask here, too. REQUIRES: `io` does not run yet; `operators` outlives this object.
  void serve_operators(lease::operator_desk& operators);

  // Listens from here on; answers as soon as `io` runs. The error says which address and why. REQUIRES: called once.
  [[nodiscard]] result<void> start();

  // The ports in use, in the order of `listen`; 0 for a unix socket. REQUIRES: start() succeeded.
  [[nodiscard]] std::vector<std::uint16_t> ports() const;

 private:
  class state;  // shared with the coroutines, which end after this object
  std::shared_ptr<state> state_;
};

}  // namespace fencegate::admin
