// The gate's own connection to Redis, as those see it who decide what is sent on it: no sockets, no timers. redis_control
// is it; tests have their own.
#pragma once

#include "wire/resp_reply.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// nullptr: the connection was lost, or the answer did not come in time. What it points to lives until the callback returns.
using reply_callback = std::function<void(const wire::reply_value*)>;

class control_link {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  virtual ~control_link() = default;
  // Each command gets one reply, in their order, later; at once, and nullptr, where there is no connection.
  virtual void send(const std::vector<std::string_view>& command, reply_callback done) = 0;
  // Gives the connection up; whoever waits for a reply learns it before this returns.
  virtual void drop(const std::string& why) = 0;
  [[nodiscard]] virtual time_point now() const = 0;
};

}  // namespace fencegate::backend
