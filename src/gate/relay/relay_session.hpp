// What all sessions have in common: a socket of the client and one to the server behind the gate, from which bytes are read
// as far as they are wanted. What they mean, and what is sent, is for the subclass, one for each protocol.
//
// All of it runs on its shard's thread.
#pragma once

#include "base/metrics.hpp"
#include "gate/relay/link_owner.hpp"
#include "gate/relay/unread_bytes.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace fencegate::gate {

class relay_session : public session, public link_owner {
 public:
  void start() final;
  void close() final;

 protected:
  // `tls`: of the link to the server; nullptr: it is plain text.
  relay_session(boost::asio::io_context& context, poller& sockets, std::shared_ptr<backend::tls_context> tls,
                client_link client, session_ended ended, metrics::gate& stats);

  // The client's socket can be used.
  virtual void on_started() {}
  virtual void on_client_bytes(std::string_view bytes) = 0;
  virtual void on_backend_bytes(std::string_view bytes) = 0;
  // It says nothing more: eof, or why not.
  virtual void on_end(peer& of, const boost::system::error_code& why) = 0;
  // The client has closed its connection or reset it: it reads nothing more. May be called again.
  virtual void on_client_gone() {}
  [[nodiscard]] virtual bool wants_client() const = 0;
  [[nodiscard]] virtual bool wants_backend() const = 0;
  // Both sockets are closed, the client's last. Called once.
  virtual void on_close() {}

  // Sends the engine's bytes for the server. `of_client`: with them goes what the client sent, whose time inside the gate
  // ends; else they are the gate's own.
  void send_on(std::string& to_backend, bool of_client = true);
  // Sends the engine's bytes for the client, and notes those that it does not take. False: nothing more can be sent.
  [[nodiscard]] bool send_to_client(std::string& bytes);
  // The client has gone: these are not sent.
  void drop_for_client(std::string& bytes) {
    client_.forget(bytes);
    unread_.note(0);
  }
  // Of these, few enough wait for the client that more may come from the server.
  [[nodiscard]] bool has_room(const std::string& to_client) const;
  // After each event: what is wanted and was not read comes when the others have had their turn.
  void read_on();

  // The client brings this tag. Why there is no room for its connection, which then ends and is counted as turned away.
  [[nodiscard]] std::optional<std::string> take_room(const fence::claims_list& tag);

  // REQUIRES: before start().
  [[nodiscard]] bool is_secured() const { return accepted_.secured != nullptr; }

  peer client_;
  const std::string client_address_;
  time_point read_at_{};   // the client's last bytes; {}: they were sent on
  time_point asked_at_{};  // when the first of them were sent that the server has not said anything since; {}: it has

 private:
  // poller::owner
  void on_ready() final;
  void read(peer& from);

  unread_bytes unread_;

  poller& sockets_;
  client_link accepted_;  // until start()
  session_ended ended_;
  metrics::gate& gate_stats_;
};

}  // namespace fencegate::gate
