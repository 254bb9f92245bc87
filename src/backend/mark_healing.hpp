// Putting many lost marks back: which comes next, how many are under way, and which of them the log names. Pure.
#pragma once

#include "backend/mark_memory.hpp"
#include "base/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

// What has to be in the backend for a mark to be touched: the value of a key that is lost when marks are.
struct epoch_guard {
  std::string_view key;  // epoch_key, or while there is no epoch healing_key (backend/redis_scripts.hpp)
  std::string value;
  std::string known;            // the epoch that this process knew when it began
  std::uint64_t lowerings = 0;  // of the same snapshot

  // All is in order but these marks.
  [[nodiscard]] bool of_late() const { return value == known; }
};

class mark_healing {
 public:
  mark_healing(epoch_guard guard, mark_memory::cells remembered)
      : guard_(std::move(guard)), cells_(std::move(remembered)) {}
  // Behind those, all that the walk comes to.
  void and_all(mark_memory::walk rest) { rest_ = rest; }

  [[nodiscard]] const epoch_guard& guard() const { return guard_; }

  // The next mark to be raised, now under way; nullptr: enough are under way, none is left, or one has failed.
  [[nodiscard]] std::shared_ptr<mark_cell> begin_next() {
    if (under_way_ == limits::marks_healed_at_once_max || !problem_.empty()) return nullptr;
    if (next_ == cells_.size() && rest_) {
      cells_ = rest_->next(limits::marks_healed_at_once_max);
      next_ = 0;
      if (cells_.empty()) rest_.reset();
    }
    if (next_ == cells_.size()) return nullptr;
    ++under_way_;
    return std::move(cells_[next_++]);
  }
  // Those that have not begun never will: they come late, too.
  void give_back_rest(mark_memory& marks) {
    for (; next_ != cells_.size(); ++next_) marks.came_late(std::move(cells_[next_]));
    if (std::exchange(rest_, std::nullopt)) marks.all_came_late();
  }
  // problem: why it could not be put back; "" = it was.
  void one_done(std::string problem) {
    --under_way_;
    if (problem_.empty()) problem_ = std::move(problem);
  }
  [[nodiscard]] bool over() const {
    return under_way_ == 0 && ((next_ == cells_.size() && !rest_) || !problem_.empty());
  }
  // The first one's; "" = all were put back.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  // A mark was found gone or lower. True: it gets a line of its own; the others are a number in the last line.
  [[nodiscard]] bool note_lost() { return ++lost_ <= limits::lost_marks_logged_max; }
  [[nodiscard]] std::size_t lost() const { return lost_; }

 private:
  epoch_guard guard_;
  mark_memory::cells cells_;
  std::size_t next_ = 0;
  std::optional<mark_memory::walk> rest_;
  std::size_t under_way_ = 0;
  std::size_t lost_ = 0;
  std::string problem_;
};

}  // namespace fencegate::backend
