#include "lease/timing.hpp"

#include <algorithm>

namespace fencegate::lease {
namespace {

constexpr int lost_renewals_least = 2;

std::string shown(timing::milliseconds t) { return std::to_string(t.count()) + "ms"; }

}  // namespace

timing timing::of(milliseconds ttl) {
  timing out;
  out.ttl = ttl;
  out.stop_grace = std::min(milliseconds(5'000), ttl / 6);
  out.skew = milliseconds(250) + ttl / 1000;
  out.margin = std::max(milliseconds(1'000), out.skew + out.round_trip);
  return out;
}

int timing::lost_renewals() const {
  const auto spare = ttl - margin - stop_grace - renew_every() - round_trip;
  if (spare.count() <= 0 || retry_after().count() == 0) return 0;
  return static_cast<int>(spare / retry_after());
}

std::optional<std::string> timing::violated() const {
  const std::string numbers = "ttl " + shown(ttl) + ", margin " + shown(margin) + ", stop_grace " + shown(stop_grace) +
                              ", skew " + shown(skew) + ", round_trip " + shown(round_trip);
  if (margin < skew + round_trip)
    return "not safe: margin must be at least skew + round_trip, or else the lease may be granted to another before "
           "its "
           "holder has stopped (" +
           numbers + ")";
  if (lost_renewals() < lost_renewals_least)
    return "not available: what is left of the ttl, less margin, stop_grace, round_trip and a third of the ttl, must "
           "be "
           "enough for " +
           std::to_string(lost_renewals_least) + " lost renewals, a twelfth of the ttl each (" + numbers + ")";
  return std::nullopt;
}

}  // namespace fencegate::lease
