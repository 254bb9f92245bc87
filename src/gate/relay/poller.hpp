// Readiness of a worker's busy sockets, told by an epoll of the gate's own, in which Asio's is one more descriptor.
//
// Asio tries to read before it waits, so that each read that finds bytes comes with one that finds none. Here a socket is
// registered once, edge-triggered, and what the kernel has told is remembered until a call uses it up; a read that comes
// back short has used it up; with TLS, one that finds nothing has. Nobody who stops reading for a while is called in vain.
// Timers, listeners and the gate's own links stay with Asio, whose reactor waits here instead of in its own epoll.
//
// There is one poller per io_context. It and its sockets are used by the thread that runs the io_context.
#pragma once

#include "backend/tls.hpp"
#include "base/limits.hpp"
#include "gate/relay/spin_credit.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace fencegate::gate {

class polled_socket;

class poller final : public boost::asio::execution_context::service {
 public:
  using key_type = poller;
  static inline boost::asio::execution_context::id id;

  // Owns sockets, and hears when one of them may have become readable or writable, or was to be looked at again. It may
  // close and destroy sockets meanwhile, its own and others'.
  class owner {
   public:
    virtual void on_ready() = 0;

   protected:
    ~owner() = default;
  };

  // Throws when the system is out of descriptors, and when something of Asio's that waits was made for `context` before.
  // REQUIRES: work guards keep the io_context running; sockets of the poller's do not.
  explicit poller(boost::asio::io_context& context);
  ~poller() override;
  static poller& of(boost::asio::io_context& context) { return boost::asio::use_service<poller>(context); }

  // Before it sleeps, the thread asks for this long whether there is something to do, while that pays: waking up a thread,
  // and a virtual processor, costs tens of microseconds. 0: it sleeps at once.
  void busy_poll(std::chrono::microseconds longest) { busy_poll_ = longest; }

  // Room for one read, for whoever is being called; what is to be kept is copied from there.
  [[nodiscard]] std::span<char> scratch() { return {scratch_.get(), limits::read_buffer_bytes_max}; }

 private:
  friend class polled_socket;
  class reactor;
  // A descriptor's number comes back as soon as it was closed; events that were fetched before still name the old one.
  struct slot {
    polled_socket* socket = nullptr;
    std::uint32_t generation = 0;
  };
  using ticket = std::uint64_t;  // generation, then index of a slot

  void shutdown() override;
  [[nodiscard]] ticket enter(polled_socket& socket);
  void leave(ticket of);
  [[nodiscard]] polled_socket* find(ticket of) const;
  [[nodiscard]] int control(int operation, int descriptor, std::uint32_t events, ticket of);
  void again(ticket of);

  // Waits as long for events (milliseconds; -1: for ever), and calls the owners. → Asio has events, too
  [[nodiscard]] bool turn(int timeout);
  [[nodiscard]] int wait(std::span<epoll_event> events, int timeout);
  [[nodiscard]] int spin(std::span<epoll_event> events);
  [[nodiscard]] int ask(std::span<epoll_event> events, int timeout) const;
  void take_again();

  int epoll_;
  std::chrono::microseconds busy_poll_{0};
  spin_credit credit_;
  std::unique_ptr<char[]> scratch_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<ticket> again_, again_now_;
};

// A non-blocking stream socket, and what is known of its readiness. Stays where it is while it is open.
class polled_socket {
 public:
  // REQUIRES: both live until the socket is closed.
  polled_socket(poller& by, poller::owner& owner) : poller_(by), owner_(owner) {}
  ~polled_socket() { close(); }
  polled_socket(const polled_socket&) = delete;
  polled_socket& operator=(const polled_socket&) = delete;

  // Takes an open socket over from Asio, with the TLS that was put on it; nullptr: it has none. REQUIRES: not open yet.
  void take(boost::asio::generic::stream_protocol::socket from, std::unique_ptr<backend::tls_stream> secured,
            boost::system::error_code& failed);
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  // A read, or a write, may succeed: the owner is called when this turns true.
  [[nodiscard]] bool readable() const { return readable_; }
  [[nodiscard]] bool writable() const { return writable_; }
  // Bytes read or written, at least one; else `failed` says would_block, eof or what is wrong. REQUIRES: is_open().
  [[nodiscard]] std::size_t receive(std::span<char> room, boost::system::error_code& failed);
  [[nodiscard]] std::size_t send(std::string_view bytes, boost::system::error_code& failed);

  // Behind eof: of TLS, whose peer has not said that nothing more comes.
  [[nodiscard]] bool is_cut_off() const { return tls_ != nullptr && tls_->is_cut_off(); }

  // The peer reads nothing more either: it has reset the connection, or closed a unix socket.
  [[nodiscard]] bool is_gone() const { return gone_; }

  // Both are secured, and the server's side shows the same certificate on both. REQUIRES: is_open(), both.
  [[nodiscard]] bool has_certificate_of(const polled_socket& other) const {
    return tls_ != nullptr && other.tls_ != nullptr && tls_->has_certificate_of(*other.tls_);
  }

  // Calls the owner again when the others have had their turn: there is more to do than is done at once.
  void again();
  // There may be something to read that the kernel has not told of: a write has failed.
  void suspect() { readable_ = is_open(); }
  void shutdown();
  // Nothing more is written; the peer's bytes are still read.
  void shutdown_send();
  void close();

 private:
  friend class poller;
  void on_event(std::uint32_t events);
  [[nodiscard]] std::size_t receive_secured(std::span<char> room, boost::system::error_code& failed);
  void wait_for_room(boost::system::error_code& failed);

  poller& poller_;
  poller::owner& owner_;
  int descriptor_ = -1;
  poller::ticket ticket_ = 0;
  std::uint32_t interest_ = 0;
  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;  // the peer has closed its side, behind what is still to be read
  bool gone_ = false;
  bool short_read_drains_ = true;  // fewer bytes than asked for: there are no more
  bool again_ = false;             // stands in the poller's list
  std::unique_ptr<backend::tls_stream> tls_;
};

}  // namespace fencegate::gate
