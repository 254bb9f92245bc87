#include "gate/http/http_session.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// What a client may send ahead while its earlier request is under way.
constexpr std::size_t read_ahead_bytes = 64 * 1024;
// A client that is to be cut off has this long to stop sending and read why.
constexpr milliseconds linger_time{2'000};
// And this long when it goes on sending.
constexpr milliseconds linger_most{30'000};
// A client that has sent its end is not asked whether it still reads when the answer comes as soon as this.
constexpr milliseconds quick_answer{200};

std::string without_port(const std::string& address) {
  if (address == "unix") return {};
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

http_session::http_session(http_shard& shard, client_link client, session_ended ended, bound_tag tag)
    : relay_session(shard.context, shard.sockets, shard.tls, std::move(client), std::move(ended), shard.stats),
      shard_(shard),
      tag_(std::move(tag)),
      engine_(*this, shard.gate, shard.plan, shard.stats, without_port(client_address_), *tag_) {}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void http_session::connect() {
  disconnect();
  link_ = link::connecting;
  connecting_since_ = now();
  auto begin = [self = shared_from_this(), this, mine = attempt()] {
    if (closed_ || mine != attempt()) return;
    const auto targets = shard_.upstream->endpoints();
    if (targets.empty()) return on_unreachable(shard_.upstream->why_unresolved());
    auto on_connected = [this](const result<void>& linked) {
      if (!linked) return on_unreachable(linked.error().message);
      link_ = link::open;
      engine_.on_connected();
      after_event();
    };
    dial(targets, std::move(on_connected));
  };
  asio::post(shard_.context, std::move(begin));
}

void http_session::on_unreachable(const std::string& why) {
  disconnect();
  engine_.on_unreachable(why);
  after_event();
}

void http_session::disconnect() {
  hang_up();
  link_ = link::none;
  asked_at_ = {};
}

bool http_session::link_is_quiet() {
  if (link_ != link::open || backend_.ended) return false;
  boost::system::error_code failed;
  (void)backend_.socket.receive(shard_.sockets.scratch(), failed);
  return failed == asio::error::would_block;
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool http_session::wants_client() const {
  if (client_.ended) return false;
  if (lingering_) return true;
  if (engine_.closing()) return false;
  if (backend_.unsent(engine_.to_backend) > limits::output_high_water_bytes) return false;
  if (!has_room(engine_.to_client)) return false;
  return engine_.from_client.size() < read_ahead_bytes + (engine_.blocked() ? 0 : limits::http_head_bytes_max);
}

bool http_session::wants_backend() const {
  if (link_ != link::open || backend_.ended) return false;
  return has_room(engine_.to_client);
}

void http_session::on_client_bytes(std::string_view bytes) {
  if (lingering_) {
    client_heard_ = read_at_;
    return;
  }
  engine_.from_client.append(bytes);
  const std::size_t before = engine_.from_client.size();
  engine_.on_client_bytes();
  if (engine_.from_client.size() < before) waits_for_ = waiting::nobody;  // a step further
}

void http_session::on_backend_bytes(std::string_view bytes) {
  waits_for_ = waiting::nobody;
  engine_.from_backend.append(bytes);
  engine_.on_backend_bytes();
}

void http_session::on_end(peer& of, const boost::system::error_code& why) {
  if (&of == &backend_) return engine_.on_backend_end(of.socket.is_cut_off());
  if (lingering_) return close();
  if (why != asio::error::eof) return on_client_gone();
  end_unproven_since_ = now();
  engine_.on_client_end();
}

void http_session::on_client_gone() {
  if (std::exchange(gone_, true)) return;
  client_.ended = true;
  engine_.on_client_gone();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void http_session::after_event() {
  if (closed_) return;
  if (!gone_ && !send_to_client(engine_.to_client)) on_client_gone();
  if (gone_) drop_for_client(engine_.to_client);
  if (engine_.closing()) disconnect();
  if (link_ == link::open && !backend_.ended) {
    const std::size_t before = backend_.unsent(engine_.to_backend);
    send_on(engine_.to_backend);
    if (backend_.unsent(engine_.to_backend) < before) waits_for_ = waiting::nobody;  // it has taken some
  }
  if (engine_.closing() && engine_.to_client.empty()) {
    if (!engine_.lingers() || client_.ended) return close();
    linger();
  }
  engine_.from_client.release();
  engine_.from_backend.release();
  read_on();
  if (const auto whose = turn(); whose != waits_for_) {
    waits_for_ = whose;
    waits_since_ = now();
  }
}

http_session::waiting http_session::turn() const {
  if (engine_.at_rest()) return waiting::request;
  if (engine_.awaits_head()) return waiting::head;
  if (engine_.awaits_body()) return wants_client() ? waiting::body : waiting::upstream;
  return engine_.awaits_upstream() && wants_backend() ? waiting::upstream : waiting::nobody;
}

// A close with unread bytes behind it resets the connection, and the answer may be lost.
void http_session::linger() {
  if (lingering_) return;
  lingering_ = true;
  lingers_since_ = client_heard_ = now();
  client_.socket.shutdown_send();
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void http_session::on_tick(time_point at) {
  if (closed_) return;
  enforce(at);
  after_event();
}

void http_session::enforce(time_point at) {
  const auto& times = shard_.gate.limits_time;
  if (lingering_) {
    if (over(client_heard_, linger_time, at) || over(lingers_since_, linger_most, at)) close();
    return;
  }
  if (!gone_ && client_.stalled() && over(client_.stalled_since, times.write, at)) return on_client_gone();
  if (end_unproven_since_ && over(*end_unproven_since_, quick_answer, at) && engine_.probe_client())
    end_unproven_since_.reset();
  if (link_ == link::connecting && over(connecting_since_, times.connect, at))
    return on_unreachable("connecting took too long");
  switch (waits_for_) {
    case waiting::nobody: return;
    case waiting::request:
      if (over(waits_since_, shard_.gate.keep_alive, at)) close();
      return;
    case waiting::head:
      if (over(waits_since_, times.head, at)) engine_.on_client_timeout();
      return;
    case waiting::body:
      if (over(waits_since_, shard_.gate.body_timeout, at) ||
          (engine_.body_is_costly() && over(engine_.began(), shard_.gate.request_timeout, at)))
        engine_.on_client_timeout();
      return;
    case waiting::upstream:
      if (over(waits_since_, shard_.gate.response_timeout, at)) engine_.on_upstream_timeout();
      return;
  }
}

void http_session::drain() {
  engine_.drain();
  after_event();
}

// ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────────────

void http_session::look(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  shard_.stores->look(asks_, route, wanted, later(std::move(done)));
}

void http_session::raise(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  shard_.stores->raise(asks_, route, wanted, later(std::move(done)));
}

void http_session::hold(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  auto lost = later([this](const std::optional<fence::rejection>& why) { engine_.on_hold_lost(why); });
  hold_ = shard_.stores->hold(asks_, route, wanted, later(std::move(done)), std::move(lost));
}

bool http_session::holds() { return hold_ != nullptr && hold_->alive(); }

void http_session::release() { hold_.reset(); }

void http_session::run(std::size_t route, const claims_list& wanted, route_values values, bool read_only,
                       std::function<void(const atomic_answer&)> done) {
  shard_.stores->run(asks_, route, wanted, std::move(values), read_only, later(std::move(done)));
}

void http_session::report(const fence::rejection& why, std::string_view method, std::string_view trace, bool monitor) {
  shard_.stats.checks(outcome_of(why.why)).add();
  shard_.rejections.report(shard_.gate.name, why, client_address_, method, now(), monitor, trace);
}

void http_session::access(const http_access& one) {
  if (shard_.requests_seen++ % shard_.gate.access_log_every != 0) return;
  log::event event;
  event.add("gate", shard_.gate.name).add("client", client_address_).add("method", one.method).add("path", one.path);
  if (one.status != 0) event.add("status", one.status);
  event.add("microseconds", std::chrono::duration_cast<std::chrono::microseconds>(one.took).count());
  if (one.claim != nullptr)
    event.add("resource", one.claim->resource).add("token", std::optional(one.claim->presented));
  event.add("traceparent", one.trace).write(log::level::info, "request");
}

}  // namespace fencegate::gate
