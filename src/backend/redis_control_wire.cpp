// What the gate's own connection sends, and what comes back: one reply for each command, in their order.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "base/limits.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

// Of a buffer that was sent: what a link keeps.
constexpr std::size_t kept_bytes = 64 * 1024;
// Between the time until which somebody waits, and the end of a connection that has not answered by then.
constexpr std::chrono::milliseconds lateness{500};

// Of a reply that is whole, nested ones included.
bool has_too_many_values(std::string_view reply) {
  std::ptrdiff_t values = 0;
  wire::reply_head head;
  while (!reply.empty() && wire::read_head(reply, head) == wire::head_status::complete) {
    if (++values > limits::redis_reply_values_max) return true;
    const bool has_payload = std::string_view("$!=").find(head.type) != std::string_view::npos && head.count >= 0;
    const auto bytes = head.bytes + (has_payload ? static_cast<std::size_t>(head.count) + 2 : 0);
    reply.remove_prefix(std::min(bytes, reply.size()));
  }
  return false;
}

}  // namespace

// A command that may take longer holds up those behind it: they are given as long.
void redis_control::send(const std::vector<std::string_view>& arguments, reply_callback done, time_point answer_by) {
  if (!connected_) return done(nullptr);
  wire::append_command(out_, arguments);
  auto deadline = clock::now() + state_->gate.limits_time.connect;
  if (answer_by != time_point::max()) deadline = std::max(deadline, answer_by + lateness);
  if (!pending_.empty()) deadline = std::max(deadline, pending_.back().deadline);
  pending_.push_back({std::move(done), answer_by, deadline});
  if (flushing_) return;
  flushing_ = true;
  // What else comes in this turn of the loop goes out in the same write.
  asio::post(context_, [self = shared_from_this()] {
    self->flushing_ = false;
    self->flush();
  });
}

void redis_control::flush() {
  while (!writing_ && !out_.empty()) {
    boost::system::error_code failed;
    out_sent_ += socket_.write_some(asio::buffer(out_) + out_sent_, failed);
    if (out_sent_ == out_.size()) {
      if (out_.capacity() > kept_bytes)
        std::string().swap(out_);
      else
        out_.clear();
      out_sent_ = 0;
    }
    if (failed == asio::error::would_block) {
      writing_ = true;
      auto on_writable = [self = shared_from_this(), mine = connection_](const boost::system::error_code&) {
        if (mine != self->connection_) return;
        self->writing_ = false;
        self->flush();
      };
      socket_.async_wait(stream::socket::wait_write, on_writable);
    } else if (failed) {
      return;  // the reader sees the same and cleans up
    }
  }
}

void redis_control::wait_readable() {
  auto on_readable = [self = shared_from_this(), mine = connection_](const boost::system::error_code& failed) {
    if (mine != self->connection_) return;
    if (failed) return self->lose(failed.message());
    self->read_some();
  };
  socket_.async_wait(stream::socket::wait_read, on_readable);
}

void redis_control::read_some() {
  const std::uint64_t mine = connection_;
  boost::system::error_code failed;
  char* room = in_.prepare(64 * 1024);
  const std::size_t n = socket_.read_some(asio::buffer(room, in_.writable()), failed);
  if (failed && failed != asio::error::would_block) return lose(failed.message());
  in_.commit(n);
  while (take_reply())
    if (mine != connection_) return;
  if (mine != connection_) return;
  in_.release();
  wait_readable();
}

// False: there is no whole one, or the connection was lost.
bool redis_control::take_reply() {
  const auto malformed = [this] {
    state_->figures.protocol_errors(metrics::side::backend).add();
    lose("Redis sent what is not an answer");
    return false;
  };
  if (in_.empty()) return false;
  if (pending_.empty()) return malformed();
  if (scanned_ == 0 && !dropped_) {
    wire::reply_head head;
    const auto read = wire::read_head(in_.view(), head);
    if (read == wire::head_status::malformed) return malformed();
    if (read == wire::head_status::need_more) return false;
    scanner_.begin(head);
    scanned_ = head.bytes;
  }
  if (!scanner_.done()) {
    const auto step = scanner_.advance(in_.view().substr(scanned_));
    if (step.what == wire::value_scanner::status::malformed) return malformed();
    scanned_ += step.consumed;
  }
  const auto whole = in_.view().substr(0, scanned_);
  dropped_ = dropped_ || scanned_ > limits::redis_reply_bytes_max || (scanner_.done() && has_too_many_values(whole));
  if (!scanner_.done()) {
    if (dropped_) in_.consume(std::exchange(scanned_, 0));
    return false;
  }
  const wire::reply_value too_large{'-', detail::reply_too_large, false, {}};
  const auto parsed = dropped_ ? result<std::optional<std::pair<wire::reply_value, std::size_t>>>(std::nullopt)
                               : wire::parse_value(whole);
  if (parsed.has_error() || (!dropped_ && !*parsed)) return malformed();
  const auto bytes = std::exchange(scanned_, 0);
  const auto mine = connection_;
  const reply_callback done = std::move(pending_.front().done);
  pending_.pop_front();
  const bool was_dropped = std::exchange(dropped_, false);
  if (done) done(was_dropped ? &too_large : &(*parsed)->first);
  if (mine == connection_) in_.consume(bytes);
  return mine == connection_;
}

// What the reply will be is nobody's any more, and the connection goes on.
void redis_control::give_up_waiting(time_point now) {
  std::vector<reply_callback> late;
  for (auto& one : pending_)
    if (one.done && one.answer_by < now) late.push_back(std::exchange(one.done, nullptr));
  for (const auto& done : late) done(nullptr);
}

}  // namespace fencegate::backend
