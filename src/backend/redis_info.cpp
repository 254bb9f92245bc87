#include "backend/redis_info.hpp"

#include <charconv>

namespace fencegate::backend {

std::string info_field(std::string_view info, std::string_view name) {
  std::size_t at = 0;
  while (at < info.size()) {
    std::size_t end = info.find("\r\n", at);
    if (end == std::string_view::npos) end = info.size();
    const std::string_view line = info.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
      return std::string(line.substr(name.size() + 1));
    at = end + 2;
  }
  return {};
}

redis_info read_redis_info(std::string_view info) {
  redis_info out;
  out.primary = info_field(info, "role") == "master";
  out.append_only = info_field(info, "aof_enabled") == "1";
  out.cluster = info_field(info, "cluster_enabled") == "1";
  out.eviction = info_field(info, "maxmemory_policy");
  const auto replicas = info_field(info, "connected_slaves");
  std::from_chars(replicas.data(), replicas.data() + replicas.size(), out.replicas);
  out.min_replicas = !info_field(info, "min_slaves_good_slaves").empty();  // there only where it is asked for
  return out;
}

}  // namespace fencegate::backend
