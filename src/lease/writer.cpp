#include "lease/writer.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::lease {

std::string_view name_of(writer_phase phase) {
  switch (phase) {
    case writer_phase::unknown: return "unknown";
    case writer_phase::standby: return "standby";
    case writer_phase::holding: return "holding";
    case writer_phase::lost: break;
  }
  return "lost";
}

writer::writer(writer_rules rules, time_point began)
    : rules_(std::move(rules)), phase_(rules_.rebinds ? writer_phase::standby : writer_phase::unknown), since_(began) {}

writer::report writer::started(std::string_view container, time_point start, time_point now) {
  const auto& all = rules_.containers;
  if (container.empty() && all.size() == 1) container = all.front();
  if (!all.empty() && std::find(all.begin(), all.end(), container) == all.end()) return report::stranger;
  if (start > now) return report::ahead;
  // Nothing hangs on it while the lease is held; of a container that starts anew then, the next loss will want another start.
  if (start <= since_) return phase_ == writer_phase::holding ? report::counted : report::early;
  auto& known = starts_[all.empty() ? std::string() : std::string(container)];
  if (start > known) ++count_;
  known = std::max(known, start);
  started_at_ = std::max(started_at_.value_or(start), start);
  const bool waits = phase_ == writer_phase::unknown || (phase_ == writer_phase::lost && !rules_.rebinds);
  if (waits && all_started()) {
    phase_ = writer_phase::standby;
    if (heard_) heard_ = now;  // its first probe may be some time off
  }
  return report::counted;
}

bool writer::all_started() const {
  if (rules_.containers.empty()) return !starts_.empty();
  return std::all_of(rules_.containers.begin(), rules_.containers.end(),
                     [this](const auto& one) { return starts_.contains(one); });
}

void writer::heard(time_point now) {
  heard_ = now;
  if (phase_ == writer_phase::lost && std::exchange(fell_silent_, false) && rules_.rebinds)
    phase_ = writer_phase::standby;
}

std::optional<writer::time_point> writer::silent_at() const {
  if (!heard_ || phase_ == writer_phase::unknown || phase_ == writer_phase::lost) return std::nullopt;
  return *heard_ + rules_.silence_max;
}

bool writer::is_silent(time_point now) const {
  const auto at = silent_at();
  return at && now >= *at;
}

void writer::granted() { phase_ = writer_phase::holding; }

void writer::lost(time_point when) {
  since_ = std::max(since_, when);
  starts_.clear();
  fell_silent_ = is_silent(when);
  phase_ = rules_.rebinds && !fell_silent_ ? writer_phase::standby : writer_phase::lost;
}

}  // namespace fencegate::lease
