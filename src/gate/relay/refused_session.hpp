// A connection that the gate does not serve, as it does not hold the lease: its client is told why when it has asked for
// something, in a way that drivers understand, and then has a moment to read it.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/secured_socket.hpp"
#include "gate/relay/session.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::gate {

class refused_session final : public session, public std::enable_shared_from_this<refused_session> {
 public:
  // Reads what the client has said, and appends what it is told. True: that is all.
  using words = std::function<bool(std::string& from_client, std::string& to_client)>;

  refused_session(client_link client, words said, session_ended ended);

  void start() override;
  void on_tick(std::chrono::steady_clock::time_point now) override;
  void drain() override { close(); }
  void cut() override {}  // nothing is in flight, and it is about to end
  void close() override;

 private:
  void read();
  void on_readable();
  void answer();
  void write();

  backend::secured_socket client_;
  const words words_;
  session_ended ended_;
  std::string from_client_, to_client_;
  std::array<char, 4096> room_{};
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();  // it waits for the client
  bool said_ = false, closed_ = false;
};

}  // namespace fencegate::gate
