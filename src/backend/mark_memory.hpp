// What this process has seen of the marks. Marks only rise, so a remembered mark is a sound reason to reject and to
// notice a regression of the backend. It is never a reason to admit.
#pragma once

#include "base/limits.hpp"
#include "base/log.hpp"
#include "fence/token.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::backend {

// The highest mark seen of one resource. Shared by all sessions that are bound to it; any thread.
class mark_cell {
 public:
  explicit mark_cell(std::string resource_name)
      : resource(std::move(resource_name)), key("fencegate:mark:{" + resource + "}") {}

  const std::string resource;
  const std::string key;  // where the mark is kept in Redis

  [[nodiscard]] std::optional<fence::token> seen() const {
    const std::int64_t value = seen_.load();
    if (value < 0) return std::nullopt;
    return fence::token(value);
  }
  void saw(fence::token mark) {
    std::int64_t known = seen_.load();
    while (known < mark.value() && !seen_.compare_exchange_weak(known, mark.value())) {
    }
  }

 private:
  std::atomic<std::int64_t> seen_{-1};
};

// Marks only rise: one that was seen higher than it is found now (nullopt: not at all) has gone back. `about`: where.
inline void log_regression(log::event about, const mark_cell& cell, std::optional<fence::token> found) {
  about.add("resource", cell.resource).add("seen", cell.seen()).add("mark", found);
  about.write(log::level::error, "mark went back; raising it again");
}

class mark_memory {
 public:
  [[nodiscard]] std::shared_ptr<mark_cell> cell(std::string_view resource) {
    const std::lock_guard lock(mutex_);
    auto& slot = cells_[std::string(resource)];
    if (slot == nullptr) {
      slot = std::make_shared<mark_cell>(std::string(resource));
      auto mine = slot;
      if (cells_.size() > limits::marks_remembered_max) forget_one_unused(mine);
      return mine;
    }
    return slot;
  }

  // Without remembering the name: peers choose it.
  [[nodiscard]] std::optional<fence::token> seen(std::string_view resource) const {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(std::string(resource));
    return at == cells_.end() ? std::nullopt : at->second->seen();
  }

  // Marks are compared or put back from all(), behind note_listing(). So when listings() has moved, between what was sent
  // and the time when the mark that it answered is in the cell, that may have come too late for it.
  [[nodiscard]] std::uint64_t listings() const { return listings_; }
  void note_listing() { ++listings_; }
  // Then it is to be put back, too, in case that it was lost.
  void saw_since(std::uint64_t listings, const std::shared_ptr<mark_cell>& cell, fence::token mark) {
    cell->saw(mark);
    if (listings != listings_) came_late(cell);
  }
  // Moves when marks are known to be lost: one that was raised meanwhile may be among them.
  [[nodiscard]] std::uint64_t losses() const { return losses_; }
  void note_loss() { ++losses_; }
  void came_late(std::shared_ptr<mark_cell> cell) {
    const std::lock_guard lock(mutex_);
    late_.push_back(std::move(cell));
  }
  [[nodiscard]] bool any_late() const {
    const std::lock_guard lock(mutex_);
    return !late_.empty();
  }
  [[nodiscard]] std::vector<std::shared_ptr<mark_cell>> take_late() {
    const std::lock_guard lock(mutex_);
    return std::exchange(late_, {});
  }

  [[nodiscard]] std::vector<std::shared_ptr<mark_cell>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<mark_cell>> out;
    out.reserve(cells_.size());
    for (const auto& [name, cell] : cells_) out.push_back(cell);
    return out;
  }
  // Some of them, about `most`. Whoever goes on with the same `place` (0 at first) gets all in turn.
  [[nodiscard]] std::vector<std::shared_ptr<mark_cell>> some(std::size_t& place, std::size_t most) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<mark_cell>> out;
    const std::size_t buckets = cells_.bucket_count();
    for (std::size_t looked = 0; looked < buckets && out.size() < most; ++looked, ++place) {
      if (place >= buckets) place = 0;
      for (auto at = cells_.begin(place); at != cells_.end(place); ++at) out.push_back(at->second);
    }
    return out;
  }

 private:
  // Forgetting is always safe: the backend decides.
  void forget_one_unused(const std::shared_ptr<mark_cell>& keep) {
    for (auto at = cells_.begin(); at != cells_.end(); ++at)
      if (at->second != keep && at->second.use_count() == 1) {
        cells_.erase(at);
        return;
      }
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<mark_cell>> cells_;
  std::vector<std::shared_ptr<mark_cell>> late_;
  std::atomic<std::uint64_t> listings_{0}, losses_{0};
};

}  // namespace fencegate::backend
