#include "gate/relay/workers.hpp"

#include "gate/relay/poller.hpp"

#include <algorithm>

namespace fencegate::gate {

workers::workers(unsigned threads, std::chrono::microseconds busy_poll) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < threads; ++i) {
    contexts_.push_back(std::make_unique<context_of_thread>(1));
    poller::of(*contexts_.back()).busy_poll(busy_poll);  // before all others that wait
    guards_.push_back(boost::asio::make_work_guard(*contexts_.back()));
  }
}

workers::~workers() {
  stop();
  for (auto& context : contexts_) context->shutdown();
}

void workers::start() {
  for (auto& context : contexts_) threads_.emplace_back([&context] { context->run(); });
}

void workers::stop() {
  for (auto& context : contexts_) context->stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace fencegate::gate
