#include "gate/relay/refused_session.hpp"

#include <boost/asio/error.hpp>

#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// From accept to what it asks for; and from the answer to its end.
constexpr milliseconds refused_silent_most{10'000}, refused_linger_most{2'000};
constexpr std::size_t refused_bytes_max = 64 * 1024;

}  // namespace

refused_session::refused_session(client_link client, words said, session_ended ended)
    : client_(std::make_shared<stream::socket>(std::move(client.socket)), std::move(client.secured)),
      words_(std::move(said)),
      ended_(std::move(ended)),
      from_client_(std::move(client.read_ahead)) {}

void refused_session::start() { from_client_.empty() ? read() : answer(); }

void refused_session::read() {
  client_.wait_to_receive([self = shared_from_this()](const boost::system::error_code& failed) {
    if (self->closed_) return;
    if (failed) return self->close();
    self->on_readable();
  });
}

// What comes behind the answer is read and dropped: else the kernel would take the answer back with the connection.
void refused_session::on_readable() {
  boost::system::error_code failed;
  const std::size_t bytes = client_.receive(room_, failed);
  if (failed && failed != asio::error::would_block) return close();
  if (failed || said_) return read();
  from_client_.append(room_.data(), bytes);
  if (from_client_.size() > refused_bytes_max) return close();
  answer();
}

void refused_session::answer() {
  said_ = words_(from_client_, to_client_);
  if (to_client_.empty()) return said_ ? close() : read();
  write();
}

void refused_session::write() {
  boost::system::error_code failed;
  while (!to_client_.empty() && !failed) to_client_.erase(0, client_.send(to_client_, failed));
  if (failed == asio::error::would_block)
    return client_.wait_to_send([self = shared_from_this()](const boost::system::error_code& lost) {
      if (self->closed_) return;
      lost ? self->close() : self->write();
    });
  if (failed) return close();
  if (said_) since_ = std::chrono::steady_clock::now();
  if (said_) client_.shutdown_send();
  read();
}

void refused_session::on_tick(std::chrono::steady_clock::time_point now) {
  if (now - since_ > (said_ ? refused_linger_most : refused_silent_most)) close();
}

void refused_session::close() {
  if (std::exchange(closed_, true)) return;
  client_.close();
  ended_(shared_from_this());
}

}  // namespace fencegate::gate
