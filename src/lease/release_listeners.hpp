// Those who wait for a resource, and are told when it was released.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::lease {

class release_listeners {
 public:
  using listener = std::function<void(const std::string& resource)>;

  // Until what is returned is dropped.
  [[nodiscard]] std::shared_ptr<void> add(listener tell) {
    std::erase_if(listeners_, [](const auto& one) { return one.expired(); });
    auto out = std::make_shared<listener>(std::move(tell));
    listeners_.push_back(out);
    return out;
  }
  void tell(const std::string& resource) const {
    for (const auto& one : std::vector(listeners_))
      if (const auto there = one.lock()) (*there)(resource);
  }

 private:
  std::vector<std::weak_ptr<listener>> listeners_;
};

}  // namespace fencegate::lease
