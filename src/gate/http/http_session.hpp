// One client connection of an HTTP gate and its link to the upstream: moves bytes between the sockets and the engine, with
// limits in both directions, and brings the engine's questions to the stores. It decides nothing about requests.
#pragma once

#include "backend/upstream_address.hpp"
#include "gate/http/http_engine.hpp"
#include "gate/http/http_stores.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/relay_session.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::gate {

// What the sessions of one gate on one thread share.
struct http_shard {
  boost::asio::io_context& context;
  const settings::http_gate& gate;
  const http_plan& plan;
  metrics::gate& stats;
  rejection_log& rejections;
  std::shared_ptr<backend::upstream_address> upstream;  // nullptr: there is none
  std::shared_ptr<backend::tls_context> tls;            // of the links to it; nullptr: they are plain text
  std::shared_ptr<http_stores> stores;
  poller& sockets;
  std::uint64_t requests_seen = 0;  // of an access log
};

class http_session final : public relay_session, public http_host {
 public:
  http_session(http_shard& shard, client_link client, session_ended ended, bound_tag tag);

  void on_tick(time_point now) override;
  bool announce_end() override {
    engine_.announce_end();
    return true;
  }
  void drain() override;

 private:
  enum class link : std::uint8_t { none, connecting, open };
  // Whose turn it is, by the clock.
  enum class waiting : std::uint8_t {
    nobody,   // a store, or a client that reads slowly: they have limits of their own
    request,  // the client may ask
    head,     // the client has begun to
    body,     // the client owes bytes
    upstream  // the upstream owes an answer, or does not take the body
  };

  // http_host
  void connect() override;
  void disconnect() override;
  [[nodiscard]] bool link_is_quiet() override;
  void look(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override;
  void raise(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override;
  void hold(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override;
  [[nodiscard]] bool holds() override;
  void release() override;
  void outlive_client() override { hold_->set_aside(); }
  [[nodiscard]] std::optional<fence::rejection> known_stale(where route, const claims_list& claims) override {
    return shard_.stores->known_stale(route, claims);
  }
  void count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) override {
    shard_.stores->count_overtaken(route, claims, ago);
  }
  void run(std::size_t route, const claims_list& wanted, route_values values, bool read_only,
           std::function<void(const atomic_answer&)> done) override;
  std::optional<std::string> take_room(const claims_list& brought) override {
    return relay_session::take_room(brought);
  }
  [[nodiscard]] time_point now() const override { return std::chrono::steady_clock::now(); }
  void report(const fence::rejection& why, std::string_view method, std::string_view trace, bool monitor) override;
  void access(const http_access& one) override;

  // relay_session
  void on_started() override { after_event(); }
  void on_client_bytes(std::string_view bytes) override;
  void on_backend_bytes(std::string_view bytes) override;
  void on_end(peer& of, const boost::system::error_code& why) override;
  void after_event() override;
  [[nodiscard]] bool wants_client() const override;
  [[nodiscard]] bool wants_backend() const override;
  void on_client_gone() override;
  void on_close() override {
    hold_.reset();
    asks_.reset();
  }

  void on_unreachable(const std::string& why);
  void linger();
  void enforce(time_point at);
  [[nodiscard]] waiting turn() const;

  http_shard& shard_;
  const bound_tag tag_;
  http_engine engine_;
  link link_ = link::none;
  std::unique_ptr<mark_hold> hold_;
  // For the stores, which ask and answer nothing once this has gone. Callbacks keep the session itself.
  std::shared_ptr<const void> asks_ = std::make_shared<char>('\0');
  bool lingering_ = false;
  bool gone_ = false;  // the client; what it asked may still be under way
  // Of the client's that has sent its end: since when, unless it was probed.
  std::optional<time_point> end_unproven_since_;
  time_point connecting_since_{};
  waiting waits_for_ = waiting::nobody;
  time_point waits_since_{};  // or since it came a step further
  time_point lingers_since_{}, client_heard_{};
};

}  // namespace fencegate::gate
