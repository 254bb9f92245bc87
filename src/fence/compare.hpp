// What a mark says of a token: the rule that everything else here is about. Where SQL or Lua has to apply it next to the
// data, backend/schema/3_raise.sql and backend/redis_scripts.hpp say the same.
#pragma once

#include "fence/policy.hpp"
#include "fence/token.hpp"

#include <cstdint>
#include <optional>

namespace fencegate::fence {

enum class comparison : std::uint8_t {
  lower,  // the mark is lower, or there is none: it may rise to the token
  equal,  // the mark is the token: its holder's next write
  used,   // the same, where each token is good for one use (equal_token: reject)
  stale,  // the mark is higher, and never goes back
  jump,   // the mark is lower by more than max_step
};

// A first mark has no step: there is nothing to measure it against.
[[nodiscard]] constexpr comparison compare(token presented, std::optional<token> mark, const policy& rules = {}) {
  if (!mark) return comparison::lower;
  if (*mark > presented) return comparison::stale;
  if (*mark == presented) return rules.spends() ? comparison::used : comparison::equal;
  const bool jumps = rules.max_step > 0 && presented.value() - mark->value() > rules.max_step;
  return jumps ? comparison::jump : comparison::lower;
}

// The lowest mark from which the token is no jump. 0: any, or none.
[[nodiscard]] constexpr std::int64_t lowest_mark_for(token presented, std::int64_t max_step) {
  return max_step <= 0 || presented.value() <= max_step ? 0 : presented.value() - max_step;
}

}  // namespace fencegate::fence
