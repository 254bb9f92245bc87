// A peer's connection as Asio and Beast read and write one: over TCP or a unix socket, with TLS or without, with a deadline.
// (Beast's own streams know Asio's TLS, which is linked to OpenSSL; here OpenSSL is loaded where it is used: backend/tls.)
#pragma once

#include "backend/secured_socket.hpp"
#include "backend/tls_server.hpp"
#include "base/demand.hpp"
#include "base/result.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace fencegate::admin {

using any_stream = boost::asio::generic::stream_protocol;  // TCP or a unix socket

class peer_stream {
 public:
  using executor_type = any_stream::socket::executor_type;

  // In plain text, until hands are shaken. REQUIRES: the socket is open.
  explicit peer_stream(any_stream::socket of);
  ~peer_stream() { close(); }
  peer_stream(const peer_stream&) = delete;
  peer_stream& operator=(const peer_stream&) = delete;

  // From here on through TLS. `done` once, on the socket's thread, perhaps at once; its error has no text when the stream was closed
  // meanwhile. REQUIRES: nothing was read or written; `done` keeps this object, and `by` lives until then.
  void shake_hands(backend::tls_server_context& by, std::function<void(result<void>)> done);

  // What is under way then, or begins later, fails with timed_out, and the connection ends.
  void expires_after(std::chrono::milliseconds time) { link_->deadline = clock::now() + time; }
  void expires_never() { link_->deadline = clock::time_point::max(); }

  // REQUIRES: one of these at a time, and this object lives until it is done.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& into, Token&& token) {
    return begin(
        [into](link& of, boost::system::error_code& failed) {
          const boost::asio::mutable_buffer room = first_of<boost::asio::mutable_buffer>(into);
          return room.size() == 0 ? 0 : of.bytes.receive({static_cast<char*>(room.data()), room.size()}, failed);
        },
        direction::in, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return begin(
        [from](link& of, boost::system::error_code& failed) {
          // What is in several pieces leaves as one. A second try gives the same bytes, as TLS wants them.
          std::array<char, 16 * 1024> piece;
          const std::size_t bytes = boost::asio::buffer_copy(boost::asio::buffer(piece), from);
          return bytes == 0 ? 0 : of.bytes.send({piece.data(), bytes}, failed);
        },
        direction::out, std::forward<Token>(token));
  }

  // Until there is something to read, or the peer has ended.
  template <class Token>
  auto async_wait_for_bytes(Token&& token) {
    return begin([](link&, boost::system::error_code&) { return std::size_t{0}; }, direction::in,
                 std::forward<Token>(token));
  }

  // Nothing more is sent.
  void shutdown_send();
  void close() { link_->close(); }

  [[nodiscard]] executor_type get_executor() { return link_->socket->get_executor(); }
  // For what is asked about the connection; closed once the stream is.
  [[nodiscard]] any_stream::socket& socket() { return *link_->socket; }
  // To read from it directly. REQUIRES: there is no TLS.
  [[nodiscard]] any_stream::socket& plain_socket() {
    demand(!link_->secured, "what comes through TLS is read through it");
    return socket();
  }
  // REQUIRES: there is no TLS, and nothing is under way.
  [[nodiscard]] any_stream::socket release_socket();

 private:
  using clock = std::chrono::steady_clock;
  enum class direction : std::uint8_t { in, out };

  // What operations share with the stream, which may be gone when they are told of its end.
  struct link : std::enable_shared_from_this<link> {
    explicit link(any_stream::socket of)
        : socket(std::make_shared<any_stream::socket>(std::move(of))), timer(socket->get_executor()) {}

    // An operation is under way, until it ends: then the deadline holds.
    void begin();
    // What became of it.
    [[nodiscard]] boost::system::error_code end(const boost::system::error_code& failed);
    void close();
    // Calls when the socket may have bytes, or room for some; later, in any case.
    template <class Call>
    void wait(direction which, Call call) {
      if (!bytes.is_open())
        boost::asio::post(socket->get_executor(), std::move(call));
      else
        which == direction::in ? bytes.wait_to_receive(std::move(call)) : bytes.wait_to_send(std::move(call));
    }

    const std::shared_ptr<any_stream::socket> socket;
    backend::secured_socket bytes;  // over the socket
    bool secured = false;
    boost::asio::steady_timer timer;
    clock::time_point deadline = clock::time_point::max();
    std::uint64_t operations = 0;
    bool under_way = false, late = false;
  };

  template <class Buffer, class Buffers>
  [[nodiscard]] static Buffer first_of(const Buffers& all) {
    const auto end = boost::asio::buffer_sequence_end(all);
    const auto some =
        std::find_if(boost::asio::buffer_sequence_begin(all), end, [](const Buffer& one) { return one.size() != 0; });
    return some == end ? Buffer() : Buffer(*some);
  }

  // Tries, and waits where that would block.
  template <class Try>
  struct operation {
    std::shared_ptr<link> of;
    Try attempt;
    direction which;
    bool begun = false;

    template <class Self>
    void operator()(Self& self, boost::system::error_code failed = {}) {
      const auto on = of;  // `self`, and this with it, moves
      if (begun) {
        std::size_t bytes = 0;
        if (!on->bytes.is_open()) failed = boost::asio::error::operation_aborted;
        if (!failed) bytes = attempt(*on, failed);
        if (failed != boost::asio::error::would_block) return self.complete(on->end(failed), bytes);
      } else {
        begun = true;
        on->begin();
      }
      on->wait(which, std::move(self));
    }
  };
  template <class Try, class Token>
  auto begin(Try attempt, direction which, Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
        operation<Try>{link_, std::move(attempt), which}, token, *link_->socket);
  }

  std::shared_ptr<link> link_;
};

}  // namespace fencegate::admin
