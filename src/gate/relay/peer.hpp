// One side of a session, client or backend: its socket, and how far the engine's bytes for it have been sent.
#pragma once

#include "gate/relay/poller.hpp"

#include <chrono>
#include <cstddef>
#include <string>

namespace fencegate::gate {

struct peer {
  peer(poller& by, poller::owner& owner) : socket(by, owner) {}

  // Writes what the socket takes of the bytes, and drops from them what has gone. The error is not would_block: it says
  // that nothing more can be written.
  [[nodiscard]] boost::system::error_code send(std::string& bytes);
  // Not to be sent any more: the peer has gone.
  void forget(std::string& bytes);

  [[nodiscard]] std::size_t unsent(const std::string& bytes) const { return bytes.size() - sent; }
  // It does not take what waits for it; since stalled_since.
  [[nodiscard]] bool stalled() const { return socket.is_open() && !socket.writable(); }

  polled_socket socket;
  bool ended = false;    // it says nothing more
  std::size_t sent = 0;  // of the engine's bytes for it
  std::chrono::steady_clock::time_point stalled_since{};
};

}  // namespace fencegate::gate
