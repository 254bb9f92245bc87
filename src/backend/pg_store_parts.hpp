// What the two halves of pg_store have in common.
#pragma once

#include "backend/pg_link.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

namespace fencegate::backend {

// Whatever the role or the database have as defaults.
inline constexpr const char* begin_reading = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
inline constexpr const char* begin_transaction = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
inline constexpr std::size_t any_rows = std::numeric_limits<std::size_t>::max();
// What a server that keeps its own time limits may be late.
inline constexpr std::chrono::milliseconds allowance{2'000};

// At least 1 ms.
[[nodiscard]] inline std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

// The last step is an error that the server sent: what came before it is rolled back, what comes behind it was skipped.
[[nodiscard]] inline bool failed_at(const pg_outcome& outcome) {
  return !outcome.steps.empty() && outcome.steps.back().has_error() && !outcome.steps.back().error().sqlstate.empty();
}

// The last of `steps` is a COMMIT that did commit. Nothing behind its answer changes that, the session's end neither.
[[nodiscard]] inline bool has_committed(const pg_outcome& outcome, std::size_t steps) {
  return outcome.steps.size() >= steps && outcome.steps[steps - 1].has_value() &&
         outcome.steps[steps - 1]->tag == "COMMIT";
}

// And nothing came behind it.
[[nodiscard]] inline bool is_committed(const pg_outcome& outcome, std::size_t steps) {
  return outcome.lost.empty() && outcome.steps.size() == steps && has_committed(outcome, steps);
}

}  // namespace fencegate::backend
