// What an engine asks of its shard: marks, raises, the server's snapshot. For whoever runs one: a session, a shared link.
#pragma once

#include "gate/redis/redis_engine_host.hpp"
#include "gate/redis/redis_shard.hpp"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::gate {

// `Owner` derives from this and from link_owner, is its friend, and has on_timer().
template <class Owner>
class redis_host : public engine_host {
 protected:
  explicit redis_host(redis_shard& shard) : shard_(shard) {}

  [[nodiscard]] const backend::redis_state::snapshot& snapshot() const override { return shard_.snapshot; }
  void raise(std::shared_ptr<backend::mark_cell> cell, fence::token wanted, std::int64_t max_step,
             backend::raise_callback done) override {
    shard_.control->raise(std::move(cell), wanted, max_step, owner().later(std::move(done)));
  }
  void read_mark(std::shared_ptr<backend::mark_cell> cell,
                 std::function<void(const backend::mark_reading&)> done) override {
    shard_.control->read(cell, owner().later(std::move(done)));
  }
  void keys_of(const std::vector<std::string>& arguments,
               std::function<void(std::optional<std::vector<std::string>>)> done) override {
    shard_.control->keys_of(arguments, owner().later(std::move(done)));
  }
  void recheck(std::function<void()> done) override { shard_.control->recheck(owner().later(std::move(done))); }
  void set_timer(std::chrono::milliseconds delay) override {
    if (timer_ == nullptr) timer_ = std::make_unique<boost::asio::steady_timer>(shard_.context);
    timer_->expires_after(delay);
    auto on_time = [wake = owner().later([this] { owner().on_timer(); })](const boost::system::error_code& cancelled) {
      if (!cancelled) wake();
    };
    timer_->async_wait(std::move(on_time));
  }
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return std::chrono::steady_clock::now(); }

  void cancel_timer() {
    if (timer_ != nullptr) timer_->cancel();
  }

  redis_shard& shard_;

 private:
  Owner& owner() { return static_cast<Owner&>(*this); }

  std::unique_ptr<boost::asio::steady_timer> timer_;
};

}  // namespace fencegate::gate
