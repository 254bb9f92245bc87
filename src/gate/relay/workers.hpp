// The threads of the process: one io_context each, run by one thread. A session lives on one of them for its whole life.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace fencegate::gate {

class workers {
 public:
  // threads: 0 = one per core. busy_poll: how long each looks for work before it sleeps.
  explicit workers(unsigned threads, std::chrono::microseconds busy_poll = {});
  // What still waits on one thread may own sockets of another: all is dropped before the first context goes.
  ~workers();

  workers(const workers&) = delete;
  workers& operator=(const workers&) = delete;

  void start();
  // Stops all threads at once and joins them.
  void stop();

  [[nodiscard]] std::size_t size() const { return contexts_.size(); }
  [[nodiscard]] boost::asio::io_context& context(std::size_t i) { return *contexts_[i]; }

 private:
  struct context_of_thread : boost::asio::io_context {
    using execution_context::shutdown;
    using io_context::io_context;
  };

  std::vector<std::unique_ptr<context_of_thread>> contexts_;
  std::vector<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> guards_;
  std::vector<std::thread> threads_;
};

}  // namespace fencegate::gate
