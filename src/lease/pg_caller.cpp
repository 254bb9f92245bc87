#include "lease/pg_caller.hpp"

#include "backend/pg_store_common.hpp"

#include <utility>

namespace fencegate::lease {
namespace {

constexpr std::size_t steps = 3;  // BEGIN, the call, COMMIT

backend::pg_result rows_of(backend::pg_outcome& outcome) {
  if (backend::is_committed(outcome, steps)) return std::move(outcome.steps[1]->rows);
  for (auto& step : outcome.steps)
    if (step.has_error()) return std::move(step.error());
  return wire::pg_error{"ERROR", {}, outcome.lost.empty() ? "it was not committed" : outcome.lost, {}, {}};
}

}  // namespace

pg_caller::pg_caller(boost::asio::io_context& context, backend::pg_target to, std::chrono::milliseconds patience)
    : context_(context), to_(std::move(to)), patience_(patience) {}

void pg_caller::call(backend::pg_statement one, answer done) { call(std::move(one), patience_, std::move(done)); }

void pg_caller::call(backend::pg_statement one, std::chrono::milliseconds patience, answer done) {
  ++unanswered_;
  auto counted = [self = weak_from_this(), done = std::move(done)](const backend::pg_result& rows) {
    if (const auto there = self.lock()) --there->unanswered_;
    done(rows);
  };
  waiting next{std::move(one), patience, std::move(counted)};
  if (link_ != nullptr && link_->connected()) return send(std::move(next));
  waiting_.push_back(std::move(next));
  if (link_ == nullptr) connect();
}

void pg_caller::warm() {
  if (link_ == nullptr) connect();
}

void pg_caller::listen(std::string channel, std::function<void(const std::string&)> tell) {
  channel_ = std::move(channel);
  heard_ = std::move(tell);
  if (link_ != nullptr && link_->connected()) begin_to_hear(*link_);
}

// Behind a pooler that lends a connection for a transaction nobody hears anything: callers do not rely on it.
void pg_caller::begin_to_hear(backend::pg_link& on) {
  on.on_heard([weak = weak_from_this()](const std::string& channel, const std::string& payload) {
    const auto self = weak.lock();
    if (self && channel == self->channel_) self->heard_(payload);
  });
  on.query("LISTEN " + channel_, {}, [](const backend::pg_result&) {});
}

void pg_caller::close() {
  if (const auto link = std::exchange(link_, nullptr)) link->close("it is not needed any more");
}

void pg_caller::connect() {
  link_ = std::make_shared<backend::pg_link>(context_, patience_);
  const std::weak_ptr<pg_caller> weak = weak_from_this();
  link_->on_closed([weak, key = link_.get()](const std::string&) {
    const auto self = weak.lock();
    if (self && self->link_.get() == key) self->link_ = nullptr;
  });
  auto connected = [self = shared_from_this(), link = link_](const result<void>& outcome) {
    self->on_connected(link, outcome);
  };
  backend::dial(context_, link_, to_, std::move(connected));
}

void pg_caller::on_connected(const std::shared_ptr<backend::pg_link>& link, const result<void>& outcome) {
  if (!outcome && link_ == link) link_ = nullptr;
  if (outcome && !channel_.empty()) begin_to_hear(*link);
  for (auto& one : std::exchange(waiting_, {}))
    if (outcome)
      send(std::move(one));
    else
      one.done(wire::pg_error{"ERROR", {}, outcome.error().message, {}, {}});
}

void pg_caller::send(waiting one) {
  std::vector<backend::pg_statement> all{{backend::begin_transaction}, std::move(one.statement), {"COMMIT"}};
  auto answered = [link = link_, done = std::move(one.done)](backend::pg_outcome& outcome) {
    // An error leaves the block open; the next call has a connection of its own.
    if (outcome.lost.empty() && outcome.behind != backend::pg_outcome::block::none)
      link->close("its transaction failed");
    done(rows_of(outcome));
  };
  if (link_ == nullptr) return one.done(wire::pg_error{"ERROR", {}, "the connection was lost", {}, {}});
  link_->pipeline(std::move(all), one.patience, backend::any_rows, std::move(answered));
}

pg_callers::pg_callers(boost::asio::io_context& context, backend::pg_target to, std::chrono::milliseconds patience,
                       std::size_t most)
    : context_(context),
      to_(std::move(to)),
      patience_(patience),
      most_(most),
      all_{std::make_shared<pg_caller>(context, to_, patience)} {}

pg_callers::~pg_callers() {
  for (const auto& one : all_) one->close();
}

pg_caller& pg_callers::any() {
  for (const auto& one : all_)
    if (one->idle()) return *one;
  if (all_.size() < most_) return *all_.emplace_back(std::make_shared<pg_caller>(context_, to_, patience_));
  return *all_[next_++ % all_.size()];
}

}  // namespace fencegate::lease
