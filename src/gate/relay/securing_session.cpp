#include "gate/relay/securing_session.hpp"

#include "backend/plain_answer.hpp"
#include "backend/tls_handshake.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace fencegate::gate {
namespace {

constexpr char tls_record = 0x16;  // the first byte of a handshake

}  // namespace

securing_session::securing_session(client_link client, backend::tls_server_context& tls, const protocol& spoken,
                                   std::chrono::milliseconds limit, done_callback done)
    : socket_(std::make_shared<stream::socket>(std::move(client.socket))),
      address_(std::move(client.address)),
      tls_(tls),
      protocol_(spoken),
      until_(std::chrono::steady_clock::now() + limit),
      done_(std::move(done)) {}

void securing_session::start() {
  boost::system::error_code failed;
  socket_->native_non_blocking(true, failed);
  failed ? fail(failed.message()) : wait();
}

void securing_session::on_tick(std::chrono::steady_clock::time_point now) {
  if (now > until_)
    fail(shakes_ ? "TLS: the client has not finished the handshake in time"
                 : "TLS: the client has said nothing in time");
}

// ── in plain text ───────────────────────────────────────────────────────────────────────────────────────────────────

void securing_session::wait() {
  socket_->async_wait(stream::socket::wait_read, [self = shared_from_this()](const boost::system::error_code& failed) {
    if (!self->done_) return;
    failed ? self->fail({}) : self->on_readable();
  });
}

bool securing_session::peek(char& first) {
  return ::recv(socket_->native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

void securing_session::on_readable() {
  char first = 0;
  const std::size_t wanted = protocol_.opening_bytes();
  if (said_.empty()) {
    if (!peek(first)) return errno == EAGAIN ? wait() : fail({});
    if (wanted == 0 && backend::begins_in_plain_text(socket_->native_handle()))
      if (const auto words = protocol_.told_to_use_tls(); !words.empty()) return tell_in_plain_text(words);
    if (wanted == 0 || first == tls_record) return secure(wanted != 0);
  }
  std::array<char, 64> room{};
  const auto bytes = ::recv(socket_->native_handle(), room.data(), wanted - said_.size(), MSG_DONTWAIT);
  if (bytes <= 0) return bytes < 0 && errno == EAGAIN ? wait() : fail({});
  said_.append(room.data(), static_cast<std::size_t>(bytes));
  said_.size() < wanted ? wait() : judge();
}

void securing_session::judge() {
  using opening = protocol::opening;
  std::string answer;
  const auto what = protocol_.judge_opening(said_, answer);
  if (what == opening::passes) return finish(client_link{std::move(*socket_), address_, nullptr, std::move(said_)});
  // Somebody on the way may have put it there, to be taken for the client's (CVE-2021-23214).
  char behind = 0;
  if (what == opening::secures && peek(behind))
    return fail("TLS: the client sent plain text behind its request for TLS");
  const auto sent = ::send(socket_->native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(answer.size())) return fail("TLS: the client takes no answer");
  said_.clear();
  if (what == opening::secures) return secure(false);
  if (what == opening::asks) return wait();
  // What is not read would take the answer back with the connection.
  ::shutdown(socket_->native_handle(), SHUT_WR);
  std::array<char, 16 * 1024> rest;
  static_cast<void>(::recv(socket_->native_handle(), rest.data(), rest.size(), MSG_DONTWAIT));
  fail("TLS: the client does not ask for it: what came is plain text, or something else");
}

void securing_session::tell_in_plain_text(const std::string& words) {
  auto told = [self = shared_from_this()] { self->fail("TLS: the client does not speak it: it sent plain HTTP"); };
  backend::answer_in_plain_text(socket_, words, std::move(told));
}

// ── the handshake ───────────────────────────────────────────────────────────────────────────────────────────────────

void securing_session::secure(bool asks_for_protocol) {
  shakes_ = true;
  auto over = tls_.accept(socket_->native_handle(), asks_for_protocol);
  if (!over) return fail(over.error().message);
  backend::shake_hands(socket_, std::move(*over),
                       [self = shared_from_this()](result<std::unique_ptr<backend::tls_stream>> secured) {
                         if (!self->done_) return;
                         if (!secured) return self->fail(secured.error().message);
                         self->finish(client_link{std::move(*self->socket_), self->address_, std::move(*secured), {}});
                       });
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void securing_session::fail(const std::string& why) {
  if (!done_) return;
  const auto self = shared_from_this();
  auto outcome = result<client_link>(error{why});
  boost::system::error_code ignored;
  socket_->close(ignored);
  finish(std::move(outcome));
}

void securing_session::finish(result<client_link> outcome) {
  const auto self = shared_from_this();
  std::exchange(done_, nullptr)(self, std::move(outcome));
}

}  // namespace fencegate::gate
