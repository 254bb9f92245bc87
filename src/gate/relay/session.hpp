// One client connection of a gate, as its server sees it, whatever it speaks.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/tls.hpp"
#include "fence/tag.hpp"
#include "gate/relay/connection_shares.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::gate {

using stream = boost::asio::generic::stream_protocol;  // TCP or a unix socket

// What a connection is bound to for its whole life, where it is not left to the client; never nullptr, often empty.
using bound_tag = std::shared_ptr<const fence::claims_list>;

// A client's connection, as its server hands it to a session.
struct client_link {
  stream::socket socket;
  std::string address;                             // for a person: "host:port", "unix"
  std::unique_ptr<backend::tls_stream> secured{};  // nullptr: it is plain text
  std::string read_ahead{};                        // what was read of it already; only in plain text
};

// REQUIRES: the first base of what derives from it.
class session {
 public:
  session() = default;
  virtual ~session() = default;
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  virtual void start() = 0;
  // Time-outs; called about twice a second.
  virtual void on_tick(std::chrono::steady_clock::time_point now) = 0;
  // It ends soon, and goes on until drain() or until its client has been told in an answer. False: there is no way to tell it.
  virtual bool announce_end() { return false; }
  // Ends the connection as soon as nothing is in flight.
  virtual void drain() = 0;
  // Ends the connection now, whatever is in flight: the lease that it is bound to was lost. Its client may hear of it later.
  virtual void cut() {
    drain();
    close();
  }
  // Ends the connection now; may be called again, and before start().
  virtual void close() = 0;

  // `what` lives until this has gone, all of it.
  void keep(std::shared_ptr<const void> what) { kept_ = std::move(what); }
  // Its connection counts among these, for the tag that its client brings. REQUIRES: before start().
  void count_among(std::shared_ptr<connection_shares> all) { share_ = connection_shares::part(std::move(all)); }

 protected:
  connection_shares::part share_;

 private:
  std::shared_ptr<const void> kept_;
};

// To be called once, by the session's close(), with itself: the server then forgets it.
using session_ended = std::function<void(const std::shared_ptr<session>&)>;

}  // namespace fencegate::gate
