#include "gate/relay/refused_session.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// From accept to what it asks for; and from the answer to its end.
constexpr milliseconds refused_silent_most{10'000}, refused_linger_most{2'000};
constexpr std::size_t refused_bytes_max = 64 * 1024;

}  // namespace

refused_session::refused_session(stream::socket client, words said, session_ended ended)
    : client_(std::move(client)), words_(std::move(said)), ended_(std::move(ended)) {}

void refused_session::read() {
  auto on_some = [self = shared_from_this()](const boost::system::error_code& failed, std::size_t bytes) {
    if (self->closed_) return;
    if (failed) return self->close();
    self->on_read(bytes);
  };
  client_.async_read_some(asio::buffer(room_), std::move(on_some));
}

// What comes behind the answer is read and dropped: else the kernel would take the answer back with the connection.
void refused_session::on_read(std::size_t bytes) {
  if (said_) return read();
  from_client_.append(room_.data(), bytes);
  if (from_client_.size() > refused_bytes_max) return close();
  said_ = words_(from_client_, to_client_);
  if (to_client_.empty()) return said_ ? close() : read();
  write();
}

void refused_session::write() {
  auto on_written = [self = shared_from_this()](const boost::system::error_code& failed, std::size_t) {
    if (self->closed_) return;
    if (failed) return self->close();
    self->to_client_.clear();
    if (self->said_) self->since_ = std::chrono::steady_clock::now();
    boost::system::error_code ignored;
    if (self->said_) self->client_.shutdown(stream::socket::shutdown_send, ignored);
    self->read();
  };
  asio::async_write(client_, asio::buffer(to_client_), std::move(on_written));
}

void refused_session::on_tick(std::chrono::steady_clock::time_point now) {
  if (now - since_ > (said_ ? refused_linger_most : refused_silent_most)) close();
}

void refused_session::close() {
  if (std::exchange(closed_, true)) return;
  boost::system::error_code ignored;
  client_.close(ignored);
  ended_(shared_from_this());
}

}  // namespace fencegate::gate
