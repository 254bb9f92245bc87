// A connected socket of Asio's, with TLS on it or without: what can be read or written now, and a call when there may be more.
// For connections of which there are few; the many are gate/relay/poller's.
#pragma once

#include "backend/tls.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace fencegate::backend {

class secured_socket {
 public:
  using stream = boost::asio::generic::stream_protocol;

  secured_socket() = default;
  // `over`: nullptr where there is no TLS. REQUIRES: the socket is open.
  secured_socket(std::shared_ptr<stream::socket> of, std::unique_ptr<tls_stream> over);
  secured_socket(secured_socket&&) = default;
  secured_socket& operator=(secured_socket&& other) noexcept;
  ~secured_socket() { close(); }

  [[nodiscard]] bool is_open() const { return socket_ != nullptr; }
  // What comes and goes from here on does so through TLS. REQUIRES: it is open, without TLS, and nothing waits.
  void secure(std::unique_ptr<tls_stream> over);
  // Bytes read or written, at least one; else `failed` says would_block, eof or what is wrong. What was not written is to be
  // given again, from its first byte. REQUIRES: it is open.
  [[nodiscard]] std::size_t receive(std::span<char> room, boost::system::error_code& failed);
  [[nodiscard]] std::size_t send(std::string_view bytes, boost::system::error_code& failed);

  // Calls when receive() may have something, or send() room: once, also when it is closed.
  template <class Call>
  void wait_to_receive(Call call) {
    // TLS may hold bytes of which the socket does not tell.
    if (tls_ != nullptr && !drained_)
      return boost::asio::post(socket_->get_executor(),
                               [call = std::move(call)]() mutable { call(boost::system::error_code()); });
    const bool for_room = tls_ != nullptr && tls_->receive_waits_to_write();
    socket_->async_wait(for_room ? stream::socket::wait_write : stream::socket::wait_read, std::move(call));
  }
  template <class Call>
  void wait_to_send(Call call) {
    socket_->async_wait(stream::socket::wait_write, std::move(call));
  }

  // Nothing more is sent; the peer's bytes are still read.
  void shutdown_send();
  void close();

 private:
  std::shared_ptr<stream::socket> socket_;
  std::unique_ptr<tls_stream> tls_;
  bool drained_ = true;  // of TLS: the last read found nothing
};

}  // namespace fencegate::backend
