#include "lease/redis_caller.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace fencegate::lease {

redis_caller::redis_caller(boost::asio::io_context& context, const settings::mark_store& at,
                           std::chrono::milliseconds patience)
    : context_(context),
      patience_(patience),
      stats_(std::make_shared<metrics::gate>(at.name)),
      store_(std::make_shared<backend::redis_store>(std::vector{&context}, at.name, at, *stats_)) {
  // The last who keeps it lets it go when the server has answered, or could not be reached.
  auto settle = [this, alive = std::weak_ptr(session_)](void*) {
    auto go_on = [this, alive] {
      if (alive.expired()) return;
      settled_ = true;
      for (const auto& call : std::exchange(waiting_, {})) call();
    };
    boost::asio::post(context_, std::move(go_on));
  };
  store_->start(std::shared_ptr<void>(nullptr, std::move(settle)));
}

redis_caller::~redis_caller() { store_->stop(context_); }

void redis_caller::ask(std::chrono::milliseconds patience, question call) {
  auto begin = [this, patience, call = std::move(call)] {
    call(*store_, {context_, session_, std::chrono::steady_clock::now() + patience});
  };
  if (settled_) return begin();
  waiting_.push_back(std::move(begin));
}

}  // namespace fencegate::lease
