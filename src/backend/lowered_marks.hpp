// Marks that an operator has lowered (fencegate marks lower). What was seen of such a mark before is void: it is neither put back
// nor a reason to reject. The backend lists who lowered what, in an order of its own; whoever looks at it applies what is new.
#pragma once

#include "backend/mark_memory.hpp"
#include "fence/token.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::backend {

struct lowering {
  std::uint64_t number = 0;  // of a later one it is higher: about microseconds since 1970, by the server's clock
  std::string resource;
  fence::token from, to;
};

// For a line of the log. `about`: where.
inline void log_lowering(log::event about, const lowering& one) {
  about.add("resource", one.resource).add("from", one.from.value()).add("to", one.to.value());
  about.write(log::level::warn, "an operator lowered the mark");
}

// Any thread.
class lowered_marks {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // An answer from before a lowering may come so late behind it.
  static constexpr std::chrono::seconds stragglers_within{10};

  // What a look has found, all or those behind known(), the oldest first. Those of which something higher had been seen.
  std::vector<lowering> apply(mark_memory& marks, const std::vector<lowering>& found, time_point now) {
    const std::lock_guard lock(mutex_);
    std::vector<lowering> forgotten;
    std::uint64_t newest = known_;
    for (const auto& one : found) {
      if (one.number <= known_) continue;
      newest = std::max(newest, one.number);
      recent_.push_back({one, now + stragglers_within});
      if (marks.cell(one.resource)->lower(one.from, one.to)) forgotten.push_back(one);
    }
    known_ = newest;
    std::erase_if(recent_, [&](const auto& one) { return one.second < now; });
    for (const auto& [one, until] : recent_) {
      const auto cell = marks.cell(one.resource);
      if (cell->seen() == one.from) cell->lower(one.from, one.to);
    }
    return forgotten;
  }

  // Lowerings up to this one were applied.
  [[nodiscard]] std::uint64_t known() const { return known_; }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> known_{0};
  std::vector<std::pair<lowering, time_point>> recent_;
};

}  // namespace fencegate::backend
