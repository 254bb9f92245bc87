#include "lease/redis_seal_place.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace fencegate::lease {

redis_seal_place::redis_seal_place(boost::asio::io_context& context, std::string name, const settings::mark_store& at,
                                   std::chrono::milliseconds patience)
    : context_(context),
      name_(std::move(name)),
      patience_(patience),
      figures_(std::make_shared<metrics::gate>(name_)),
      store_(std::make_shared<backend::redis_store>(std::vector{&context}, name_, at, *figures_)) {
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

redis_seal_place::~redis_seal_place() { store_->stop(); }

void redis_seal_place::when_settled(std::function<void()> call) {
  if (settled_) return call();
  waiting_.push_back(std::move(call));
}

backend::store_caller redis_seal_place::caller() const {
  return {context_, session_, std::chrono::steady_clock::now() + patience_};
}

void redis_seal_place::identify(std::function<void(const result<std::string>&)> done) {
  when_settled([this, done = std::move(done)] { store_->identify(caller(), done); });
}

void redis_seal_place::look(const std::vector<std::string>& resources,
                            std::function<void(const result<std::vector<backend::looked_mark>>&)> done) {
  auto answered = [done = std::move(done)](const backend::store_result<std::vector<backend::looked_mark>>& found) {
    if (found) return done(*found);
    done(error{found.error().detail});
  };
  when_settled([this, resources, answered = std::move(answered)] { store_->look(caller(), resources, answered); });
}

void redis_seal_place::seal(const term& held, const std::string& issuer_id,
                            std::function<void(const backend::store_result<void>&)> done) {
  when_settled([this, held, issuer_id, done = std::move(done)] {
    store_->seal_for_lease(caller(), held.claims, {issuer_id, held.grant}, done);
  });
}

}  // namespace fencegate::lease
