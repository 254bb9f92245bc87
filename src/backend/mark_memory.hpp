// What this process has seen of the marks. Marks only rise, so a remembered mark is a sound reason to reject and to
// notice a regression of the backend. It is never a reason to admit.
//
// Only an operator takes one back (fencegate marks lower). From then on the mark stands under another number, its lowering,
// and what is seen under an older one says nothing: it may come late.
//
// What was seen is not forgotten: where Redis loses its marks, this memory is what puts them back. Nothing looks at all of
// it under a lock: the memory is in many parts, by resource, and whoever wants all marks takes a few at a time.
#pragma once

#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "fence/token.hpp"

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace fencegate::backend {

// The highest mark seen of one resource. Shared by all sessions that are bound to it; any thread.
class mark_cell {
 public:
  explicit mark_cell(std::string_view name, bool is_kept = true) : key(key_of(name)), kept(is_kept) {}
  mark_cell(const mark_cell&) = delete;
  mark_cell& operator=(const mark_cell&) = delete;

  const std::string key;  // where the mark is kept in Redis
  const std::string_view resource = std::string_view(key).substr(front.size(), key.size() - front.size() - 1);
  // False: the memory was full. Were its mark lost, nobody would put it back: nothing is raised or proven for it.
  const bool kept;

  // Where the record of the grant is kept that sealed it: "mark issuer grant" (backend/redis_scripts.hpp: seal_marks).
  [[nodiscard]] std::string grant_key() const { return "fencegate:grant:{" + std::string(resource) + "}"; }

  [[nodiscard]] std::optional<fence::token> seen() const {
    const std::int64_t value = seen_.load();
    if (value < 0) return std::nullopt;
    return fence::token(value);
  }
  // Under which lowering that is. 0: none that this process has heard of.
  [[nodiscard]] std::uint64_t lowering() const { return lowering_.load(std::memory_order_acquire); }
  // Both, of one moment.
  struct seen_mark {
    fence::token mark;
    std::uint64_t lowering = 0;
    friend auto operator<=>(const seen_mark& a, const seen_mark& b) {
      return std::pair(a.lowering, a.mark) <=> std::pair(b.lowering, b.mark);
    }
    friend bool operator==(const seen_mark&, const seen_mark&) = default;
  };
  [[nodiscard]] std::optional<seen_mark> seen_under() const {
    const std::lock_guard lock(writing());
    const auto mark = seen();
    return mark ? std::optional(seen_mark{*mark, lowering_}) : std::nullopt;
  }

  // Under the lowering that is known.
  void saw(fence::token mark) { static_cast<void>(rose_to(mark, lowering())); }
  // What was known before, when this counts: it is higher, or of a later lowering. Negative = nothing was.
  std::optional<std::int64_t> rose_to(fence::token mark, std::uint64_t lowering) {
    // The lowering is read first, and written last: behind a new one, the mark is of it.
    if (lowering == this->lowering() && mark.value() <= seen_.load()) return std::nullopt;
    const std::lock_guard lock(writing());
    const std::int64_t known = seen_;
    if (lowering < lowering_ || (lowering == lowering_ && mark.value() <= known)) return std::nullopt;
    seen_.store(mark.value());
    lowering_.store(lowering, std::memory_order_release);
    return known;
  }

 private:
  static constexpr std::string_view front = "fencegate:mark:{";
  static std::string key_of(std::string_view name) {
    std::string out;
    out.reserve(front.size() + name.size() + 1);
    out.append(front).append(name).append("}");
    return out;
  }

  // A mark rises seldom, and there may be millions of them: many share one.
  [[nodiscard]] std::mutex& writing() const {
    static std::array<std::mutex, 64> all;
    return all[(std::hash<const void*>()(this) >> 6) % all.size()];
  }

  std::atomic<std::int64_t> seen_{-1};
  std::atomic<std::uint64_t> lowering_{0};
};

// Marks only rise: one that was seen higher than it is found now (nullopt: not at all) has gone back. `about`: where.
inline void log_regression(log::event about, const mark_cell& cell, std::optional<fence::token> found) {
  about.add("resource", cell.resource).add("seen", cell.seen()).add("mark", found);
  about.write(log::level::error, "mark went back; raising it again");
}

class mark_memory {
 public:
  using pointer = std::shared_ptr<mark_cell>;
  using cells = std::vector<pointer>;

  explicit mark_memory(std::size_t most = limits::marks_remembered_max) : most_(most) {}

  // The resource's cell. Where no mark was seen, it is forgotten when nobody holds it any more: peers choose names.
  [[nodiscard]] std::shared_ptr<mark_cell> cell(std::string_view resource);

  // Without remembering the name.
  [[nodiscard]] std::optional<fence::token> seen(std::string_view resource) const;

  [[nodiscard]] std::size_t size() const { return size_; }

  // Goes through all marks that had been seen when it began, a few at a time. What is seen meanwhile may come, too, and
  // one may come twice. REQUIRES: the memory lives longer.
  class walk {
   public:
    explicit walk(const mark_memory& of) : of_(&of) {}
    // About `most` of them. None: that was all, and the next ones are the first again.
    [[nodiscard]] cells next(std::size_t most);

   private:
    const mark_memory* of_;
    std::size_t part_ = 0, bucket_ = 0, buckets_ = 0;
  };

  // When a question for marks was sent. `lowerings`: behind how many of them that was, as far as this process knew; where an
  // epoch is sent with it, both are of one snapshot (backend/redis_state.hpp).
  struct moment {
    std::uint64_t listings = 0, lowerings = 0;
  };
  [[nodiscard]] moment now(std::uint64_t lowerings) const { return {listings_, lowerings}; }
  // Marks are compared or put back by a walk, behind note_listing(). So when listings have moved, between what was sent
  // and the time when the mark that it answered is in the cell, that may have come too late for it.
  void note_listing() { ++listings_; }
  // Tells the gate of each mark that rises. REQUIRES: before the first thread; `gate` lives longer.
  void tell_rises(const metrics::gate& gate) { gate_ = &gate; }
  // Of a cell of this memory.
  void saw(mark_cell& cell, fence::token mark, std::uint64_t lowering) const {
    const auto before = cell.rose_to(mark, lowering);
    if (before && gate_ != nullptr && gate_->on_rise)
      gate_->on_rise(cell.resource, mark.value(), lowering, *before < 0);
  }
  // What a question of then has shown.
  void saw(mark_cell& cell, fence::token mark, const moment& then) const {
    const auto lowering = cell.lowering();
    if (then.lowerings >= lowering) saw(cell, mark, lowering);  // else it is of before
  }
  // Where marks were listed since, it is to be put back, too, in case that it was lost.
  void saw_since(const moment& then, const pointer& cell, fence::token mark) {
    saw(*cell, mark, then);
    if (then.listings != listings_) came_late(cell);
  }
  // Moves when marks are known to be lost: one that was raised meanwhile may be among them.
  [[nodiscard]] std::uint64_t losses() const { return losses_; }
  void note_loss() { ++losses_; }

  struct late_marks {
    bool all = false;
    cells these;
  };
  void came_late(std::shared_ptr<mark_cell> cell) {
    const std::lock_guard lock(late_mutex_);
    late_.these.push_back(std::move(cell));
  }
  void all_came_late() {
    const std::lock_guard lock(late_mutex_);
    late_.all = true;
  }
  [[nodiscard]] bool any_late() const {
    const std::lock_guard lock(late_mutex_);
    return late_.all || !late_.these.empty();
  }
  [[nodiscard]] late_marks take_late() {
    const std::lock_guard lock(late_mutex_);
    return std::exchange(late_, {});
  }

 private:
  static std::string_view name_of(const pointer& cell) { return cell->resource; }
  static std::string_view name_of(std::string_view name) { return name; }
  // (Not noexcept: so the set keeps the hashes, and does not look at every cell when it grows.)
  struct hash {
    using is_transparent = void;
    template <class Name>
    std::size_t operator()(const Name& one) const {
      return std::hash<std::string_view>()(name_of(one));
    }
  };
  struct same {
    using is_transparent = void;
    template <class Left, class Right>
    bool operator()(const Left& left, const Right& right) const {
      return name_of(left) == name_of(right);
    }
  };
  struct part {
    mutable std::mutex mutex;
    std::unordered_set<pointer, hash, same> all;
    cells fresh;  // of these: no mark was seen, when they were looked at last
    std::size_t looked_at = 0;
  };
  // So many that a part grows in a millisecond when there are ten million marks.
  static constexpr std::size_t parts = 1024;
  // (By other bits of the hash than the set's.)
  static std::size_t index_of(std::string_view name) { return (hash()(name) >> 40) % parts; }

  void forget_some(part& of);

  const std::size_t most_;
  const metrics::gate* gate_ = nullptr;
  std::atomic<std::size_t> size_{0};
  std::atomic<bool> said_full_{false};
  std::array<part, parts> parts_;
  mutable std::mutex late_mutex_;
  late_marks late_;
  std::atomic<std::uint64_t> listings_{0}, losses_{0};
};

}  // namespace fencegate::backend
