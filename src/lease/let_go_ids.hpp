// Ids of grants that were let go. As long as the release may be under way, an id names no other grant: the release would end
// that, too.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <unordered_map>

namespace fencegate::lease {

class let_go_ids {
 public:
  void note(const std::string& id) {
    forget_old();
    if (until_.insert_or_assign(id, clock::now() + kept_for).second) in_order_.push_back(id);
  }
  [[nodiscard]] bool contains(const std::string& id) const {
    const auto at = until_.find(id);
    return at != until_.end() && at->second > clock::now();
  }

 private:
  using clock = std::chrono::steady_clock;
  // Longer than any answer of an issuer is waited for.
  static constexpr std::chrono::minutes kept_for{1};

  void forget_old() {
    for (; !in_order_.empty(); in_order_.pop_front()) {
      const auto at = until_.find(in_order_.front());
      if (at->second > clock::now()) return;
      until_.erase(at);
    }
  }

  std::unordered_map<std::string, clock::time_point> until_;
  std::deque<std::string> in_order_;  // each once
};

}  // namespace fencegate::lease
