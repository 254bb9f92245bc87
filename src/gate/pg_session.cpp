#include "gate/pg_session.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <span>
#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// Of a message that is read in one piece, and then some that follow it.
constexpr std::size_t read_ahead_bytes = 64 * 1024;

}  // namespace

pg_session::pg_session(pg_shard& shard, stream::socket client, std::string client_address, session_ended ended)
    : shard_(shard),
      engine_(*this, shard.gate, shard.figures),
      accepted_(std::move(client)),
      connecting_(shard.context),
      client_(shard.sockets, *this),
      backend_(shard.sockets, *this),
      client_address_(std::move(client_address)),
      ended_(std::move(ended)),
      timer_(shard.context),
      began_(std::chrono::steady_clock::now()),
      last_heard_(began_) {}

void pg_session::start() {
  boost::system::error_code failed;
  accepted_.set_option(asio::ip::tcp::no_delay(true), failed);  // a unix socket knows no such thing
  client_.socket.take(std::move(accepted_), failed);
  if (failed) close();
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::connect() {
  link_ = link::connecting;
  began_ = now();
  auto begin = [self = shared_from_this()] {
    if (self->closed_ || self->link_ != link::connecting) return;
    const auto targets = self->shard_.control->endpoints();
    if (targets.empty()) return self->on_connect_failed(self->shard_.control->why_unresolved());
    auto on_connected = [self](const boost::system::error_code& failed, const stream::endpoint&) {
      self->on_connected(failed);
    };
    asio::async_connect(self->connecting_, targets, std::move(on_connected));
  };
  asio::post(shard_.context, std::move(begin));
}

void pg_session::on_connected(boost::system::error_code failed) {
  if (closed_ || link_ != link::connecting) return;
  if (!failed) {
    boost::system::error_code tcp_only;
    connecting_.set_option(asio::ip::tcp::no_delay(true), tcp_only);
    backend_.socket.take(std::move(connecting_), failed);
  }
  if (failed) return on_connect_failed(failed.message());
  link_ = link::open;
  engine_.on_connected();
  after_event();
}

void pg_session::on_connect_failed(const std::string& why) {
  drop_link();
  shard_.figures.rejected(metrics::connection_rejection::backend).add();
  engine_.on_unreachable(why);
  after_event();
}

void pg_session::drop_link() {
  boost::system::error_code ignored;
  connecting_.close(ignored);
  backend_.socket.close();
  link_ = link::none;
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_session::wants_client() const {
  if (client_.ended || engine_.closing()) return false;
  if (backend_.unsent(engine_.to_backend) > limits::output_high_water_bytes) return false;
  // Also while a message waits for something else: so a client that leaves is noticed.
  const std::size_t most = (engine_.blocked() ? 0 : limits::pg_statement_buffered_bytes_max) + read_ahead_bytes;
  return engine_.from_client.size() < most;
}

bool pg_session::wants_backend() const {
  if (link_ != link::open || backend_.ended || engine_.closing()) return false;
  if (engine_.from_backend.size() > limits::pg_inspected_bytes_max + read_ahead_bytes) return false;
  return client_.unsent(engine_.to_client) <= limits::output_high_water_bytes;
}

void pg_session::on_ready() {
  if (closed_) return;
  const auto self = shared_from_this();
  if (client_.socket.readable() && wants_client()) read(client_);
  if (!closed_ && backend_.socket.readable() && wants_backend()) read(backend_);
  after_event();
}

// One read at a time, so that nobody's flood holds up the others.
void pg_session::read(peer& from) {
  boost::system::error_code failed;
  const std::span<char> room = shard_.sockets.scratch();
  const std::size_t bytes = from.socket.receive(room, failed);
  if (failed == asio::error::would_block) return;
  if (failed) return on_end(from);
  if (&from == &client_) {
    last_heard_ = now();
    engine_.from_client.append({room.data(), bytes});
    engine_.on_client_bytes();
  } else {
    const bool busy = !engine_.at_rest();
    engine_.from_backend.append({room.data(), bytes});
    engine_.on_backend_bytes();
    if (busy) last_heard_ = now();  // a client that waited for an answer was not idle
  }
}

void pg_session::on_end(peer& of) {
  of.ended = true;
  if (&of == &backend_) return engine_.on_backend_end();
  // A client that has gone takes its session with it, as on the server itself: an open transaction is rolled back.
  // But one that asked for a cancel and did not wait has asked.
  if (!engine_.cancels()) close();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::after_event() {
  if (closed_) return;
  // The server's session ends at once, with whatever it holds; a message that is not whole is never made whole.
  if (engine_.closing()) drop_link();
  if (link_ == link::open && !backend_.ended && backend_.send(engine_.to_backend)) {
    // It may have said why: its last bytes are read before the end.
    backend_.forget(engine_.to_backend);
    backend_.socket.suspect();
  }
  if (client_.send(engine_.to_client)) return close();
  if (engine_.closing() && engine_.to_client.empty()) return close();
  engine_.from_client.release();
  engine_.from_backend.release();
  const bool more = (client_.socket.readable() && wants_client()) || (backend_.socket.readable() && wants_backend());
  if (more) client_.socket.again();
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::on_tick(time_point at) {
  if (closed_) return;
  const auto& times = shard_.gate.limits_time;
  const auto over = [&](time_point since, milliseconds limit) { return limit.count() != 0 && at - since > limit; };
  if (link_ == link::connecting && over(began_, times.connect)) return on_connect_failed("connecting took too long");
  if (client_.stalled() && over(client_.stalled_since, times.write)) return close();
  if (backend_.stalled() && over(backend_.stalled_since, times.write)) return close();
  if (engine_.opening() && link_ != link::connecting && over(began_, times.head)) return close();
  if (engine_.at_rest() && over(last_heard_, times.idle)) return close();
}

void pg_session::drain() {
  engine_.drain();
  after_event();
}

void pg_session::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  accepted_.close(ignored);
  client_.socket.shutdown();
  client_.socket.close();
  drop_link();
  timer_.cancel();
  ended_(shared_from_this());
}

// ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────────────

// Answers reach the engine only while the session lives, and what they make it say is sent.
template <class Call>
auto pg_session::later(Call call) {
  return [self = shared_from_this(), call = std::move(call)](auto&&... answer) {
    if (self->closed_) return;
    call(std::forward<decltype(answer)>(answer)...);
    self->after_event();
  };
}

void pg_session::ended(const std::string& database, std::int32_t pid,
                       std::function<void(std::optional<std::vector<backend::ended_registration>>)> done) {
  shard_.control->ended(shard_.context, database, pid, later(std::move(done)));
}

void pg_session::look(const std::string& database, const claims_list& claims,
                      std::function<void(std::optional<claims_list>)> done) {
  shard_.control->look(shard_.context, database, claims, later(std::move(done)));
}

void pg_session::raise(const std::string& database, const claims_list& claims,
                       std::function<void(backend::pg_raise_result)> done) {
  shard_.control->raise(shard_.context, database, claims, later(std::move(done)));
}

void pg_session::raise_ahead(const std::string& database, const claims_list& claims,
                             std::function<void(backend::pg_raise_result)> done) {
  shard_.control->raise_ahead(shard_.context, database, claims, later(std::move(done)));
}

std::optional<fence::token> pg_session::seen(const std::string& database, const std::string& resource) const {
  return shard_.control->seen(database, resource);
}

void pg_session::saw(const std::string& database, const std::string& resource, fence::token mark) {
  shard_.control->saw(database, resource, mark);
}

void pg_session::set_timer(milliseconds delay) {
  timer_.expires_after(delay);
  auto on_time = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (cancelled || self->closed_) return;
    self->engine_.on_timer();
    self->after_event();
  };
  timer_.async_wait(std::move(on_time));
}

void pg_session::report(const fence::rejection& why, std::string_view command, bool monitor) {
  shard_.figures.checks(outcome_of(why.why)).add();
  shard_.rejections.report(shard_.gate.name, why, client_address_, command, now(), monitor);
}

void pg_session::report_cut(const fence::rejection& why, applied certain) {
  // Who raises counts the armed sessions that it ended, but does not learn how many held on to the lock of a guard.
  if (shard_.gate.kept_by == settings::guard::transaction) shard_.figures.sessions_cut_total.add();
  log::write(log::level::warn, "session ended by a higher token",
             {{"gate", shard_.gate.name},
              {"resource", why.resource},
              {"token", why.presented ? why.presented->to_string() : ""},
              {"mark", why.mark ? why.mark->to_string() : ""},
              {"client", client_address_},
              {"applied", certain == applied::no ? "no" : "unknown"}});
}

}  // namespace fencegate::gate
