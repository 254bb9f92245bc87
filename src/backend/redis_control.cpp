#include "backend/redis_control.hpp"

#include "backend/redis_greeting.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds tick_every{250};
constexpr milliseconds retry_after_min{50}, retry_after_max{2'000};

}  // namespace

redis_control::redis_control(boost::asio::io_context& context, std::shared_ptr<redis_state> state)
    : state_(std::move(state)),
      client_(std::make_shared<redis_client>(context, state_->gate.upstream, state_->gate.limits_time.connect,
                                             state_->stats.protocol_errors(metrics::side::backend), state_->tls)),
      keeper_(*state_, *this),
      ticker_(context),
      retry_(context) {}

void redis_control::start(std::shared_ptr<void> unsettled) {
  keeper_.settled([unsettled = std::move(unsettled)] {});
  connect();
  tick();
}

void redis_control::stop() {
  stopped_ = true;
  ticker_.cancel();
  retry_.cancel();
  keeper_.end("the gate is stopping");
  client_->lose("the gate is stopping");
}

void redis_control::send(const std::vector<std::string_view>& command, reply_callback done) {
  client_->send(command,
                [self = shared_from_this(), done = std::move(done)](const wire::reply_value* reply) { done(reply); });
}

void redis_control::connect() {
  if (stopped_) return;
  const auto weak = weak_from_this();
  auto on_up = [weak](const std::vector<stream::endpoint>& endpoints) {
    if (const auto self = weak.lock()) self->on_connected(endpoints);
  };
  auto on_down = [weak](const std::string& why, bool /*by_server*/) {
    if (const auto self = weak.lock()) self->on_lost(why);
  };
  client_->connect({std::move(on_up), std::move(on_down)});
}

void redis_control::on_connected(const std::vector<stream::endpoint>& endpoints) {
  // Sessions try them in this order.
  state_->change([&](redis_state::snapshot& p) { p.endpoints = endpoints; });
  greet(*state_, *this);
  keeper_.on_connected();
}

void redis_control::on_lost(const std::string& why) {
  keeper_.on_lost(why);
  if (stopped_) return;
  retry_.expires_after(std::min(retry_after_max, retry_after_min * (1 << std::min(keeper_.failures() - 1, 6))));
  auto again = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->connect();
  };
  retry_.async_wait(std::move(again));
}

void redis_control::tick() {
  ticker_.expires_after(tick_every);
  auto on_tick = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (cancelled || self->stopped_) return;
    self->client_->on_tick(self->now());
    self->keeper_.on_tick();
    self->tick();
  };
  ticker_.async_wait(std::move(on_tick));
}

}  // namespace fencegate::backend
