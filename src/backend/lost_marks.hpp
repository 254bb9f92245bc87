// Marks that went back: a restored backup, a replica that was promoted. Whoever looks at all marks in turn, some at a time,
// compares what is found with what had been seen of them before the question; a mark that rises meanwhile has not gone
// back. Each loss is news once, until the mark is known to be back. For one thread.
#pragma once

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
  using seen_marks = std::map<std::string, fence::token>;
  struct loss {
    fence::claim to;                    // where it has to rise again
    std::optional<fence::token> found;  // nullopt: not at all
    bool news = false;
  };

  // For compare(): to be taken before the question is sent. The marks that are next.
  [[nodiscard]] static seen_marks some_of(mark_memory::walk& marks) {
    auto some = marks.next(limits::marks_compared_at_once_max);
    if (some.empty()) some = marks.next(limits::marks_compared_at_once_max);  // from the first on
    seen_marks out;
    for (const auto& cell : some) out.emplace(cell->resource, *cell->seen());
    return out;
  }
  [[nodiscard]] static std::vector<std::string> names_of(const seen_marks& seen) {
    std::vector<std::string> out;
    out.reserve(seen.size());
    for (const auto& [name, mark] : seen) out.push_back(name);
    return out;
  }

  // Those that are lost by this answer; what it does not call so is back. The marks learn what was found.
  [[nodiscard]] std::vector<loss> compare(mark_memory& marks, const seen_marks& before,
                                          const std::vector<looked_mark>& found) {
    std::vector<loss> out;
    for (const auto& one : found) {
      const auto cell = marks.cell(one.resource);
      if (one.mark) marks.saw(*cell, *one.mark);
      const auto seen = before.find(one.resource);
      if (seen == before.end() || (one.mark && seen->second <= *one.mark)) {
        known_.erase(one.resource);
        continue;
      }
      const bool news = known_.insert(one.resource).second;
      out.push_back({{one.resource, cell->seen().value_or(seen->second)}, one.mark, news});
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
