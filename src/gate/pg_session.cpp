#include "gate/pg_session.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

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
      client_(std::move(client)),
      backend_(stream::socket(shard.context)),
      client_address_(std::move(client_address)),
      ended_(std::move(ended)),
      timer_(shard.context),
      began_(std::chrono::steady_clock::now()),
      last_heard_(began_) {}

void pg_session::start() {
  boost::system::error_code ignored;
  client_.socket.non_blocking(true, ignored);
  client_.socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  read(client_);
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::connect() {
  connecting_ = true;
  began_ = now();
  auto begin = [self = shared_from_this()] {
    if (self->closed_) return;
    auto targets = self->shard_.control->endpoints();
    if (targets.empty()) return self->on_connect_failed(self->shard_.control->why_unresolved());
    self->connect_to(std::move(targets), 0);
  };
  asio::post(shard_.context, std::move(begin));
}

void pg_session::connect_to(std::vector<backend::pg_control::endpoint> targets, std::size_t index) {
  boost::system::error_code ignored;
  backend_.socket.close(ignored);
  const auto target = targets[index];
  backend_.socket.open(target.protocol(), ignored);
  auto on_connected = [self = shared_from_this(), targets = std::move(targets),
                       index](const boost::system::error_code& failed) mutable {
    if (self->closed_ || !self->connecting_) return;
    if (failed && index + 1 < targets.size()) return self->connect_to(std::move(targets), index + 1);
    if (failed) return self->on_connect_failed(failed.message());
    boost::system::error_code tcp_only;
    self->backend_.socket.non_blocking(true, tcp_only);
    self->backend_.socket.set_option(asio::ip::tcp::no_delay(true), tcp_only);
    self->connecting_ = false;
    self->connected_ = true;
    self->engine_.on_connected();
    self->after_event();
  };
  backend_.socket.async_connect(target, std::move(on_connected));
}

void pg_session::on_connect_failed(const std::string& why) {
  connecting_ = false;
  boost::system::error_code ignored;
  backend_.socket.close(ignored);
  shard_.figures.rejected(metrics::connection_rejection::backend).add();
  engine_.on_unreachable(why);
  after_event();
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_session::wants_client() const {
  if (client_.ended || engine_.closing()) return false;
  if (engine_.to_backend.size() - backend_.sent > limits::output_high_water_bytes) return false;
  // Also while a message waits for something else: so a client that leaves is noticed.
  const std::size_t most = (engine_.blocked() ? 0 : limits::pg_statement_buffered_bytes_max) + read_ahead_bytes;
  return engine_.from_client.size() < most;
}

bool pg_session::wants_backend() const {
  if (!connected_ || backend_.ended || engine_.closing()) return false;
  if (engine_.from_backend.size() > limits::pg_inspected_bytes_max + read_ahead_bytes) return false;
  return engine_.to_client.size() - client_.sent <= limits::output_high_water_bytes;
}

void pg_session::read(peer& from) {
  if (from.reading || from.ended || closed_) return;
  from.reading = true;
  auto on_bytes = [self = shared_from_this(), &from](const boost::system::error_code& failed) {
    from.reading = false;
    if (self->closed_) return;
    if (failed) return self->on_end(from);
    self->on_readable(from);
  };
  from.socket.async_wait(stream::socket::wait_read, std::move(on_bytes));
}

void pg_session::on_readable(peer& from) {
  auto& into = &from == &client_ ? engine_.from_client : engine_.from_backend;
  char* const room = into.prepare(limits::read_buffer_bytes_max);
  boost::system::error_code failed;
  const std::size_t bytes = from.socket.read_some(asio::buffer(room, limits::read_buffer_bytes_max), failed);
  if (failed == asio::error::would_block) {
    into.release();
    return after_event();
  }
  if (failed) {
    into.release();
    return on_end(from);
  }
  into.commit(bytes);
  if (&from == &client_) {
    last_heard_ = now();
    engine_.on_client_bytes();
  } else {
    const bool busy = !engine_.at_rest();
    engine_.on_backend_bytes();
    if (busy) last_heard_ = now();  // a client that waited for an answer was not idle
  }
  after_event();
}

void pg_session::on_end(peer& of) {
  of.ended = true;
  // A client that has gone takes its session with it, as on the server itself: an open transaction is rolled back.
  // But one that asked for a cancel and did not wait has asked.
  if (&of == &client_ && engine_.cancels()) return;
  if (&of == &client_) return close();
  engine_.on_backend_end();
  after_event();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::after_event() {
  if (closed_) return;
  if (engine_.closing()) {
    // The server's session ends at once, with whatever it holds; a message that is not whole is never made whole.
    boost::system::error_code ignored;
    backend_.socket.close(ignored);
    connected_ = connecting_ = false;
  }
  if (connected_ && !backend_.ended) send(backend_, engine_.to_backend);
  if (closed_) return;
  send(client_, engine_.to_client);
  if (closed_) return;
  if (engine_.closing() && engine_.to_client.empty()) return close();
  engine_.from_client.release();
  engine_.from_backend.release();
  if (wants_client()) read(client_);
  if (wants_backend()) read(backend_);
}

void pg_session::send(peer& to, std::string& bytes) {
  while (!to.writing && to.sent < bytes.size()) {
    boost::system::error_code failed;
    to.sent += to.socket.write_some(asio::buffer(bytes.data() + to.sent, bytes.size() - to.sent), failed);
    if (failed == asio::error::would_block) {
      to.writing = true;
      to.stalled_since = now();
      auto on_writable = [self = shared_from_this(), &to](const boost::system::error_code& wrong) {
        to.writing = false;
        if (self->closed_) return;
        if (wrong && &to == &self->client_) return self->close();
        self->engine_.resume();
        self->after_event();
      };
      to.socket.async_wait(stream::socket::wait_write, std::move(on_writable));
    } else if (failed && &to == &backend_) {
      // It may have said why: its last bytes are read before the end.
      bytes.clear();
      to.sent = 0;
      return read(backend_);
    } else if (failed) {
      return close();
    }
  }
  constexpr std::size_t kept_bytes = 16 * 1024;
  if (to.sent == bytes.size()) {
    if (bytes.capacity() > kept_bytes)
      std::string().swap(bytes);
    else
      bytes.clear();
    to.sent = 0;
  } else if (to.sent > limits::output_high_water_bytes) {
    bytes.erase(0, to.sent);
    to.sent = 0;
  }
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::on_tick(time_point at) {
  if (closed_) return;
  const auto& times = shard_.gate.limits_time;
  const auto over = [&](time_point since, milliseconds limit) { return limit.count() != 0 && at - since > limit; };
  if (connecting_ && over(began_, times.connect)) return on_connect_failed("connecting took too long");
  if (client_.writing && over(client_.stalled_since, times.write)) return close();
  if (backend_.writing && over(backend_.stalled_since, times.write)) return close();
  if (engine_.opening() && !connecting_ && over(began_, times.head)) return close();
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
  client_.socket.shutdown(stream::socket::shutdown_both, ignored);
  client_.socket.close(ignored);
  backend_.socket.close(ignored);
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
                       std::function<void(std::optional<wire::pg_error>)> done) {
  shard_.control->raise(shard_.context, database, claims, later(std::move(done)));
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
  log::write(log::level::warn, "session ended by a higher token",
             {{"gate", shard_.gate.name},
              {"resource", why.resource},
              {"token", why.presented ? why.presented->to_string() : ""},
              {"mark", why.mark ? why.mark->to_string() : ""},
              {"client", client_address_},
              {"applied", certain == applied::no ? "no" : "unknown"}});
}

}  // namespace fencegate::gate
