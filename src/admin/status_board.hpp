// What has happened lately behind this process's gates, for people who look at the status page: marks that rose, and
// rejections. Both are rare, and may take its lock; what is admitted every day is counted by base/metrics.hpp alone.
//
// Bounded: see limits::status_*. What was seen longest ago is forgotten. Nothing here decides anything.
#pragma once

#include "fence/rejection.hpp"

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fencegate::admin {

using wall_time = std::chrono::system_clock::time_point;

// A mark of one gate, and who was rejected because of it.
struct resource_seen {
  std::uint64_t id = 0;  // stays the same while it is remembered
  std::string gate, resource;
  std::optional<std::int64_t> mark;  // the highest that was seen; nullopt: none was
  std::uint64_t lowering = 0;        // of which operators had lowered it before
  std::optional<wall_time> rose;     // when it was seen to rise to that, or
  bool first = false;                // seen for the first time
  std::optional<wall_time> rejected;
  std::optional<std::int64_t> token;  // of the last rejection
  fence::reason why = fence::reason::stale;
  std::uint64_t rejections = 0;
};

// Rejections that differ in their time alone, within status_board::same_within, are one.
struct rejection_seen {
  std::uint64_t id = 0;
  wall_time at;  // the last one
  std::uint64_t count = 1;
  std::string gate, resource;
  std::optional<std::int64_t> token, mark;
  fence::reason why = fence::reason::stale;
  std::string client, command, detail, trace;  // printable ASCII
  bool monitor = false;                        // it was let through
};

// Any thread.
class status_board {
 public:
  static constexpr std::chrono::seconds same_within{60};
  // As many kinds are looked at for the same one: a storm of many kinds costs no more.
  static constexpr std::size_t kinds_compared = 16;

  status_board();
  status_board(std::size_t resources_max, std::size_t rejections_max)
      : resources_max_(resources_max), rejections_max_(rejections_max) {}

  // A mark, and under which lowering it stands (backend/mark_memory.hpp).
  struct risen_mark {
    std::uint64_t lowering = 0;
    std::int64_t mark = 0;
    friend auto operator<=>(const risen_mark&, const risen_mark&) = default;
  };
  void note_rise(std::string_view gate, std::string_view resource, risen_mark to, bool first, wall_time now);
  // `latest.count` of them, alike; its id is given here. REQUIRES: its words are printable and bounded.
  void note_rejections(rejection_seen latest);

  struct changes {
    std::uint64_t version = 0;             // to be asked with, the next time
    std::vector<resource_seen> resources;  // the last changed first
    std::vector<rejection_seen> rejections;
  };
  // What has changed behind that version; 0: everything.
  [[nodiscard]] changes since(std::uint64_t version) const;

 private:
  template <class Seen>
  struct dated {
    Seen seen;
    std::uint64_t version = 0;
  };
  using resources = std::list<dated<resource_seen>>;
  using rejections = std::list<dated<rejection_seen>>;

  rejections::iterator find_kind(const rejection_seen& like);
  // The resource, as the last one that was seen.
  resource_seen& touch(std::string_view gate, std::string_view resource);

  const std::size_t resources_max_, rejections_max_;
  mutable std::mutex mutex_;
  std::uint64_t version_ = 1, ids_ = 0;
  resources resources_;  // by version, the highest first; so are these
  rejections rejections_;
  std::unordered_map<std::string, resources::iterator> by_name_;
};

}  // namespace fencegate::admin
