// Those who wait for a turn, of several owners: each owner's turn comes in rotation, and its own stand in the order in which they
// came. So a storm of one makes no other wait for more than one of it. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::backend {

template <class Item>
class fair_line {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

  void push(const std::string& owner, Item item) {
    auto at = std::find_if(lines_.begin(), lines_.end(), [&](const line& one) { return one.owner == owner; });
    if (at == lines_.end()) at = lines_.insert(lines_.end(), line{owner, {}});
    at->items.push_back(std::move(item));
    ++size_;
  }

  // The last that came of the owner who has most here. REQUIRES: it is not empty.
  [[nodiscard]] Item take_of_largest() {
    const auto at = std::max_element(lines_.begin(), lines_.end(),
                                     [](const line& a, const line& b) { return a.items.size() < b.items.size(); });
    Item out = std::move(at->items.back());
    at->items.pop_back();
    leave(at);
    return out;
  }

  template <class Admits>
  [[nodiscard]] bool any(Admits admits) const {
    return std::any_of(lines_.begin(), lines_.end(), [&](const line& one) { return admits(one.owner); });
  }
  // Of the first owner that is admitted; nullopt: none is.
  template <class Admits>
  [[nodiscard]] std::optional<Item> take(Admits admits) {
    const auto at = std::find_if(lines_.begin(), lines_.end(), [&](const line& one) { return admits(one.owner); });
    if (at == lines_.end()) return std::nullopt;
    std::optional<Item> out(std::move(at->items.front()));
    at->items.pop_front();
    lines_.splice(lines_.end(), lines_, at);
    leave(at);
    return out;
  }

  // All of which this is true.
  template <class Is>
  [[nodiscard]] std::vector<Item> take_all(Is is) {
    std::vector<Item> out;
    for (auto at = lines_.begin(); at != lines_.end();) {
      auto& items = at->items;
      const auto first = std::stable_partition(items.begin(), items.end(), [&](const Item& one) { return !is(one); });
      size_ -= static_cast<std::size_t>(items.end() - first);
      std::move(first, items.end(), std::back_inserter(out));
      items.erase(first, items.end());
      at = items.empty() ? lines_.erase(at) : std::next(at);
    }
    return out;
  }

 private:
  struct line {
    std::string owner;
    std::deque<Item> items;  // never empty
  };
  using lines = std::list<line>;

  void leave(typename lines::iterator at) {
    --size_;
    if (at->items.empty()) lines_.erase(at);
  }

  lines lines_;  // whose turn is next stands first
  std::size_t size_ = 0;
};

}  // namespace fencegate::backend
