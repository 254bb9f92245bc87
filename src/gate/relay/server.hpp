// A gate's listener, and its sessions spread over the workers: the frame that is the same for every protocol. It
// accepts, counts, ticks, drains and closes; what a connection says is the business of its session. A gate that holds a lease
// asks its door first (gate/relay/lease_door.hpp).
#pragma once

#include "backend/tls_server.hpp"
#include "base/listening_socket.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/spare_descriptor.hpp"
#include "fence/gate_settings.hpp"
#include "gate/relay/connection_shares.hpp"
#include "gate/relay/lease_door.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/session.hpp"
#include "gate/relay/workers.hpp"
#include "lease/writer_gate.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// What the sessions of one gate on one thread share; knows how to make them. start() and open() run on that thread.
class protocol_shard {
 public:
  virtual ~protocol_shard() = default;

  // Clients are accepted when nothing holds `unsettled` any more: keep it until you know whether the backend answers.
  virtual void start(std::shared_ptr<void> unsettled) = 0;
  [[nodiscard]] virtual std::shared_ptr<session> open(client_link client, session_ended ended, bound_tag tag) = 0;
  // Every session has gone, and what it has still under way ends; on that thread, or when the workers have stopped.
  virtual void stop() = 0;
};

// What a gate speaks. Lives as long as its server.
class protocol {
 public:
  virtual ~protocol() = default;

  // `context` lives longer than the shard, and is run by one thread.
  [[nodiscard]] virtual std::unique_ptr<protocol_shard> make_shard(boost::asio::io_context& context) = 0;
  // Its name in TLS (ALPN); "": it has none.
  [[nodiscard]] virtual std::string_view tls_name() const { return {}; }
  // Where clients ask for TLS in plain text, so many bytes of them are read first, unless they begin a record of TLS.
  [[nodiscard]] virtual std::size_t opening_bytes() const { return 0; }
  enum class opening : std::uint8_t {
    secures,  // TLS begins, behind the answer
    asks,     // something else, which has its answer; then such bytes come again
    passes,   // served in plain text
    refused   // behind the answer
  };
  // REQUIRES: so many bytes, and TLS on the listener.
  [[nodiscard]] virtual opening judge_opening(std::string_view /*bytes*/, std::string& /*to_client*/) const {
    return opening::refused;
  }
  // What a client is told for which there is no room, before anything was read from it; short enough for an empty socket
  // buffer; through TLS nothing is told. `why`: what is used up.
  [[nodiscard]] virtual std::string turned_away(const std::string& why) const = 0;
  // What a client is told that speaks in plain text where TLS has to come first; "": nothing. REQUIRES: opening_bytes() is 0.
  [[nodiscard]] virtual std::string told_to_use_tls() const { return {}; }
  // What a client is told when the gate does not hold its lease. Takes what it has read from `from_client`. True: it is told.
  [[nodiscard]] virtual bool refuse(std::string& from_client, std::string& to_client, const std::string& why) const = 0;
};

class server : public lease::writer_gate {
 public:
  struct place {
    std::string name;  // of the gate
    settings::address listen;
    std::size_t connections_max;
    fence::claims_list tag;         // of the listener; empty: it has none
    settings::gate_lease leased{};  // of its connections
    bool monitors = false;          // mode: monitor
    settings::listener_tls shown{};
    std::chrono::milliseconds head{};  // timeouts.head
  };

  // REQUIRES: `threads` and `rejections` live longer than the workers run, `stats` longer than this.
  server(workers& threads, place where, std::unique_ptr<protocol> spoken, metrics::gate& stats,
         rejection_log& rejections);
  // REQUIRES: the workers have stopped, or it is retired.
  ~server() override;

  // Listens; accepts when it is known whether the backend answers. The error says which address and why. REQUIRES: before the
  // workers start.
  [[nodiscard]] result<void> start() { return start(nullptr, nullptr); }
  // The same while they run; on the socket of `before`, which listens at the same address, and goes on to until it retires;
  // nullptr: on one of its own, `beside` others of this
  // process that share_port(). `settled`: on a worker's thread, when it is known whether the backend answers; nobody is
  // accepted before go_live(), which comes behind that. REQUIRES: `before` holds no lease.
  [[nodiscard]] result<void> start(const server* before, std::function<void()> settled, bool beside = false);
  // Whether another server may listen on an address of its port meanwhile. REQUIRES: started.
  void share_port(bool shares) const { listening_socket::share_port(listening_, shares); }
  // The socket, and its file, where it is one, are no longer those of `before`, which retires next. REQUIRES: started on its
  // socket.
  void go_live(server* before);
  // Accepts no more but those who have connected already, unless another accepts them. Its connections go on; `over` is called
  // on a worker's thread when the last one has gone, and all that the workers do for it: it may be destroyed then. REQUIRES: it
  // holds no lease. Once.
  void retire(std::function<void()> over);
  // Connections end at their next boundary, or with their next answer where that can say so; new ones are still accepted, and
  // stay. Any thread.
  void drain();
  // A connection that was accepted elsewhere, by its descriptor, which it takes. It is bound to `tag`; where the gate does not
  // accept, it is closed. Any thread.
  void take_over(int socket, bound_tag tag);
  // Whether what its connections are bound to is settled by its listener, or by a lease of its own.
  [[nodiscard]] bool binds_by_itself() const { return door_.has_value() || !tag_->empty(); }
  // No more. Those that came behind drain() end as the others a second later, and all at their next boundary after another.
  // Any thread.
  void stop_accepting();
  [[nodiscard]] const std::string& name() const { return place_.name; }
  [[nodiscard]] const settings::address& address() const { return place_.listen; }
  // It does not end before what this keeps; nullptr: its last connection has gone. Any thread.
  [[nodiscard]] std::shared_ptr<const void> in_use() const { return use_.lock(); }
  // Connections of clients now. Any thread.
  [[nodiscard]] std::int64_t connections() const { return stats_.connections.value(); }

  // lease::writer_gate
  void listen_anew(std::function<void(const result<void>&)> done) override;
  void open_to(std::shared_ptr<const lease::bond> held) override;
  void shut(lease::writer_phase phase, const std::string& why) override;

 private:
  using acceptor = boost::asio::basic_socket_acceptor<stream>;
  struct shard;
  // Kept by each connection: says when the last one has gone.
  struct use {
    ~use() {
      if (over) over();
    }
    std::function<void()> over;
  };
  using kept_use = std::shared_ptr<const use>;
  struct arrival {
    stream::socket socket;
    std::string from;
    std::size_t shard;  // whose context is the socket's
    bool secure;        // TLS comes first
  };
  using door = lease_door<arrival>;
  using session_maker = std::function<std::shared_ptr<session>(shard&, client_link, const session_ended&)>;

  [[nodiscard]] result<void> listen(std::optional<::mode_t> mode = {});
  [[nodiscard]] result<void> listen_on(result<listening_socket> opened);
  void stop_listening();
  void end(const std::function<void()>& over);
  void accept();
  void accept_last();
  void welcome(stream::socket socket, const stream::endpoint& from);
  [[nodiscard]] std::optional<arrival> admit(stream::socket socket, const stream::endpoint& from, bool secure);
  void open(arrival one, session_maker make);
  void begin(shard& at, client_link client, const session_maker& make, const kept_use& used);
  void secure(shard& at, client_link client, session_maker make, const kept_use& used);
  void note_no_tls(shard& at, const std::string& client, const std::string& why);
  void serve(arrival one, bound_tag tag);
  void refuse(arrival one, const std::string& why);
  void let_pass(arrival one, const std::string& why);
  [[nodiscard]] door::owner calls_of_door();
  void cut();
  void after(std::chrono::milliseconds pause, std::function<void()> next);
  void end_all();
  void tell_all(void (*tell)(shard&, const std::vector<std::shared_ptr<session>>&));
  void look_after_waiting();
  void turn_away(int socket, metrics::connection_rejection counted, const std::string& why);
  [[nodiscard]] bool turn_one_away();
  void tick(shard& s);

  workers& workers_;
  const place place_;
  std::unique_ptr<protocol> protocol_;
  std::optional<backend::tls_server_context> tls_;
  metrics::gate& stats_;
  rejection_log& rejections_;
  std::vector<std::unique_ptr<shard>> shards_;
  std::optional<listening_socket> listener_;  // for its file; the socket is the acceptor's
  int listening_ = -1;                        // the same
  acceptor acceptor_;
  spare_descriptor spare_;
  boost::asio::steady_timer accept_pause_, drain_timer_;
  const bound_tag tag_;
  const std::shared_ptr<connection_shares> shares_;  // nullptr: it binds by itself
  // All of these: context 0's thread.
  std::optional<door> door_;  // of a lease gate
  boost::asio::steady_timer waiting_timer_;
  bool looks_after_waiting_ = false;
  bool accepting_ = true;
  bool settled_ = false;  // it is known whether the backend answers
  bool live_ = true;
  bool succeeded_ = false;  // by another, which accepts on the same socket
  std::size_t listener_number_ = 0;
  std::size_t next_ = 0;
  std::shared_ptr<use> used_ = std::make_shared<use>();  // until it retires
  const std::weak_ptr<use> use_ = used_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // until it has ended
};

template <class Gate>
[[nodiscard]] server::place place_of(const Gate& gate) {
  const bool monitors = gate.policy.mode == fence::enforcement::monitor;
  return {gate.name,   gate.listen, gate.connections_max, gate.tag,
          gate.leased, monitors,    gate.shown,           gate.limits_time.head};
}

}  // namespace fencegate::gate
