#include "gate/http_session.hpp"

#include "base/limits.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <span>
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

std::string without_port(const std::string& address) {
  if (address == "unix") return {};
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

http_session::http_session(http_shard& shard, stream::socket client, std::string client_address, session_ended ended)
    : shard_(shard),
      engine_(*this, shard.gate, shard.plan, shard.figures, without_port(client_address)),
      accepted_(std::move(client)),
      connecting_(shard.context),
      client_(shard.sockets, *this),
      backend_(shard.sockets, *this),
      client_address_(std::move(client_address)),
      ended_(std::move(ended)) {}

void http_session::start() {
  boost::system::error_code failed;
  accepted_.set_option(asio::ip::tcp::no_delay(true), failed);  // a unix socket knows no such thing
  client_.socket.take(std::move(accepted_), failed);
  if (failed) return close();
  after_event();
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void http_session::connect() {
  disconnect();
  link_ = link::connecting;
  connecting_since_ = now();
  auto begin = [self = shared_from_this(), mine = ++attempt_] {
    if (self->closed_ || mine != self->attempt_) return;
    const auto targets = self->shard_.upstream->endpoints();
    if (targets.empty()) {
      self->disconnect();
      self->engine_.on_unreachable(self->shard_.upstream->why_unresolved());
      return self->after_event();
    }
    auto on_connected = [self, mine](const boost::system::error_code& failed, const stream::endpoint&) {
      self->on_connected(mine, failed);
    };
    asio::async_connect(self->connecting_, targets, std::move(on_connected));
  };
  asio::post(shard_.context, std::move(begin));
}

void http_session::on_connected(std::uint64_t attempt, boost::system::error_code failed) {
  if (closed_ || attempt != attempt_) return;
  if (!failed) {
    boost::system::error_code tcp_only;
    connecting_.set_option(asio::ip::tcp::no_delay(true), tcp_only);
    backend_.socket.take(std::move(connecting_), failed);
  }
  if (failed) {
    disconnect();
    engine_.on_unreachable(failed.message());
  } else {
    link_ = link::open;
    backend_.ended = false;
    backend_.sent = 0;
    engine_.on_connected();
  }
  after_event();
}

void http_session::disconnect() {
  ++attempt_;
  link_ = link::none;
  boost::system::error_code ignored;
  connecting_.close(ignored);
  backend_.socket.close();
  backend_.sent = 0;
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
  if (client_.unsent(engine_.to_client) > limits::output_high_water_bytes) return false;
  return engine_.from_client.size() < read_ahead_bytes + (engine_.blocked() ? 0 : limits::http_head_bytes_max);
}

bool http_session::wants_backend() const {
  if (link_ != link::open || backend_.ended) return false;
  return client_.unsent(engine_.to_client) <= limits::output_high_water_bytes;
}

void http_session::on_ready() {
  if (closed_) return;
  const auto self = shared_from_this();
  if (client_.socket.readable() && wants_client()) read(client_);
  if (!closed_ && backend_.socket.readable() && wants_backend()) read(backend_);
  after_event();
}

// One read at a time, so that nobody's flood holds up the others.
void http_session::read(peer& from) {
  boost::system::error_code failed;
  const std::span<char> room = shard_.sockets.scratch();
  const std::size_t bytes = from.socket.receive(room, failed);
  if (failed == asio::error::would_block) return;
  if (failed) return on_end(from);
  if (&from == &client_) {
    if (lingering_) {
      client_heard_ = now();
      return;
    }
    engine_.from_client.append({room.data(), bytes});
    const std::size_t before = engine_.from_client.size();
    engine_.on_client_bytes();
    if (engine_.from_client.size() < before) waits_for_ = waiting::nobody;  // a step further
  } else {
    waits_for_ = waiting::nobody;
    engine_.from_backend.append({room.data(), bytes});
    engine_.on_backend_bytes();
  }
}

void http_session::on_end(peer& of) {
  of.ended = true;
  if (&of == &backend_) return engine_.on_backend_end();
  if (lingering_) return close();
  engine_.on_client_end();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void http_session::after_event() {
  if (closed_) return;
  if (engine_.closing()) disconnect();
  if (link_ == link::open && !backend_.ended) {
    const std::size_t before = backend_.unsent(engine_.to_backend);
    if (backend_.send(engine_.to_backend)) {
      // It may have said why: its last bytes are read before the end.
      backend_.forget(engine_.to_backend);
      backend_.socket.suspect();
    }
    if (backend_.unsent(engine_.to_backend) < before) waits_for_ = waiting::nobody;  // it has taken some
  }
  if (client_.send(engine_.to_client)) return close();
  if (engine_.closing() && engine_.to_client.empty()) {
    if (!engine_.lingers() || client_.ended) return close();
    linger();
  }
  engine_.from_client.release();
  engine_.from_backend.release();
  const bool more = (client_.socket.readable() && wants_client()) || (backend_.socket.readable() && wants_backend());
  if (more) client_.socket.again();
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
  const auto over = [&](time_point since, milliseconds limit) { return limit.count() != 0 && at - since > limit; };
  if (lingering_) {
    if (over(client_heard_, linger_time) || over(lingers_since_, linger_most)) close();
    return;
  }
  if (client_.stalled() && over(client_.stalled_since, times.write)) return close();
  if (link_ == link::connecting && over(connecting_since_, times.connect)) {
    disconnect();
    return engine_.on_unreachable("connecting took too long");
  }
  switch (waits_for_) {
    case waiting::nobody: return;
    case waiting::request:
      if (over(waits_since_, shard_.gate.keep_alive)) close();
      return;
    case waiting::head:
      if (over(waits_since_, times.head)) engine_.on_client_timeout();
      return;
    case waiting::body:
      if (over(waits_since_, shard_.gate.body_timeout) ||
          (engine_.body_is_costly() && over(engine_.began(), shard_.gate.request_timeout)))
        engine_.on_client_timeout();
      return;
    case waiting::upstream:
      if (over(waits_since_, shard_.gate.response_timeout)) engine_.on_upstream_timeout();
      return;
  }
}

void http_session::drain() {
  engine_.drain();
  after_event();
}

void http_session::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  accepted_.close(ignored);
  disconnect();
  hold_.reset();
  client_.socket.shutdown();
  client_.socket.close();
  ended_(shared_from_this());
}

// ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────────────

// Answers reach the engine only while the session lives, and what they make it say is sent.
template <class Call>
auto http_session::later(Call call) {
  return [self = shared_from_this(), call = std::move(call)](auto&&... answer) {
    if (self->closed_) return;
    call(std::forward<decltype(answer)>(answer)...);
    self->after_event();
  };
}

void http_session::look(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  shard_.stores->look(weak_from_this(), route, wanted, later(std::move(done)));
}

void http_session::raise(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  shard_.stores->raise(weak_from_this(), route, wanted, later(std::move(done)));
}

void http_session::hold(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) {
  auto lost = later([this](std::string_view why) { engine_.on_hold_lost(why); });
  hold_ = shard_.stores->hold(weak_from_this(), route, wanted, later(std::move(done)), std::move(lost));
}

bool http_session::holds() { return hold_ != nullptr && hold_->alive(); }

void http_session::release() { hold_.reset(); }

void http_session::run(std::size_t route, const claims_list& wanted, std::vector<std::string> values, bool read_only,
                       std::function<void(const atomic_answer&)> done) {
  shard_.stores->run(weak_from_this(), route, wanted, std::move(values), read_only, later(std::move(done)));
}

void http_session::report(const fence::rejection& why, std::string_view method, bool monitor) {
  shard_.figures.checks(outcome_of(why.why)).add();
  shard_.rejections.report(shard_.gate.name, why, client_address_, method, now(), monitor);
}

}  // namespace fencegate::gate
