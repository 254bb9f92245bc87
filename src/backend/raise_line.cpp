#include "backend/raise_line.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace fencegate::backend {
namespace {

bool gone(const raise_line::wish& one) { return one.left != nullptr && *one.left; }

void one_less(std::map<std::string, std::size_t>& counts, const std::string& of) {
  const auto at = counts.find(of);
  if (--at->second == 0) counts.erase(at);
}

}  // namespace

bool raise_line::add(wish one) {
  bool alone = true;
  for (const auto& claim : one.wanted) alone = ++wanted_[claim.resource] == 1 && alone;
  line_.push_back(std::move(one));
  return alone;
}

std::optional<raise_line::wish> raise_line::next() {
  auto first = line_.end();
  std::set<std::string_view> taken;  // by those at it and those in front
  for (const auto& [resource, count] : at_it_) taken.insert(resource);
  for (auto one = line_.begin(); one != line_.end();) {
    const auto here = one++;
    if (gone(*here)) {
      forget(take(here).wanted);
      continue;
    }
    const auto& wanted = here->wanted;
    const bool may =
        std::none_of(wanted.begin(), wanted.end(), [&](const auto& c) { return taken.contains(c.resource); });
    if (may && (first == line_.end() || here->turns < first->turns)) first = here;
    if (may && here->turns == 0) break;
    for (const auto& claim : wanted) taken.insert(claim.resource);
  }
  if (first == line_.end()) return std::nullopt;
  for (const auto& claim : first->wanted) ++at_it_[claim.resource];
  return take(first);
}

void raise_line::ended(const claims& wanted) {
  leave(wanted);
  forget(wanted);
}

void raise_line::again(wish one) {
  leave(one.wanted);
  ++one.turns;
  line_.push_front(std::move(one));
}

std::vector<raise_line::wish> raise_line::late(time_point now) {
  std::vector<wish> out;
  for (auto one = line_.begin(); one != line_.end();) {
    const auto here = one++;
    const bool left = gone(*here);
    if (!left && now < here->until) continue;
    auto taken = take(here);
    forget(taken.wanted);
    if (!left) out.push_back(std::move(taken));
  }
  return out;
}

std::vector<raise_line::wish> raise_line::all() {
  std::vector<wish> out;
  while (!line_.empty()) {
    out.push_back(take(line_.begin()));
    forget(out.back().wanted);
  }
  return out;
}

raise_line::wish raise_line::take(place from) {
  auto out = std::move(*from);
  line_.erase(from);
  return out;
}

void raise_line::leave(const claims& wanted) {
  for (const auto& claim : wanted) one_less(at_it_, claim.resource);
}

void raise_line::forget(const claims& wanted) {
  for (const auto& claim : wanted) one_less(wanted_, claim.resource);
}

}  // namespace fencegate::backend
