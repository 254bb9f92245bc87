#include "backend/redis_dialogue.hpp"

#include "base/limits.hpp"
#include "wire/resp_reply.hpp"
#include "wire/resp_request.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

redis_dialogue::reply owned(const wire::reply_value& from) {
  redis_dialogue::reply out;
  out.is_error = from.type == '-' || from.type == '!';
  out.text = from.text;
  for (const auto& one : from.elements) out.list.push_back(owned(one));
  return out;
}

}  // namespace

std::vector<std::string> sign_in(const settings::credentials& user) {
  if (user.password.empty()) return {"PING"};
  if (user.user.empty()) return {"AUTH", user.password};
  return {"AUTH", user.user, user.password};
}

error why_refused(const std::string& said, std::string_view right) {
  if (!said.starts_with("NOPERM")) return {said};
  return {"the gate's user lacks " + std::string(right)};
}

redis_dialogue::redis_dialogue(asio::io_context& context, settings::address where, std::chrono::milliseconds patience)
    : where_(std::move(where)), patience_(patience), socket_(context), resolver_(context), deadline_(context) {}

void redis_dialogue::ask(const std::vector<words>& commands, answer done) {
  for (const auto& command : commands) {
    const std::vector<std::string_view> arguments(command.begin(), command.end());
    wire::append_command(out_, arguments);
  }
  wanted_ = commands.size();
  came_ = {};
  done_ = std::move(done);
  restart_deadline();
  connected_ ? send() : connect();
}

void redis_dialogue::close() {
  done_ = nullptr;
  deadline_.cancel();
  resolver_.cancel();
  error_code ignored;
  socket_.close(ignored);
  connected_ = false;
}

void redis_dialogue::connect() {
  if (where_.is_unix()) return connect_to({stream::endpoint(asio::local::stream_protocol::endpoint(where_.path))});
  auto on_resolved = [self = shared_from_this()](const error_code& failed,
                                                 const asio::ip::tcp::resolver::results_type& found) {
    if (!self->done_) return;
    if (failed) return self->end("cannot resolve " + self->where_.host + ": " + failed.message());
    std::vector<stream::endpoint> endpoints;
    for (const auto& one : found) endpoints.emplace_back(one.endpoint());
    self->connect_to(endpoints);
  };
  resolver_.async_resolve(where_.host, std::to_string(where_.port), asio::ip::tcp::resolver::numeric_service,
                          on_resolved);
}

void redis_dialogue::connect_to(const std::vector<stream::endpoint>& endpoints) {
  const auto kept = std::make_shared<std::vector<stream::endpoint>>(endpoints);
  auto on_connected = [self = shared_from_this(), kept](const error_code& failed, const stream::endpoint&) {
    if (!self->done_) return;
    if (failed) return self->end("cannot connect: " + failed.message());
    self->connected_ = true;
    self->restart_deadline();
    self->send();
  };
  asio::async_connect(socket_, *kept, std::move(on_connected));
}

void redis_dialogue::send() {
  auto on_sent = [self = shared_from_this()](const error_code& failed, std::size_t) {
    self->out_.clear();
    if (!self->done_) return;
    if (failed) return self->end("it closed the connection: " + failed.message());
    self->read_more();
  };
  asio::async_write(socket_, asio::buffer(out_), std::move(on_sent));
}

void redis_dialogue::read_more() {
  constexpr std::size_t step = 64 * 1024;
  const auto before = in_.size();
  if (before > limits::redis_reply_bytes_max) return end("its answer is too large");
  in_.resize(before + step);
  auto on_read = [self = shared_from_this(), before](const error_code& failed, std::size_t bytes) {
    self->in_.resize(before + bytes);
    if (!self->done_) return;
    if (!self->take_replies()) return;
    if (failed) return self->end("it closed the connection: " + failed.message());
    self->read_more();
  };
  socket_.async_read_some(asio::buffer(in_.data() + before, step), std::move(on_read));
}

// False: it has ended, with all or with what is no answer.
bool redis_dialogue::take_replies() {
  while (came_.replies.size() < wanted_) {
    const auto parsed = wire::parse_value(in_);
    if (!parsed) return end("it sent what is not an answer"), false;
    if (!*parsed) return true;
    came_.replies.push_back(owned((*parsed)->first));
    in_.erase(0, (*parsed)->second);
  }
  return end({}), false;
}

void redis_dialogue::end(const std::string& problem) {
  deadline_.cancel();
  if (!problem.empty()) {
    error_code ignored;
    resolver_.cancel();
    socket_.close(ignored);
    connected_ = false;
  }
  came_.problem = problem;
  const auto done = std::exchange(done_, nullptr);
  const auto came = std::exchange(came_, {});
  if (done) done(came);
}

void redis_dialogue::restart_deadline() {
  deadline_.expires_after(patience_);
  auto on_late = [weak = weak_from_this()](const error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self && self->done_)
      self->end("no answer within " + std::to_string(self->patience_.count()) + " ms");
  };
  deadline_.async_wait(std::move(on_late));
}

}  // namespace fencegate::backend
