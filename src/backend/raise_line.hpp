// Who waits to raise marks, and who is at it: each waits for those of its own resources only, in the order in which they
// came. One whose turn is over stands in line again, in front of those that want the same and behind all others. Pure.
#pragma once

#include "backend/pg_link.hpp"
#include "fence/tag.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::backend {

class raise_line {
 public:
  using claims = std::vector<fence::claim>;
  using time_point = std::chrono::steady_clock::time_point;
  // Whoever wants it has left, which any thread may say. nullptr: nobody who could.
  using has_left = std::shared_ptr<const std::atomic<bool>>;
  struct wish {
    claims wanted;
    // For as long the raise waits for the end of those who hold its marks.
    std::function<std::vector<pg_statement>(std::chrono::milliseconds)> statements;
    has_left left;
    pg_answer done;
    time_point until;                         // it leaves the line then
    std::size_t turns = 0;                    // that it has had in vain
    std::optional<wire::pg_error> why_not{};  // as the server said in its last one
  };

  // true: nobody is at it or in front, so that next() is worth a question.
  bool add(wish one);
  // Of those that wait for nobody the first with the fewest turns; it is at it from now on. Those who have left are forgotten.
  std::optional<wish> next();
  // Whoever was at it is no more.
  void ended(const claims& wanted);
  // … and stands in line again.
  void again(wish one);
  // Takes out those whose time is up, and forgets those who have left.
  std::vector<wish> late(time_point now);
  std::vector<wish> all();
  [[nodiscard]] bool empty() const { return line_.empty(); }

 private:
  using place = std::list<wish>::iterator;

  wish take(place from);
  void leave(const claims& wanted);
  void forget(const claims& wanted);

  std::list<wish> line_;
  std::map<std::string, std::size_t> wanted_;  // how many want a resource, in line or at it
  std::map<std::string, std::size_t> at_it_;
};

}  // namespace fencegate::backend
