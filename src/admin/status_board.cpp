#include "admin/status_board.hpp"

#include "base/limits.hpp"

#include <utility>

namespace fencegate::admin {
namespace {

// A writer that connects anew for each write has another port each time.
std::string_view without_port(std::string_view client) { return client.substr(0, client.rfind(':')); }

bool is_same_kind(const rejection_seen& a, const rejection_seen& b) {
  return a.why == b.why && a.token == b.token && a.monitor == b.monitor && a.gate == b.gate &&
         a.resource == b.resource && without_port(a.client) == without_port(b.client);
}

template <class List>
auto changed_since(const List& all, std::uint64_t version) {
  std::vector<decltype(all.front().seen)> out;
  for (const auto& one : all) {
    if (one.version <= version) break;
    out.push_back(one.seen);
  }
  return out;
}

}  // namespace

status_board::status_board() : status_board(limits::status_resources_max, limits::status_rejections_max) {}

void status_board::note_rise(std::string_view gate, std::string_view resource, risen_mark to, bool first,
                             wall_time now) {
  const std::lock_guard lock(mutex_);
  auto& one = touch(gate, resource);
  // Threads are not in the order of what they have seen.
  if (one.mark && risen_mark{one.lowering, *one.mark} >= to) return;
  const bool lowered = one.mark && to.mark < *one.mark;
  one.first = first && !one.rose;
  one.mark = to.mark;
  one.lowering = to.lowering;
  one.rose = lowered ? std::nullopt : std::optional(now);
}

void status_board::note_rejections(rejection_seen latest) {
  const std::lock_guard lock(mutex_);
  if (!latest.resource.empty()) {
    auto& one = touch(latest.gate, latest.resource);
    if (!one.rose && latest.mark && one.mark.value_or(-1) < *latest.mark) one.mark = latest.mark;
    one.rejected = latest.at;
    one.token = latest.token;
    one.why = latest.why;
    one.rejections += latest.count;
  }
  const auto known = find_kind(latest);
  if (known != rejections_.end()) {
    latest.id = known->seen.id;
    latest.count += known->seen.count;
    rejections_.splice(rejections_.begin(), rejections_, known);
    rejections_.front() = {std::move(latest), ++version_};
    return;
  }
  latest.id = ++ids_;
  if (rejections_.size() == rejections_max_) rejections_.pop_back();
  rejections_.push_front({std::move(latest), ++version_});
}

// Among those that came last.
status_board::rejections::iterator status_board::find_kind(const rejection_seen& like) {
  std::size_t compared = 0;
  for (auto at = rejections_.begin(); at != rejections_.end() && compared < kinds_compared; ++at, ++compared) {
    if (like.at - at->seen.at > same_within) break;
    if (is_same_kind(at->seen, like)) return at;
  }
  return rejections_.end();
}

resource_seen& status_board::touch(std::string_view gate, std::string_view resource) {
  std::string key(gate);
  key += '\n';
  key += resource;
  const auto known = by_name_.find(key);
  if (known != by_name_.end()) {
    resources_.splice(resources_.begin(), resources_, known->second);
  } else {
    if (resources_.size() == resources_max_) {
      const auto& oldest = resources_.back().seen;
      by_name_.erase(oldest.gate + '\n' + oldest.resource);
      resources_.pop_back();
    }
    resources_.emplace_front();
    auto& made = resources_.front().seen;
    made.id = ++ids_;
    made.gate = gate;
    made.resource = resource;
    by_name_.emplace(std::move(key), resources_.begin());
  }
  resources_.front().version = ++version_;
  return resources_.front().seen;
}

status_board::changes status_board::since(std::uint64_t version) const {
  const std::lock_guard lock(mutex_);
  return {version_, changed_since(resources_, version), changed_since(rejections_, version)};
}

}  // namespace fencegate::admin
