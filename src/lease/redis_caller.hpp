// A Redis of leases or seals, as its own gates know it: one connection, on its context's thread, which is made again when it
// was lost. What is asked before it is known whether the server answers waits for that.
#pragma once

#include "backend/redis_store.hpp"
#include "base/metrics.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

class redis_caller {
 public:
  // `patience`: for each answer.
  redis_caller(boost::asio::io_context& context, const settings::mark_store& at, std::chrono::milliseconds patience);
  redis_caller(const redis_caller&) = delete;
  redis_caller& operator=(const redis_caller&) = delete;
  // Nothing is answered from here on.
  ~redis_caller();

  // Calls it with the store, and with who asks: for this answer there is as much patience as for all, or more.
  using question = std::function<void(backend::redis_store&, const backend::store_caller&)>;
  void ask(question call) { ask(patience_, std::move(call)); }
  void ask(std::chrono::milliseconds patience, question call);

 private:
  boost::asio::io_context& context_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<metrics::gate> stats_;
  const std::shared_ptr<backend::redis_store> store_;
  const std::shared_ptr<const int> session_ = std::make_shared<const int>(0);  // of store_caller: this object
  bool settled_ = false;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace fencegate::lease
