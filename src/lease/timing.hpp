// For how long a holder may act on a lease, and when it renews. The times follow from the TTL; an operator may set each.
//
//   sent ──────────── renew_every ─ … ──────────── act_for (D) ── stop_grace ── hold_for ── margin ── ttl
//                     then every retry_after        nothing new, SIGTERM        the end     the store may grant anew
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace fencegate::lease {

struct timing {
  using milliseconds = std::chrono::milliseconds;

  milliseconds ttl{30'000};
  milliseconds margin{1'000};      // the holder's deadline is in front of the TTL's end by this
  milliseconds stop_grace{5'000};  // from SIGTERM to the deadline
  milliseconds skew{280};          // by which the clocks of holder and store may drift apart within one TTL
  milliseconds round_trip{500};    // of a renewal, at most
  milliseconds grace{0};  // behind the deadline: what is under way stands still, and the same term may be had again

  // The defaults for this TTL.
  [[nodiscard]] static timing of(milliseconds ttl);

  [[nodiscard]] milliseconds renew_every() const { return ttl / 3; }
  [[nodiscard]] milliseconds retry_after() const { return ttl / 12; }
  // For one answer: a connection that does not answer is given up in time for the next renewal.
  [[nodiscard]] milliseconds patience() const { return std::max(retry_after(), milliseconds(500)); }
  // All from the moment when the request was sent whose answer grants or renews.
  [[nodiscard]] milliseconds act_for() const { return ttl - margin - stop_grace; }
  [[nodiscard]] milliseconds hold_for() const { return ttl - margin; }

  // So many renewals in a row may be lost before a holder stops.
  [[nodiscard]] int lost_renewals() const;
  // What does not hold of these numbers, with all five; nullopt: they are fine. Safety: when the deadline has passed by the
  // holder's clock, the store has not granted anew by its own. Availability: two renewals in a row may be lost.
  [[nodiscard]] std::optional<std::string> violated() const;
};

}  // namespace fencegate::lease
