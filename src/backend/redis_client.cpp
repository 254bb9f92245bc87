#include "backend/redis_client.hpp"

#include "backend/tls_handshake.hpp"
#include "wire/resp_request.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;

// Of a buffer that was sent: what a connection keeps.
constexpr std::size_t sent_bytes_kept = 64 * 1024;
constexpr std::size_t read_bytes = 64 * 1024;
// Between the time until which somebody waits, and the end of a connection that has not answered by then.
constexpr std::chrono::milliseconds lateness{500};

}  // namespace

// ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_client::connect(events tell) {
  tell_ = std::move(tell);
  state_ = state::connecting;
  const std::uint64_t mine = ++connection_;
  connected_by_ = std::chrono::steady_clock::now() + patience_;
  if (server_.is_unix()) return connect_to({endpoint(asio::local::stream_protocol::endpoint(server_.path))});
  auto on_resolved = [self = shared_from_this(), mine](const boost::system::error_code& failed,
                                                       const asio::ip::tcp::resolver::results_type& found) {
    if (mine != self->connection_) return;
    if (failed) return self->lose("cannot resolve " + self->server_.host + ": " + failed.message());
    std::vector<endpoint> endpoints;
    for (const auto& one : found) endpoints.emplace_back(one.endpoint());
    self->connect_to(std::move(endpoints));
  };
  resolver_.async_resolve(server_.host, std::to_string(server_.port), asio::ip::tcp::resolver::numeric_service,
                          std::move(on_resolved));
}

void redis_client::connect_to(std::vector<endpoint> endpoints) {
  // end() lets go of the socket, which has to be there until Asio has called back.
  const auto fresh = connecting_ = std::make_shared<stream::socket>(context_);
  auto on_connected = [self = shared_from_this(), mine = connection_, endpoints, fresh](
                          const boost::system::error_code& failed, const endpoint& answered) mutable {
    if (mine != self->connection_) return;
    if (failed) return self->lose("cannot connect: " + failed.message());
    std::rotate(endpoints.begin(), std::find(endpoints.begin(), endpoints.end(), answered), endpoints.end());
    self->secure(std::move(endpoints));
  };
  asio::async_connect(*fresh, endpoints, std::move(on_connected));
}

void redis_client::secure(std::vector<endpoint> endpoints) {
  boost::system::error_code tcp_only;
  connecting_->set_option(asio::ip::tcp::no_delay(true), tcp_only);
  if (tls_ == nullptr) return on_open(std::move(endpoints), nullptr);
  start_tls(connecting_, *tls_,
            [self = shared_from_this(), mine = connection_, endpoints](result<std::unique_ptr<tls_stream>> secured) {
              if (mine != self->connection_) return;
              if (!secured) return self->lose(secured.error().message);
              self->on_open(endpoints, std::move(*secured));
            });
}

void redis_client::on_open(std::vector<endpoint> endpoints, std::unique_ptr<tls_stream> secured) {
  state_ = state::connected;
  link_ = secured_socket(std::exchange(connecting_, nullptr), std::move(secured));
  wait_readable();
  const auto told = tell_.connected;
  told(endpoints);
}

void redis_client::end(const std::string& why, bool by_server) {
  ++connection_;
  state_ = state::closed;
  writing_ = false;
  resolver_.cancel();
  boost::system::error_code ignored;
  if (connecting_ != nullptr) connecting_->close(ignored);
  connecting_ = nullptr;
  link_.close();
  replies_ = std::make_shared<reply_reader>();
  std::string().swap(out_);
  out_sent_ = 0;
  auto orphans = std::exchange(pending_, {});
  const auto tell = std::exchange(tell_, {});
  if (tell.lost) tell.lost(why, by_server);
  for (auto& one : orphans)
    if (one.done) one.done(nullptr);
}

void redis_client::on_tick(time_point now) {
  give_up_waiting(now);
  if (state_ == state::connected && !pending_.empty() && pending_.front().deadline < now)
    return lose("no answer within " + std::to_string(patience_.count()) + " ms");
  if (state_ == state::connecting && connected_by_ < now) lose("connecting took too long");
}

// What the reply will be is nobody's any more, and the connection goes on.
void redis_client::give_up_waiting(time_point now) {
  std::vector<reply_callback> late;
  for (auto& one : pending_)
    if (one.done && one.answer_by < now) late.push_back(std::exchange(one.done, nullptr));
  for (const auto& done : late) done(nullptr);
}

// ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_client::send(const std::vector<std::string_view>& command, reply_callback done, time_point answer_by) {
  if (state_ != state::connected) return done(nullptr);
  wire::append_command(out_, command);
  auto deadline = std::chrono::steady_clock::now() + patience_;
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

void redis_client::flush() {
  while (!writing_ && !out_.empty()) {
    boost::system::error_code failed;
    out_sent_ += link_.send(std::string_view(out_).substr(out_sent_), failed);
    if (out_sent_ == out_.size()) {
      if (out_.capacity() > sent_bytes_kept)
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
      link_.wait_to_send(std::move(on_writable));
    } else if (failed) {
      return;  // the reader sees the same and cleans up
    }
  }
}

// ── replies ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_client::wait_readable() {
  auto on_readable = [self = shared_from_this(), mine = connection_](const boost::system::error_code& failed) {
    if (mine != self->connection_) return;
    if (failed) return self->end(failed.message(), true);
    self->read_some();
  };
  link_.wait_to_receive(std::move(on_readable));
}

void redis_client::read_some() {
  const std::uint64_t mine = connection_;
  auto& in = replies_->input();
  boost::system::error_code failed;
  char* room = in.prepare(read_bytes);
  const std::size_t n = link_.receive({room, in.writable()}, failed);
  if (failed && failed != asio::error::would_block) return end(failed.message(), true);
  in.commit(n);
  while (take_reply()) {
  }
  if (mine != connection_) return;
  in.release();
  wait_readable();
}

// False: there is no whole one, or the connection was lost.
bool redis_client::take_reply() {
  const auto mine = connection_;
  const auto replies = replies_;
  if (replies->input().empty()) return false;
  wire::reply_value reply;
  const auto read = pending_.empty() ? wire::head_status::malformed : replies->next(reply);
  if (read == wire::head_status::need_more) return false;
  if (read == wire::head_status::malformed) {
    malformed_.add();
    lose("Redis sent what is not an answer");
    return false;
  }
  const auto done = std::move(pending_.front().done);
  pending_.pop_front();
  if (done) done(&reply);
  if (mine != connection_) return false;
  replies->done_with();
  return true;
}

}  // namespace fencegate::backend
