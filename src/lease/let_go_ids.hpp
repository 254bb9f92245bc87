// Ids of grants that were let go. As long as the release may be under way, an id names no other grant: the release would end
// that, too.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace fencegate::lease {

class let_go_ids {
 public:
  using clock = std::chrono::steady_clock;

  // `work`: lives as long as an answer about this grant may come. However long this process stands still meanwhile, the id is
  // kept until then, and for a minute from when that was seen: for a server that has lost its client, and not noticed yet.
  void note(const std::string& id, std::weak_ptr<const void> work, clock::time_point now = clock::now()) {
    while (!in_order_.empty() && !contains(in_order_.front(), now)) {
      noted_.erase(in_order_.front());
      in_order_.pop_front();
    }
    if (noted_.insert_or_assign(id, noted{std::move(work), std::nullopt}).second) in_order_.push_back(id);
  }
  [[nodiscard]] bool contains(const std::string& id, clock::time_point now = clock::now()) {
    const auto at = noted_.find(id);
    if (at == noted_.end()) return false;
    auto& [work, until] = at->second;
    if (!work.expired()) return true;
    if (!until) until = now + kept_for;
    return *until > now;
  }

 private:
  static constexpr std::chrono::minutes kept_for{1};

  struct noted {
    std::weak_ptr<const void> work;
    std::optional<clock::time_point> until;  // set when the work was seen to be over
  };

  std::unordered_map<std::string, noted> noted_;
  std::deque<std::string> in_order_;  // each once
};

}  // namespace fencegate::lease
