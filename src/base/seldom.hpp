// What would fill the log, written at most so often.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace fencegate {

class seldom {
 public:
  using clock = std::chrono::steady_clock;

  explicit seldom(clock::duration interval) : interval_(interval) {}

  // It is time for a line: how many were left out since the last one. nullopt: it is left out, and counted.
  [[nodiscard]] std::optional<std::int64_t> due(clock::time_point now) {
    if (written_ && now - *written_ < interval_) {
      ++left_out_;
      return std::nullopt;
    }
    written_ = now;
    return std::exchange(left_out_, 0);
  }

 private:
  const clock::duration interval_;
  std::optional<clock::time_point> written_;
  std::int64_t left_out_ = 0;
};

}  // namespace fencegate
