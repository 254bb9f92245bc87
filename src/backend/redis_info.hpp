// What Redis answers to INFO.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::backend {

// "" where it has none.
[[nodiscard]] std::string info_field(std::string_view info, std::string_view name);

struct redis_info {
  bool primary = false, append_only = false, cluster = false;
  std::string eviction;       // maxmemory-policy
  std::size_t replicas = 0;   // connected now
  bool min_replicas = false;  // a write needs replicas (min-replicas-to-write and min-replicas-max-lag)

  [[nodiscard]] bool may_evict_marks() const { return eviction.starts_with("allkeys-"); }
};
[[nodiscard]] redis_info read_redis_info(std::string_view info);

}  // namespace fencegate::backend
