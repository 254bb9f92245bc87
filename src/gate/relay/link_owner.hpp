// Whoever has a link to the server behind the gate: opens it, sends, and takes answers as long as it lives.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/tls_handshake.hpp"
#include "base/result.hpp"
#include "gate/relay/peer.hpp"
#include "gate/relay/session.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::gate {

class link_owner : public poller::owner, public std::enable_shared_from_this<link_owner> {
 public:
  virtual ~link_owner() = default;

 protected:
  using time_point = std::chrono::steady_clock::time_point;

  // `tls`: what puts TLS on the link; nullptr: it is plain text.
  link_owner(boost::asio::io_context& context, poller& sockets, std::shared_ptr<backend::tls_context> tls)
      : tls_(std::move(tls)), backend_(sockets, *this), context_(context) {}

  // Bytes are about to be read, or an answer to be taken.
  virtual void before_event() {}
  // Sends what there is to send, and ends what is over.
  virtual void after_event() = 0;

  // Opens the link at the first of these addresses that answers. `done` is called unless hang_up() comes first.
  void dial(const std::vector<stream::endpoint>& targets, std::function<void(const result<void>&)> done);
  // What a connected socket goes through before it is the link, where there is TLS.
  virtual void secure(const std::shared_ptr<stream::socket>& fresh, const backend::tls_opened& done) {
    backend::start_tls(fresh, *tls_, done);
  }
  void hang_up();
  // Counts what hang_up() made void.
  [[nodiscard]] std::uint64_t attempt() const { return attempt_; }
  // The address that answered last.
  [[nodiscard]] const stream::endpoint& linked_to() const { return linked_to_; }
  // Sends the engine's bytes for the server. One that has gone may have said why: that is still read.
  void send_to_backend(std::string& bytes);

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

  std::shared_ptr<backend::tls_context> tls_;  // of the next link
  peer backend_;
  bool closed_ = false;

 private:
  boost::asio::io_context& context_;
  std::shared_ptr<stream::socket> connecting_;  // until it is the link
  std::uint64_t attempt_ = 0;
  stream::endpoint linked_to_;
};

// An open socket of Asio's becomes the peer's. REQUIRES: `from` is open, `to` is not.
[[nodiscard]] result<void> take_over(peer& to, stream::socket& from, std::unique_ptr<backend::tls_stream> secured);

}  // namespace fencegate::gate
