#include "gate/relay/relay_session.hpp"

#include "base/limits.hpp"

#include <boost/asio/error.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace fencegate::gate {

namespace asio = boost::asio;

relay_session::relay_session(asio::io_context& context, poller& sockets, std::shared_ptr<backend::tls_context> tls,
                             client_link client, session_ended ended, metrics::gate& stats)
    : link_owner(context, sockets, std::move(tls)),
      client_(sockets, *this),
      client_address_(std::move(client.address)),
      sockets_(sockets),
      accepted_(std::move(client)),
      ended_(std::move(ended)),
      gate_stats_(stats) {}

void relay_session::start() {
  if (!take_over(client_, accepted_.socket, std::move(accepted_.secured))) return close();
  on_started();
  if (closed_ || accepted_.read_ahead.empty()) return;
  const auto self = shared_from_this();
  before_event();
  on_client_bytes(std::exchange(accepted_.read_ahead, {}));
  after_event();
}

void relay_session::close() {
  if (closed_) return;
  closed_ = true;
  share_ = {};
  boost::system::error_code ignored;
  accepted_.socket.close(ignored);
  hang_up();
  on_close();
  client_.socket.shutdown();
  client_.socket.close();
  ended_(std::shared_ptr<session>(shared_from_this(), this));
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void relay_session::on_ready() {
  if (closed_) return;
  const auto self = shared_from_this();
  before_event();
  if (client_.socket.readable() && wants_client()) read(client_);
  if (!closed_ && backend_.socket.readable() && wants_backend()) read(backend_);
  if (!closed_ && client_.socket.is_gone()) on_client_gone();
  after_event();
}

// One read at a time, so that nobody's flood holds up the others.
void relay_session::read(peer& from) {
  boost::system::error_code failed;
  const std::span<char> room = sockets_.scratch().first(unread_bytes::read_at_once());
  const std::size_t bytes = from.socket.receive(room, failed);
  if (failed == asio::error::would_block) return;
  if (failed) {
    from.ended = true;
    if (&from == &backend_) asked_at_ = {};
    return on_end(from, failed);
  }
  if (&from == &client_) {
    read_at_ = std::chrono::steady_clock::now();
    return on_client_bytes({room.data(), bytes});
  }
  if (asked_at_ != time_point{})
    gate_stats_.backend_seconds.observe(std::chrono::steady_clock::now() - std::exchange(asked_at_, {}));
  on_backend_bytes({room.data(), bytes});
}

void relay_session::send_on(std::string& to_backend, bool of_client) {
  const bool anything = backend_.unsent(to_backend) != 0;
  send_to_backend(to_backend);
  if (!anything || !of_client || read_at_ == time_point{}) return;
  const auto now = std::chrono::steady_clock::now();
  gate_stats_.overhead_seconds.observe(now - read_at_);
  read_at_ = {};
  if (asked_at_ == time_point{}) asked_at_ = now;
}

bool relay_session::send_to_client(std::string& bytes) {
  const auto failed = client_.send(bytes);
  unread_.note(bytes.size());
  return !failed;
}

bool relay_session::has_room(const std::string& to_client) const {
  return client_.unsent(to_client) <= std::min(limits::output_high_water_bytes, unread_bytes::allowance());
}

std::optional<std::string> relay_session::take_room(const fence::claims_list& tag) {
  auto why = share_.take(tag);
  if (why) gate_stats_.rejected(metrics::connection_rejection::limit).add();
  return why;
}

void relay_session::read_on() {
  const bool more = (client_.socket.readable() && wants_client()) || (backend_.socket.readable() && wants_backend());
  if (more) client_.socket.again();
}

}  // namespace fencegate::gate
