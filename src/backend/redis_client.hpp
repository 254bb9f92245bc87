// A connection to Redis over TCP, with TLS or without, or a unix socket: commands go out as they come, each gets one reply, in their order. It
// knows no marks, and not what a command means. One thread.
//
// Rule kept: a command gets its own reply, whole, or nullptr. What is malformed or was not asked for ends the connection,
// and so does a server that says nothing in time; then all who wait get nullptr.
#pragma once

#include "backend/control_link.hpp"
#include "backend/reply_reader.hpp"
#include "backend/secured_socket.hpp"
#include "backend/tls.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

class redis_client : public std::enable_shared_from_this<redis_client> {
 public:
  using endpoint = boost::asio::generic::stream_protocol::endpoint;
  using time_point = std::chrono::steady_clock::time_point;

  struct events {
    // All addresses of the server; the one that answered goes first.
    std::function<void(const std::vector<endpoint>&)> connected;
    // It is closed; `by_server`: the other side did that. Those who wait for replies learn it behind this.
    std::function<void(const std::string& why, bool by_server)> lost;
  };
  // `patience`: for a connection, and for each reply. `malformed` counts what was no reply. `tls`: nullptr where there is
  // none. REQUIRES: the figure and the address live longer.
  redis_client(boost::asio::io_context& context, const settings::address& server, std::chrono::milliseconds patience,
               metrics::counter& malformed, std::shared_ptr<tls_context> tls = nullptr)
      : context_(context),
        server_(server),
        patience_(patience),
        malformed_(malformed),
        tls_(std::move(tls)),
        resolver_(context) {}

  // REQUIRES: it is closed. `tell` is told of this connection, until it is lost.
  void connect(events tell);

  // Sends a command; where there is no connection, `done` gets nullptr at once. Whoever asks waits until `answer_by`, and
  // gets nullptr then: the connection goes on. A command that may take longer than the patience holds up those behind it:
  // they are given as long.
  void send(const std::vector<std::string_view>& command, reply_callback done,
            time_point answer_by = time_point::max());

  // Closes it, connected or not: `lost`, then nullptr to all who wait, then this returns.
  void lose(const std::string& why) { end(why, false); }

  // To be called several times a second: what is late is noticed here.
  void on_tick(time_point now);

 private:
  using stream = boost::asio::generic::stream_protocol;
  enum class state : std::uint8_t { closed, connecting, connected };
  struct sent {
    reply_callback done;   // empty: it was told already that there was no answer in time
    time_point answer_by;  // until then whoever asked waits
    time_point deadline;   // until then the connection is taken to be alive
  };

  void end(const std::string& why, bool by_server);
  void connect_to(std::vector<endpoint> endpoints);
  void secure(std::vector<endpoint> endpoints);
  void on_open(std::vector<endpoint> endpoints, std::unique_ptr<tls_stream> secured);
  void flush();
  void wait_readable();
  void read_some();
  [[nodiscard]] bool take_reply();
  void give_up_waiting(time_point now);

  boost::asio::io_context& context_;
  const settings::address& server_;
  const std::chrono::milliseconds patience_;
  metrics::counter& malformed_;
  const std::shared_ptr<tls_context> tls_;
  std::shared_ptr<stream::socket> connecting_;  // until it is the link
  secured_socket link_;
  boost::asio::ip::tcp::resolver resolver_;

  events tell_;
  state state_ = state::closed;
  std::uint64_t connection_ = 0;  // counts connections: what an older one's socket says is void
  time_point connected_by_{};
  // (A callback that loses the connection may still look at its reply: the bytes live as long.)
  std::shared_ptr<reply_reader> replies_ = std::make_shared<reply_reader>();
  std::string out_;
  std::size_t out_sent_ = 0;
  bool writing_ = false;   // waits for the socket
  bool flushing_ = false;  // will be sent before the loop waits again
  std::deque<sent> pending_;
};

}  // namespace fencegate::backend
