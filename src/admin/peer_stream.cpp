#include "admin/peer_stream.hpp"

#include "backend/plain_answer.hpp"
#include "backend/tls_handshake.hpp"

#include <string>

namespace fencegate::admin {
namespace {

std::string answer_to_plain_text() {
  const std::string body = std::string(backend::plain_http_on_tls) + "\n";
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace

using boost::system::error_code;

// ── what is under way ───────────────────────────────────────────────────────────────────────────────────────────────

void peer_stream::link::begin() {
  demand(!under_way, "a peer is read or written by one at a time");
  under_way = true;
  const auto number = ++operations;
  if (deadline == clock::time_point::max()) return;
  if (deadline <= clock::now()) {
    late = true;
    return close();
  }
  timer.expires_at(deadline);
  timer.async_wait([weak = weak_from_this(), number](const error_code& cancelled) {
    const auto self = weak.lock();
    // It may have been done when this was on its way.
    if (cancelled || !self || !self->under_way || self->operations != number) return;
    self->late = true;
    self->close();
  });
}

error_code peer_stream::link::end(const error_code& failed) {
  under_way = false;
  timer.cancel();
  return late ? error_code(boost::asio::error::timed_out) : failed;
}

void peer_stream::link::close() {
  bytes.close();
  error_code ignored;
  socket->close(ignored);
}

// ── the stream ──────────────────────────────────────────────────────────────────────────────────────────────────────

peer_stream::peer_stream(any_stream::socket of) : link_(std::make_shared<link>(std::move(of))) {
  link_->bytes = backend::secured_socket(link_->socket, nullptr);
}

void peer_stream::shake_hands(backend::tls_server_context& by, std::function<void(result<void>)> done) {
  if (backend::begins_in_plain_text(link_->socket->native_handle())) {
    link_->begin();
    return backend::answer_in_plain_text(link_->socket, answer_to_plain_text(), [on = link_, done = std::move(done)] {
      static_cast<void>(on->end({}));
      done(error{"TLS: the client does not speak it: it sent plain HTTP"});
    });
  }
  auto over = by.accept(link_->socket->native_handle());
  if (!over) return done(over.error());
  link_->begin();
  backend::shake_hands(link_->socket, std::move(*over),
                       [on = link_, done = std::move(done)](result<std::unique_ptr<backend::tls_stream>> secured) {
                         const auto failed = on->end({});
                         if (failed) return done(error{"TLS: the peer has not finished the handshake in time"});
                         if (!on->bytes.is_open()) return done(error{""});
                         if (!secured) return done(secured.error());
                         on->bytes.secure(std::move(*secured));
                         on->secured = true;
                         done({});
                       });
}

void peer_stream::shutdown_send() {
  if (link_->bytes.is_open()) link_->bytes.shutdown_send();
}

any_stream::socket peer_stream::release_socket() {
  demand(!link_->secured && !link_->under_way, "a socket that is given away is nobody's");
  return std::move(*link_->socket);
}

}  // namespace fencegate::admin
