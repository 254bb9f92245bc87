// Marks that went back: a restored backup, a replica that was promoted. Whoever looks at all marks in turn, some at a time,
// compares what is found with what had been seen of them before the question; a mark that rises meanwhile has not gone
// back. Nor has one that stands under a later lowering: that is what it is now, with all that rose behind the lowering until it
// was found. Under an earlier one, it has, however high it is. Each loss is news once, until the mark is known to be back.
// For one thread.
#pragma once

#include "backend/found_mark.hpp"
#include "backend/mark_memory.hpp"
#include "backend/store.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::backend {

class lost_marks {
 public:
  using seen_mark = mark_cell::seen_mark;
  using seen_marks = std::map<std::string, seen_mark>;
  struct loss {
    fence::claim to;                    // where it has to rise again
    std::optional<fence::token> found;  // nullopt: not at all
    bool news = false;
    std::uint64_t lowering = 0;  // which it has to stand under, at least
  };

  // For compare(): to be taken before the question is sent. The marks that are next.
  [[nodiscard]] static seen_marks some_of(mark_memory::walk& marks) {
    auto some = marks.next(limits::marks_compared_at_once_max);
    if (some.empty()) some = marks.next(limits::marks_compared_at_once_max);  // from the first on
    seen_marks out;
    for (const auto& cell : some)
      if (const auto seen = cell->seen_under()) out.emplace(cell->resource, *seen);
    return out;
  }
  [[nodiscard]] static std::vector<std::string> names_of(const seen_marks& seen) {
    std::vector<std::string> out;
    out.reserve(seen.size());
    for (const auto& [name, mark] : seen) out.push_back(name);
    return out;
  }

  // Those that are lost by this answer; what it does not call so is back. The marks learn what was found. `about`: see learn().
  template <class About>
  [[nodiscard]] std::vector<loss> compare(mark_memory& marks, const seen_marks& before,
                                          const std::vector<looked_mark>& found, const About& about) {
    std::vector<loss> out;
    for (const auto& one : found) {
      const auto cell = marks.cell(one.resource);
      if (one.mark) learn(marks, *cell, *one.mark, one.lowering, about);
      const auto seen = before.find(one.resource);
      if (seen == before.end() || (one.mark && seen->second <= seen_mark{*one.mark, one.lowering})) {
        known_.erase(one.resource);
        continue;
      }
      const bool news = known_.insert(one.resource).second;
      const auto last = cell->seen_under().value_or(seen->second);
      out.push_back({{one.resource, last.mark}, one.mark, news, last.lowering});
    }
    return out;
  }

  // Somebody has noticed it otherwise; true: it is news.
  [[nodiscard]] bool note(const std::string& resource) { return known_.insert(resource).second; }
  void is_back(const std::string& resource) { known_.erase(resource); }

 private:
  std::set<std::string> known_;
};

}  // namespace fencegate::backend
