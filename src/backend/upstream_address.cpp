#include "backend/upstream_address.hpp"

#include <boost/asio/local/stream_protocol.hpp>

#include <chrono>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;

constexpr seconds interval{30}, interval_after_failure{1};

}  // namespace

upstream_address::upstream_address(asio::io_context& context, settings::address of)
    : address_(std::move(of)), resolver_(context), timer_(context) {}

void upstream_address::start(std::shared_ptr<void> unsettled) {
  unsettled_ = std::move(unsettled);
  resolve();
}

void upstream_address::stop() {
  stopped_ = true;
  unsettled_ = nullptr;
  resolver_.cancel();
  timer_.cancel();
}

void upstream_address::resolve() {
  if (address_.is_unix()) {
    const std::lock_guard lock(mutex_);
    endpoints_ = {endpoint(asio::local::stream_protocol::endpoint(address_.path))};
    unsettled_ = nullptr;
    return;
  }
  auto on_resolved = [self = shared_from_this()](const boost::system::error_code& failed,
                                                 const asio::ip::tcp::resolver::results_type& found) {
    if (self->stopped_) return;
    {
      const std::lock_guard lock(self->mutex_);
      if (failed) {
        self->unresolved_ = "cannot resolve " + self->address_.host + ": " + failed.message();
      } else {
        self->endpoints_.clear();
        for (const auto& one : found) self->endpoints_.emplace_back(one.endpoint());
      }
    }
    self->unsettled_ = nullptr;
    self->resolve_later(failed.failed());
  };
  resolver_.async_resolve(address_.host, std::to_string(address_.port), on_resolved);
}

void upstream_address::resolve_later(bool failed) {
  timer_.expires_after(failed ? interval_after_failure : interval);
  auto again = [self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled && !self->stopped_) self->resolve();
  };
  timer_.async_wait(again);
}

std::vector<upstream_address::endpoint> upstream_address::endpoints() const {
  const std::lock_guard lock(mutex_);
  return endpoints_;
}

std::string upstream_address::why_unresolved() const {
  const std::lock_guard lock(mutex_);
  return unresolved_;
}

}  // namespace fencegate::backend
