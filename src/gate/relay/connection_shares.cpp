#include "gate/relay/connection_shares.hpp"

#include "base/demand.hpp"

#include <algorithm>
#include <vector>

namespace fencegate::gate {

connection_shares::connection_shares(std::string gate, std::size_t connections_max)
    : gate_(std::move(gate)), most_(connections_max - connections_max / 8) {}

std::size_t connection_shares::tags() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

// Nothing can fail once a number was changed.
std::optional<std::string> connection_shares::exchange(fence::claims_list& counted, const fence::claims_list& wanted) {
  const auto has = [&](const fence::claim& one) {
    return std::find(counted.begin(), counted.end(), one) != counted.end();
  };
  auto next = wanted;
  const std::lock_guard lock(mutex_);
  for (const auto& one : wanted) {
    const auto at = connections_.find(fence::write_tag({one}));
    if (at != connections_.end() && at->second >= most_ && !has(one))
      return "connections_max of gate " + gate_ + ": " + std::to_string(most_) + " have the tag " + at->first +
             ", the others are for other tags";
  }
  std::vector<decltype(connections_)::iterator> come, leave;
  for (const auto& one : counted) leave.push_back(connections_.find(fence::write_tag({one})));
  for (const auto& one : wanted) come.push_back(connections_.try_emplace(fence::write_tag({one})).first);
  for (const auto at : come) ++at->second;
  for (const auto at : leave) {
    demand(at != connections_.end() && at->second > 0, "what was counted is there");
    if (--at->second == 0) connections_.erase(at);
  }
  counted = std::move(next);
  return std::nullopt;
}

connection_shares::part::~part() {
  if (of_ != nullptr) static_cast<void>(of_->exchange(tag_, {}));
}

connection_shares::part& connection_shares::part::operator=(part&& other) noexcept {
  std::swap(of_, other.of_);
  std::swap(tag_, other.tag_);
  return *this;
}

std::optional<std::string> connection_shares::part::take(const fence::claims_list& tag) {
  if (of_ == nullptr || tag.empty() || tag == tag_) return std::nullopt;
  return of_->exchange(tag_, tag);
}

}  // namespace fencegate::gate
