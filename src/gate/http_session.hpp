// One client connection of an HTTP gate and its link to the upstream: moves bytes between the sockets and the engine, with
// limits in both directions, and brings the engine's questions to the stores. It decides nothing about requests.
//
// All of it runs on its shard's thread.
#pragma once

#include "backend/upstream_address.hpp"
#include "gate/http_engine.hpp"
#include "gate/http_stores.hpp"
#include "gate/peer.hpp"
#include "gate/rejection_log.hpp"
#include "gate/session.hpp"

#include <boost/asio/io_context.hpp>

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
  metrics::gate& figures;
  rejection_log& rejections;
  std::shared_ptr<backend::upstream_address> upstream;  // nullptr: there is none
  std::shared_ptr<http_stores> stores;
  poller& sockets;
};

class http_session final : public session,
                           public http_host,
                           public poller::owner,
                           public std::enable_shared_from_this<http_session> {
 public:
  http_session(http_shard& shard, stream::socket client, std::string client_address, session_ended ended);

  void start() override;
  void on_tick(std::chrono::steady_clock::time_point now) override;
  void drain() override;
  void close() override;

 private:
  using time_point = std::chrono::steady_clock::time_point;
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
  [[nodiscard]] std::optional<fence::rejection> known_stale(where route, const claims_list& claims) override {
    return shard_.stores->known_stale(route, claims);
  }
  void count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) override {
    shard_.stores->count_overtaken(route, claims, ago);
  }
  void run(std::size_t route, const claims_list& wanted, std::vector<std::string> values, bool read_only,
           std::function<void(const atomic_answer&)> done) override;
  [[nodiscard]] time_point now() const override { return std::chrono::steady_clock::now(); }
  void report(const fence::rejection& why, std::string_view method, bool monitor) override;

  // poller::owner
  void on_ready() override;

  void on_connected(std::uint64_t attempt, boost::system::error_code failed);
  void read(peer& from);
  void on_end(peer& of);
  void after_event();
  void linger();
  void enforce(time_point at);
  [[nodiscard]] waiting turn() const;
  [[nodiscard]] bool wants_client() const;
  [[nodiscard]] bool wants_backend() const;
  template <class Call>
  auto later(Call call);

  http_shard& shard_;
  http_engine engine_;
  stream::socket accepted_;    // until start()
  stream::socket connecting_;  // until it is connected
  peer client_, backend_;
  const std::string client_address_;
  session_ended ended_;
  link link_ = link::none;
  std::uint64_t attempt_ = 0;  // to connect; an answer to an older one is void
  std::unique_ptr<hold_lease> hold_;
  bool closed_ = false;
  bool lingering_ = false;
  time_point connecting_since_{};
  waiting waits_for_ = waiting::nobody;
  time_point waits_since_{};  // or since it came a step further
  time_point lingers_since_{}, client_heard_{};
};

}  // namespace fencegate::gate
