// Putting many lost marks back: which comes next, how many are under way, and which of them the log names. Pure.
#pragma once

#include "backend/mark_memory.hpp"
#include "base/limits.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

// What has to be in the backend for a mark to be touched: the value of a key that is lost when marks are.
struct epoch_guard {
  std::string_view key;  // epoch_key, or while there is no epoch healing_key (backend/redis_scripts.hpp)
  std::string value;
};

class mark_healing {
 public:
  mark_healing(epoch_guard guard, std::vector<std::shared_ptr<mark_cell>> remembered)
      : guard_(std::move(guard)), cells_(std::move(remembered)) {}

  [[nodiscard]] const epoch_guard& guard() const { return guard_; }

  // The next mark to be raised, now under way; nullptr: enough are under way, or none is left.
  [[nodiscard]] std::shared_ptr<mark_cell> begin_next() {
    if (under_way_ == limits::marks_healed_at_once_max || next_ == cells_.size()) return nullptr;
    ++under_way_;
    return std::move(cells_[next_++]);
  }
  void one_done(bool put_back) {
    --under_way_;
    failed_ = failed_ || !put_back;
  }
  [[nodiscard]] bool over() const { return under_way_ == 0 && next_ == cells_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }

  // A mark was found gone or lower. True: it gets a line of its own; the others are a number in the last line.
  [[nodiscard]] bool note_lost() { return ++lost_ <= limits::lost_marks_logged_max; }
  [[nodiscard]] std::size_t lost() const { return lost_; }

 private:
  epoch_guard guard_;
  std::vector<std::shared_ptr<mark_cell>> cells_;
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
  std::size_t lost_ = 0;
  bool failed_ = false;
};

}  // namespace fencegate::backend
