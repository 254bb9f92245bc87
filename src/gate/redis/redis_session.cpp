#include "gate/redis/redis_session.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "gate/redis/redis_key_watch.hpp"

#include <boost/asio/error.hpp>

#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// A client that has gone (half-closed) may still have commands under way: they get this long.
constexpr milliseconds finish_after_end{5'000};
// A client that was turned away may still be sending: to close on unread bytes is a reset, which takes the answers with it
// that it has not read. So it is answered until it has been silent for so long, or has gone on for the longer time.
constexpr milliseconds turned_away_silent{1'000}, turned_away_most{30'000};
// What a client may send ahead while its earlier commands are under way.
constexpr std::size_t read_ahead_bytes = 64 * 1024;

}  // namespace

redis_session::redis_session(redis_shard& shard, client_link client, session_ended ended, bound_tag tag)
    : relay_session(shard.context, shard.sockets, shard.state->tls, std::move(client), std::move(ended),
                    shard.state->stats),
      redis_host(shard),
      tag_(std::move(tag)),
      engine_(*this, shard.state->gate, shard.state->marks, shard.state->stats),
      began_(std::chrono::steady_clock::now()),
      last_heard_(began_) {}

void redis_session::on_started() {
  shard_.refresh();
  if (shard_.snapshot.endpoints.empty()) return on_connect_failed(shard_.snapshot.problem);
  auto on_connected = [this](const result<void>& linked) {
    shard_.refresh();
    if (!linked) return on_connect_failed("cannot connect to Redis: " + linked.error().message);
    connected_ = true;
    link_used_ = std::chrono::steady_clock::now();
    engine_.bind_to_listener(*tag_);
    after_event();
  };
  dial(shard_.snapshot.endpoints, std::move(on_connected));
}

// The client's first commands are answered, so that it learns why; then it may try anew.
void redis_session::on_connect_failed(const std::string& why) {
  connect_problem_ = why.empty() ? "the backend cannot be reached" : why;
  hang_up();
  shard_.state->stats.rejected(metrics::connection_rejection::backend).add();
  after_event();
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool redis_session::wants_client() const {
  if (!connect_problem_.empty()) return !engine_.closing();
  if (!connected_ || client_.ended || engine_.input_over() || engine_.closing()) return false;
  if (backend_.unsent(engine_.to_backend) > limits::output_high_water_bytes) return false;
  const bool turned_away = engine_.turned_away() || turns_away();  // its rejections take no room
  if (!turned_away && holds_back()) return false;
  if (engine_.blocked()) return engine_.from_client.size() < read_ahead_bytes;
  if (!turned_away && engine_.replies_awaited() > limits::replies_awaited_max) return false;
  return engine_.from_client.size() < limits::command_buffered_bytes_max + limits::resp_line_bytes_max;
}

// A client that sends a long pipeline before it reads an answer would deadlock with a gate that stopped for its answers:
// while the client's bytes pile up, answers may, too, as long as the process has room for them.
bool redis_session::wants_backend() const {
  if (!connected_ || backend_.ended || engine_.closing()) return false;
  if (has_room(engine_.to_client)) return true;
  const bool piles_up =
      engine_.from_client.size() >= read_ahead_bytes || engine_.replies_awaited() > limits::replies_awaited_max;
  if (!piles_up) return false;
  if (client_.unsent(engine_.to_client) <= unread_bytes::allowance()) return true;
  // What is turned away waits behind the answers to what is in flight.
  return (engine_.turned_away() || turns_away()) && !unread_bytes::full();
}

// A client that is slow, but reads, is not turned away for little.
bool redis_session::turns_away() const {
  if (!unread_bytes::too_many()) return false;
  const std::size_t waiting = client_.unsent(engine_.to_client);
  if (waiting > limits::unread_of_client_bytes) return true;
  return waiting > unread_bytes::allowance() && client_.stalled() &&
         over(client_.stalled_since, limits::unread_patience, std::chrono::steady_clock::now());
}

bool redis_session::holds_back() const { return engine_.answers_held() > unread_bytes::allowance(); }

void redis_session::on_backend_bytes(std::string_view bytes) {
  server_has_spoken_ = true;
  engine_.from_backend.append(bytes);
  engine_.on_backend_bytes();
  engine_.from_backend.release();
}

void redis_session::on_client_bytes(std::string_view bytes) {
  engine_.from_client.append(bytes);
  const std::size_t unread = engine_.from_client.size();
  const bool first_bytes = unread == bytes.size();
  if (!connect_problem_.empty()) {
    engine_.fail_all(connect_problem_);
    return;
  }
  last_heard_ = read_at_;
  asked_last_ = ends_soon_;
  engine_.on_client_bytes();
  if (first_bytes || engine_.from_client.size() < unread) began_ = last_heard_;
}

void redis_session::on_end(peer& of, const boost::system::error_code& why) {
  if (&of == &backend_) {
    // A server of TLS 1.3 refuses the gate's certificate behind the handshake. A client that has asked for nothing yet learns why.
    const bool refused = !server_has_spoken_ && why.category() == backend::tls_category() && engine_.at_rest();
    return refused ? on_connect_failed("cannot connect to Redis: " + why.message()) : end_with_server();
  }
  if (why != asio::error::eof || engine_.has_finished() || !connected_) return close();
  if (engine_.may_block() && !engine_.may_block_in_server()) return close();
  client_ended_ = std::chrono::steady_clock::now();
  // What waits on a shared link could come behind what the client writes on another connection.
  if (shared_ != nullptr && shared_->take_back(*this)) engine_.on_shared(std::nullopt);
}

// What the backend said before it closed still belongs to the client.
void redis_session::end_with_server() {
  if (engine_.write_in_flight()) {
    shard_.state->stats.unknown_total.add();
    log::write(log::level::warn, "backend closed during a write; its outcome is unknown",
               {{"gate", shard_.state->gate.name}, {"client", client_address_}});
  }
  engine_.end();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_session::after_event() {
  if (closed_) return;
  do {
    send_to_server();
    if (!send_to_client(engine_.to_client)) return close();
  } while (engine_.to_client.empty() && engine_.say_more());
  if (closed_) return;
  if (engine_.closing() && engine_.to_client.empty()) return close();
  if (waits_for_keys_ && !engine_.waits_for_keys()) stop_waiting();
  if (client_.ended && (engine_.has_finished() || engine_.polling())) return close();
  if ((draining_ || asked_last_) && engine_.may_end()) return close();
  engine_.from_client.release();
  read_on();
}

void redis_session::send_to_server() {
  if (!connected_ || backend_.ended) return;
  if (backend_.unsent(engine_.to_backend) != 0) link_used_ = last_heard_;
  send_on(engine_.to_backend);
  // A command that waits must not take an element for a client that has gone. The server hears of the end, too: it
  // answers what it can answer at once, and closes.
  if (client_.ended && !backend_told_ && backend_.unsent(engine_.to_backend) == 0 && engine_.may_block_in_server()) {
    backend_told_ = true;
    backend_.socket.shutdown_send();
  }
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_session::on_tick(time_point at) {
  if (closed_) return;
  if (const auto link = shared_) link->on_tick(at);
  if (waits_for_keys_) shard_.key_watch->on_tick(at);
  if (closed_) return;
  const auto& times = shard_.state->gate.limits_time;
  if (!connected_ && connect_problem_.empty() && over(began_, times.connect, at))
    return on_connect_failed("connecting to Redis took too long");
  if (client_.stalled() && over(client_.stalled_since, times.write, at)) return close();
  if (backend_.stalled() && over(backend_.stalled_since, times.write, at)) return close();
  if (!wants_client()) began_ = at;  // the rest of a command comes when the gate reads again
  if (engine_.half_read() && !engine_.streaming() && over(began_, times.head, at)) return close();
  if (!engine_.waits_on_purpose() && over(last_heard_, times.idle, at)) return close();
  if (client_.ended && over(client_ended_, finish_after_end, at)) return close();
  if (engine_.turned_away()) {
    if (turned_away_ == time_point{}) turned_away_ = at;
    const bool waited_enough = over(last_heard_, turned_away_silent, at) || over(turned_away_, turned_away_most, at);
    if (waited_enough && engine_.has_said_all()) return close();
  }
  // Others have taken the room, or given it back: it is read now, be it to be turned away.
  if (engine_.answers_held() == 0 || (holds_back() && !turns_away())) return;
  before_event();
  if (engine_.held_back()) engine_.resume();
  after_event();
}

void redis_session::drain() {
  draining_ = true;
  if (!closed_ && engine_.may_end()) close();
}

void redis_session::on_close() {
  cancel_timer();
  stop_waiting();
  if (shared_ != nullptr) shared_->leave();
  shared_ = nullptr;
}

// ── writes on a shared link ─────────────────────────────────────────────────────────────────────────────────────────

void redis_session::on_shared(std::optional<std::string_view> answer) {
  if (closed_) return;
  note_answer(answer ? way::shared : way::none);
  before_event();
  engine_.on_shared(answer);
  after_event();
}

void redis_session::on_shared_lost() {
  if (closed_) return;
  end_with_server();
  after_event();
}

// ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────────────

bool redis_session::sharing_pays(const session_profile& mine, bool at_once) {
  small_write_ = way::none;
  small_write_at_once_ = at_once;
  if (shared_ == nullptr || !shared_->is_like(mine)) {
    if (shared_ != nullptr) shared_->leave();
    shared_ = redis_shared_link::of(shard_, mine);
    shared_->join();
  }
  if (last_heard_ - link_used_ <= limits::own_link_unused_max && shared_->pays(last_heard_)) return true;
  note_write(way::own);
  return false;
}

bool redis_session::share(const session_profile& mine, std::string_view command, const batched& as) {
  const std::shared_ptr<shared_writer> self(shared_from_this(), this);
  const bool sent = shared_->send(mine, command, as, self, last_heard_);
  note_write(sent ? way::shared : way::own);
  if (sent) read_at_ = {};
  return sent;
}

void redis_session::note_write(way how) {
  small_write_ = how;
  small_write_read_ = last_heard_;
}

// `how`: how it was answered; none: it was not, or not here.
void redis_session::note_answer(way how) {
  const way was = std::exchange(small_write_, way::none);
  if (was == way::none || was != how || !small_write_at_once_) return;
  shared_->choice().answered(how == way::shared, small_write_read_, std::chrono::steady_clock::now());
}

bool redis_session::wait_for_keys(int database, const std::vector<std::string>& keys) {
  if (shard_.key_watch == nullptr) shard_.key_watch = std::make_shared<redis_key_watch>(shard_);
  waits_for_keys_ = true;
  return shard_.key_watch->wait(*this, database, keys);
}

void redis_session::on_key() {
  if (closed_) return;
  const auto self = shared_from_this();
  before_event();
  engine_.on_key();
  after_event();
}

void redis_session::stop_waiting() {
  if (std::exchange(waits_for_keys_, false)) shard_.key_watch->leave(*this);
}

void redis_session::report(const fence::rejection& why, std::string_view command, bool monitor) {
  shard_.state->stats.checks(outcome_of(why.why)).add();
  shard_.rejections.report(shard_.state->gate.name, why, client_address_, command, now(), monitor);
}

}  // namespace fencegate::gate
