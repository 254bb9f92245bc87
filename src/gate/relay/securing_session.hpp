// A client's connection on which TLS is about to come, with what the protocol says in plain text before that. It ends as the
// link of another session, or with why there is none. Nothing that came in plain text goes on as what came behind TLS.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/tls_server.hpp"
#include "base/result.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/session.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::gate {

class securing_session final : public session, public std::enable_shared_from_this<securing_session> {
 public:
  // Once, with itself. An error with no words: the client has gone before it said anything, or the gate has closed it.
  using done_callback = std::function<void(const std::shared_ptr<session>&, result<client_link>)>;

  // REQUIRES: the context and the protocol live longer.
  securing_session(client_link client, backend::tls_server_context& tls, const protocol& spoken,
                   std::chrono::milliseconds limit, done_callback done);

  void start() override;
  void on_tick(std::chrono::steady_clock::time_point now) override;
  bool announce_end() override { return true; }  // its session will hear of it
  void drain() override { close(); }
  void cut() override { close(); }  // nothing is in flight
  void close() override { fail({}); }

 private:
  void wait();
  void on_readable();
  void judge();
  void tell_in_plain_text(const std::string& words);
  void secure(bool asks_for_protocol);
  void fail(const std::string& why);
  void finish(result<client_link> outcome);
  // The first of the bytes that are there, which stay. False: none are, or the client has gone.
  [[nodiscard]] bool peek(char& first);

  const std::shared_ptr<stream::socket> socket_;
  const std::string address_;
  backend::tls_server_context& tls_;
  const protocol& protocol_;
  const std::chrono::steady_clock::time_point until_;
  done_callback done_;
  std::string said_;  // in plain text
  bool shakes_ = false;
};

}  // namespace fencegate::gate
