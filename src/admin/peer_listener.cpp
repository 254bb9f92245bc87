#include "admin/peer_listener.hpp"

#include "base/log.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/error.hpp>
#include <sys/socket.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace fencegate::admin {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

tcp::endpoint tcp_endpoint_of(const any_stream::endpoint& from) {
  tcp::endpoint out;
  if (from.size() > out.capacity()) return out;
  std::memcpy(out.data(), from.data(), from.size());
  out.resize(from.size());
  return out;
}

}  // namespace

bool is_local(const any_stream::socket& peer) {
  error_code gone;
  const auto from = peer.remote_endpoint(gone);
  if (gone) return false;
  if (from.protocol().family() == AF_UNIX) return true;
  const auto a = tcp_endpoint_of(from).address();
  if (a.is_v6() && a.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, a.to_v6()).is_loopback();
  return a.is_loopback();
}

std::string peer_name(const any_stream::socket& peer) {
  error_code gone;
  const auto from = peer.remote_endpoint(gone);
  if (from.protocol().family() == AF_UNIX) return "unix";
  const auto at = tcp_endpoint_of(from);
  const std::string host = at.address().to_string();
  return (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port());
}

std::string peer_process(any_stream::socket& peer) {
  ::ucred process{};
  ::socklen_t bytes = sizeof process;
  const auto name = peer_name(peer);
  if (name != "unix" || ::getsockopt(peer.native_handle(), SOL_SOCKET, SO_PEERCRED, &process, &bytes) != 0) return name;
  return name + ", process " + std::to_string(process.pid) + " of user " + std::to_string(process.uid);
}

unsigned status_of_unread(const error_code& failed) {
  if (failed == http::error::header_limit || failed == http::error::buffer_overflow) return 431;
  if (failed == http::error::unexpected_body || failed == http::error::body_limit) return 413;
  if (failed == http::error::end_of_stream || failed == http::error::partial_message) return 0;
  return failed.category() == make_error_code(http::error::bad_method).category() ? 400 : 0;
}

peer_listener::place::~place() {
  if (!owner_) return;
  owner_->peers_.erase(at_);
  owner_->spare_.take();
}

void peer_listener::place::wait_for_request() const {
  // The one waiting longest is the first in the list.
  owner_->peers_.splice(owner_->peers_.end(), owner_->peers_, at_);
  at_->waiting = true;
}

peer_listener::peer_listener(asio::io_context& io, settings::address listen, metrics::process& process,
                             std::string name, std::size_t peers_max)
    : io_(io),
      acceptor_(io),
      retry_(io),
      listen_(std::move(listen)),
      process_(process),
      name_(std::move(name)),
      peers_max_(peers_max) {}

result<void> peer_listener::start(serve accepted, std::optional<::mode_t> mode) {
  auto opened = listening_socket::open(listen_, mode);
  if (!opened) return error{name_ + ": " + opened.error().message};
  listener_.emplace(std::move(*opened));
  port_ = listener_->port();
  error_code failed;
  acceptor_.assign(any_stream(listener_->family(), 0), listener_->release(), failed);
  if (failed) return error{name_ + ": " + failed.message()};
  serve_ = std::move(accepted);
  asio::co_spawn(io_, accept_all(shared_from_this()), asio::detached);
  return {};
}

void peer_listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
  listener_.reset();
  retry_.cancel();
  for (peer& one : peers_) one.stream.close();
  serve_ = nullptr;
}

asio::awaitable<void> peer_listener::accept_all(std::shared_ptr<peer_listener> self) {
  while (self->acceptor_.is_open()) {
    auto [failed, socket] = co_await self->acceptor_.async_accept(no_throw);
    if (failed == asio::error::operation_aborted || !self->serve_) co_return;
    if (failed && !self->accept_with_spare(socket)) {
      log::write(log::level::warn, "connection not accepted", {{"listener", self->name_}, {"error", failed.message()}});
      self->retry_.expires_after(std::chrono::milliseconds(100));
      co_await self->retry_.async_wait(no_throw);
      continue;
    }
    if (self->make_room()) {
      const auto at = self->peers_.emplace(self->peers_.end(), std::move(socket));
      self->tls_ == nullptr ? self->serve_(place(self, at)) : self->secure(place(self, at));
    }
  }
}

void peer_listener::secure(place at) {
  at.wait_for_hands();
  const auto kept = std::make_shared<place>(std::move(at));
  kept->stream().expires_after(handshake_time_);
  // Asked now: a connection that has ended has no name.
  const std::string name = peer_name(kept->stream().socket());
  kept->stream().async_wait_for_bytes([this, kept, name](const error_code& failed, std::size_t) {
    if (!serve_) return;
    if (failed == asio::error::timed_out)
      note_no_tls(name, "TLS: the client has said nothing in time");
    else if (!failed)
      shake_hands(kept, name);
  });
}

void peer_listener::shake_hands(const std::shared_ptr<place>& at, const std::string& name) {
  at->hands_are_offered();
  at->stream().shake_hands(*tls_, [this, at, name, tls = tls_](const result<void>& done) {
    if (!serve_) return;
    if (done)
      serve_(std::move(*at));
    else if (const auto& why = done.error().message; !why.empty())
      note_no_tls(name, why);
  });
}

void peer_listener::note_no_tls(const std::string& peer, const std::string& why) {
  process_.admin_tls_rejected_total.add();
  const auto others = no_tls_logged_.due(std::chrono::steady_clock::now());
  if (!others) return;
  log::event event;
  event.add("listener", name_).add("client", peer).add("detail", why);
  if (*others != 0) event.add("others_before", *others);
  event.write(log::level::warn, "a client was not served through TLS");
}

// The process has no file descriptor left, most likely: there is one for a peer at a time.
bool peer_listener::accept_with_spare(any_stream::socket& into) {
  process_.files_short.note();
  spare_.give_up();
  const int socket = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket < 0) return false;
  error_code failed;
  into.assign(any_stream(listener_->family(), 0), socket, failed);
  if (failed) ::close(socket);
  return !failed;
}

// False: everyone is being served at this moment, and the new connection is dropped.
bool peer_listener::make_room() {
  if (peers_.size() < peers_max_) return true;
  const auto oldest = [this](auto may_go) { return std::find_if(peers_.begin(), peers_.end(), may_go); };
  auto goes = oldest([](const peer& one) { return one.silent; });
  if (goes == peers_.end()) goes = oldest([](const peer& one) { return one.waiting; });
  if (goes == peers_.end()) return false;
  goes->stream.close();
  goes->waiting = goes->silent = false;
  return true;
}

}  // namespace fencegate::admin
