// What all sessions have in common: a socket of the client and one to the server behind the gate, from which bytes are read
// as far as they are wanted. What they mean, and what is sent, is for the subclass, one for each protocol.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/tls.hpp"
#include "gate/peer.hpp"
#include "gate/session.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

class relay_session : public session, public poller::owner, public std::enable_shared_from_this<relay_session> {
 public:
  void start() final;
  void close() final;

 protected:
  using time_point = std::chrono::steady_clock::time_point;

  relay_session(boost::asio::io_context& context, poller& sockets, stream::socket client, std::string client_address,
                session_ended ended);

  // The client's socket can be used.
  virtual void on_started() {}
  // Bytes are about to be read, or an answer to be taken.
  virtual void before_event() {}
  virtual void on_client_bytes(std::string_view bytes) = 0;
  virtual void on_backend_bytes(std::string_view bytes) = 0;
  // It says nothing more: eof, or why not.
  virtual void on_end(peer& of, const boost::system::error_code& why) = 0;
  // Sends what there is to send, and ends what is over.
  virtual void after_event() = 0;
  [[nodiscard]] virtual bool wants_client() const = 0;
  [[nodiscard]] virtual bool wants_backend() const = 0;
  // Both sockets are closed, the client's last. Called once.
  virtual void on_close() {}

  // Opens the link at the first of these addresses that answers. `done` is called unless hang_up() or close() comes first.
  void dial(const std::vector<stream::endpoint>& targets, std::function<void(const result<void>&)> done);
  // What a connected socket goes through before it is the link: nothing, or what puts TLS on it.
  using secured = std::function<void(result<std::unique_ptr<backend::tls_stream>>)>;
  virtual void secure(const std::shared_ptr<stream::socket>& /*fresh*/, const secured& done) {
    done(std::unique_ptr<backend::tls_stream>());
  }
  void hang_up();
  // Counts what hang_up() made void.
  [[nodiscard]] std::uint64_t attempt() const { return attempt_; }
  // Sends the engine's bytes for the server. One that has gone may have said why: that is still read.
  void send_to_backend(std::string& bytes);
  // After each event: what is wanted and was not read comes when the others have had their turn.
  void read_on();

  // Answers reach the engine only while the session lives, and what they make it say is sent.
  template <class Call>
  auto later(Call call) {
    return [self = shared_from_this(), call = std::move(call)](auto&&... answer) {
      if (self->closed_) return;
      self->before_event();
      call(std::forward<decltype(answer)>(answer)...);
      self->after_event();
    };
  }

  // Whether a time limit is over. 0: there is none.
  [[nodiscard]] static bool over(time_point since, std::chrono::milliseconds limit, time_point now) {
    return limit.count() != 0 && now - since > limit;
  }

  peer client_, backend_;
  const std::string client_address_;
  bool closed_ = false;

 private:
  // poller::owner
  void on_ready() final;
  void read(peer& from);

  boost::asio::io_context& context_;
  poller& sockets_;
  stream::socket accepted_;                     // until start()
  std::shared_ptr<stream::socket> connecting_;  // until it is the link
  session_ended ended_;
  std::uint64_t attempt_ = 0;
};

}  // namespace fencegate::gate
