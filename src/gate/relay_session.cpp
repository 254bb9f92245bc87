#include "gate/relay_session.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <span>

namespace fencegate::gate {

namespace asio = boost::asio;

namespace {

// REQUIRES: `from` is open, `to` is not.
result<void> take_over(peer& to, stream::socket& from, std::unique_ptr<backend::tls_stream> secured) {
  boost::system::error_code failed, tcp_only;
  from.set_option(asio::ip::tcp::no_delay(true), tcp_only);  // a unix socket knows no such thing
  to.socket.take(std::move(from), std::move(secured), failed);
  if (failed) return error{failed.message()};
  return {};
}

}  // namespace

relay_session::relay_session(asio::io_context& context, poller& sockets, stream::socket client,
                             std::string client_address, session_ended ended)
    : client_(sockets, *this),
      backend_(sockets, *this),
      client_address_(std::move(client_address)),
      context_(context),
      sockets_(sockets),
      accepted_(std::move(client)),
      ended_(std::move(ended)) {}

void relay_session::start() {
  if (!take_over(client_, accepted_, nullptr)) return close();
  on_started();
}

void relay_session::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  accepted_.close(ignored);
  hang_up();
  on_close();
  client_.socket.shutdown();
  client_.socket.close();
  ended_(shared_from_this());
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void relay_session::dial(const std::vector<stream::endpoint>& targets, std::function<void(const result<void>&)> done) {
  connecting_ = std::make_shared<stream::socket>(context_);
  const auto wanted = [self = shared_from_this(), mine = attempt_] { return !self->closed_ && mine == self->attempt_; };
  auto on_secured = [this, wanted, done](result<std::unique_ptr<backend::tls_stream>> link) {
    if (!wanted()) return;
    backend_.ended = false;
    const auto fresh = std::exchange(connecting_, nullptr);
    done(link ? take_over(backend_, *fresh, std::move(*link)) : result<void>(link.error()));
  };
  auto on_connected = [this, wanted, done = std::move(done), on_secured, fresh = connecting_](
                          const boost::system::error_code& failed, const stream::endpoint&) {
    if (!wanted()) return;
    if (failed) return done(error{failed.message()});
    secure(fresh, on_secured);
  };
  asio::async_connect(*connecting_, targets, std::move(on_connected));
}

void relay_session::hang_up() {
  ++attempt_;
  boost::system::error_code ignored;
  if (connecting_ != nullptr) connecting_->close(ignored);
  connecting_ = nullptr;
  backend_.socket.close();
  backend_.sent = 0;
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void relay_session::on_ready() {
  if (closed_) return;
  const auto self = shared_from_this();
  before_event();
  if (client_.socket.readable() && wants_client()) read(client_);
  if (!closed_ && backend_.socket.readable() && wants_backend()) read(backend_);
  after_event();
}

// One read at a time, so that nobody's flood holds up the others.
void relay_session::read(peer& from) {
  boost::system::error_code failed;
  const std::span<char> room = sockets_.scratch();
  const std::size_t bytes = from.socket.receive(room, failed);
  if (failed == asio::error::would_block) return;
  if (failed) {
    from.ended = true;
    return on_end(from, failed);
  }
  if (&from == &client_) return on_client_bytes({room.data(), bytes});
  on_backend_bytes({room.data(), bytes});
}

void relay_session::read_on() {
  const bool more = (client_.socket.readable() && wants_client()) || (backend_.socket.readable() && wants_backend());
  if (more) client_.socket.again();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void relay_session::send_to_backend(std::string& bytes) {
  if (!backend_.send(bytes)) return;
  backend_.forget(bytes);
  backend_.socket.suspect();
}

}  // namespace fencegate::gate
