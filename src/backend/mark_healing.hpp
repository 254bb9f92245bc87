// Putting many lost marks back: which comes next, how many are under way, and which of them the log names. Pure.
#pragma once

#include "backend/mark_memory.hpp"
#include "base/limits.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace fencegate::backend {

class mark_healing {
 public:
  explicit mark_healing(std::vector<std::shared_ptr<mark_cell>> remembered) : cells_(std::move(remembered)) {}

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
  std::vector<std::shared_ptr<mark_cell>> cells_;
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
  std::size_t lost_ = 0;
  bool failed_ = false;
};

}  // namespace fencegate::backend
