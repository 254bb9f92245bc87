#include "backend/redis_dialogue.hpp"

#include "backend/redis_greeting.hpp"
#include "backend/redis_replies.hpp"

#include <utility>

namespace fencegate::backend {
namespace {

redis_dialogue::reply owned(const wire::reply_value& from) {
  redis_dialogue::reply out;
  out.is_error = detail::is_error(&from);
  out.text = from.text;
  for (const auto& one : from.elements) out.list.push_back(owned(one));
  return out;
}

}  // namespace

std::vector<std::string> first_words(const settings::credentials& user) {
  auto words = sign_in_of(user);
  return words.empty() ? std::vector<std::string>{"PING"} : words;
}

error why_refused(const std::string& said, std::string_view right) {
  if (!said.starts_with("NOPERM")) return {said};
  return {"the gate's user lacks " + std::string(right)};
}

redis_dialogue::redis_dialogue(boost::asio::io_context& context, settings::address where, const settings::tls& secured,
                               std::chrono::milliseconds patience)
    : where_(std::move(where)),
      patience_(patience),
      client_(std::make_shared<redis_client>(context, where_, patience, malformed_, tls_context::to(where_, secured))),
      deadline_(context) {}

void redis_dialogue::ask(std::vector<words> commands, answer done) {
  commands_ = std::move(commands);
  came_ = {};
  done_ = std::move(done);
  if (!lost_.empty()) return end(lost_);
  restart_deadline();
  connected_ ? send() : connect();
}

void redis_dialogue::close() {
  done_ = nullptr;
  deadline_.cancel();
  client_->lose("it is not needed any more");
}

void redis_dialogue::connect() {
  auto on_up = [weak = weak_from_this()](const std::vector<redis_client::endpoint>&) {
    const auto self = weak.lock();
    if (!self || !self->done_) return;
    self->connected_ = true;
    self->restart_deadline();
    self->send();
  };
  auto on_down = [weak = weak_from_this()](const std::string& why, bool by_server) {
    const auto self = weak.lock();
    if (!self) return;
    self->lost_ = by_server ? "it closed the connection: " + why : why;
    self->end(self->lost_);
  };
  client_->connect({std::move(on_up), std::move(on_down)});
}

void redis_dialogue::send() {
  for (const auto& command : commands_)
    client_->send({command.begin(), command.end()}, [weak = weak_from_this()](const wire::reply_value* reply) {
      const auto self = weak.lock();
      if (self && self->done_ && reply != nullptr) self->on_reply(*reply);
    });
}

void redis_dialogue::on_reply(const wire::reply_value& reply) {
  if (detail::is_error(&reply) && reply.text == detail::reply_too_large)
    return client_->lose("its answer is too large");
  came_.replies.push_back(owned(reply));
  if (came_.replies.size() == commands_.size()) end({});
}

// With all answers; or with why the connection was lost.
void redis_dialogue::end(const std::string& problem) {
  deadline_.cancel();
  came_.problem = problem;
  const auto done = std::exchange(done_, nullptr);
  const auto came = std::exchange(came_, {});
  if (done) done(came);
}

void redis_dialogue::restart_deadline() {
  deadline_.expires_after(patience_);
  auto on_late = [weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self && self->done_)
      self->client_->lose("no answer within " + std::to_string(self->patience_.count()) + " ms");
  };
  deadline_.async_wait(std::move(on_late));
}

}  // namespace fencegate::backend
