// What the small HTTP listeners of the process share: an address on which they accept, and the peers that are connected. All
// on its io_context's thread.
//
// When all places are taken, a new peer displaces the one that has been waiting longest for its next request, so that idle
// ones cannot shut others out; before TLS, one that says nothing goes first. While all are being served, new ones are dropped.
// When the process has no file descriptor left, one more peer is accepted at a time.
#pragma once

#include "admin/peer_stream.hpp"
#include "base/listening_socket.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "base/seldom.hpp"
#include "base/settings.hpp"
#include "base/spare_descriptor.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace fencegate::admin {

inline constexpr auto no_throw = boost::asio::as_tuple(boost::asio::use_awaitable);

// Of this machine: on loopback, or on a unix socket, whose file says who may.
[[nodiscard]] bool is_local(const any_stream::socket& peer);
// Address and port, or "unix".
[[nodiscard]] std::string peer_name(const any_stream::socket& peer);
// The same, and for a unix socket which process of which user it is.
[[nodiscard]] std::string peer_process(any_stream::socket& peer);
// The status for a request that could not be read; 0: none, the peer is gone or was too slow.
[[nodiscard]] unsigned status_of_unread(const boost::system::error_code& failed);

class peer_listener : public std::enable_shared_from_this<peer_listener> {
 public:
  struct peer {
    explicit peer(any_stream::socket socket) : stream(std::move(socket)) {}
    peer_stream stream;
    bool waiting = false;  // for its next request
    bool silent = false;   // waiting, and has not begun to shake hands
  };

  // A peer's connection, which ends with it.
  class place {
   public:
    place(std::shared_ptr<peer_listener> owner, std::list<peer>::iterator at) : owner_(std::move(owner)), at_(at) {}
    place(place&&) noexcept = default;
    place(const place&) = delete;
    place& operator=(place&&) = delete;
    place& operator=(const place&) = delete;
    ~place();

    [[nodiscard]] peer_stream& stream() const { return at_->stream; }
    // From here on another may displace it.
    void wait_for_request() const;
    void serve_request() const { at_->waiting = false; }
    // The same, before it is served through TLS: these go first.
    void wait_for_hands() const {
      wait_for_request();
      at_->silent = true;
    }
    void hands_are_offered() const { at_->silent = false; }

   private:
    std::shared_ptr<peer_listener> owner_;
    std::list<peer>::iterator at_;
  };
  using serve = std::function<void(place)>;

  // `name` stands in front of errors and in log lines. REQUIRES: `process` outlives `io`.
  peer_listener(boost::asio::io_context& io, settings::address listen, metrics::process& process, std::string name,
                std::size_t peers_max);

  // Peers are served through TLS only: who does not shake hands within `time` is not. REQUIRES: it has not started.
  void secure(std::shared_ptr<backend::tls_server_context> by, std::chrono::milliseconds time) {
    tls_ = std::move(by);
    handshake_time_ = time;
  }
  // `mode`: see listening_socket. REQUIRES: called once.
  [[nodiscard]] result<void> start(serve accepted, std::optional<::mode_t> mode = {});
  // Stops listening and closes all connections; `serve` is called no more.
  void close();

  [[nodiscard]] const settings::address& address() const { return listen_; }
  // Once it has started; 0 for a unix socket.
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  static boost::asio::awaitable<void> accept_all(std::shared_ptr<peer_listener> self);
  bool accept_with_spare(any_stream::socket& into);
  bool make_room();
  void secure(place at);
  void shake_hands(const std::shared_ptr<place>& at, const std::string& name);
  void note_no_tls(const std::string& peer, const std::string& why);

  boost::asio::io_context& io_;
  std::optional<listening_socket> listener_;  // for its file; the socket is the acceptor's
  boost::asio::basic_socket_acceptor<any_stream> acceptor_;
  spare_descriptor spare_;
  boost::asio::steady_timer retry_;
  const settings::address listen_;
  metrics::process& process_;
  const std::string name_;
  const std::size_t peers_max_;
  serve serve_;                                       // empty once it is closed
  std::shared_ptr<backend::tls_server_context> tls_;  // nullptr: peers come in plain text
  std::chrono::milliseconds handshake_time_{};
  seldom no_tls_logged_{std::chrono::seconds(1)};
  std::list<peer> peers_;
  std::uint16_t port_ = 0;
};

}  // namespace fencegate::admin
