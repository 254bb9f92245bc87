// A mark as PostgreSQL has told it, and what it says of an operator who lowered it.
#pragma once

#include "backend/mark_memory.hpp"
#include "base/log.hpp"
#include "fence/token.hpp"

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::backend {

// Both were read in one statement.
struct found_mark {
  std::string resource;
  fence::token mark;
  std::uint64_t lowering = 0;  // which it stands under (backend/mark_memory.hpp)
};
using found_marks = std::vector<found_mark>;

// What is found of a mark is remembered. Where that shows that an operator took the mark back, it is logged, once. `about()`:
// an event that says where.
template <class About>
void learn(const mark_memory& marks, mark_cell& cell, fence::token mark, std::uint64_t lowering, const About& about) {
  if (lowering <= cell.lowering()) return marks.saw(cell, mark, lowering);
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const auto seen = cell.seen_under();
  marks.saw(cell, mark, lowering);
  if (!seen || seen->lowering >= lowering || seen->mark <= mark) return;
  log::event out = about();
  out.add("resource", cell.resource).add("from", seen->mark.value()).add("to", mark.value());
  out.write(log::level::warn, "an operator lowered the mark");
}

}  // namespace fencegate::backend
