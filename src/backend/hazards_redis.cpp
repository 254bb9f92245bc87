// What is hazardous in a Redis.
#include "backend/hazards.hpp"

#include <algorithm>

namespace fencegate::backend {
namespace {

using enum hazard_kind;

void judge_info(const redis_info& info, findings& out) {
  if (!info.primary) out.hazards.push_back({redis_replica, "it is a replica"});
  if (info.cluster) out.hazards.push_back({redis_cluster, "cluster mode is on"});
  if (!info.append_only) out.hazards.push_back({redis_not_persistent, "appendonly is no"});
  if (info.may_evict_marks())
    out.hazards.push_back({redis_eviction, "maxmemory-policy " + info.eviction + " can evict marks"});
  if (info.replicas > 0 && !info.min_replicas)
    out.hazards.push_back({redis_min_replicas, std::to_string(info.replicas) +
                                                   (info.replicas == 1 ? " replica is" : " replicas are") +
                                                   " connected, and min-replicas-to-write is 0"});
}

void judge_fsync(const redis_facts& found, findings& out) {
  if (found.info && !found.info->append_only) return;  // there is nothing to sync
  if (!found.appendfsync)
    out.unknown.push_back({"whether Redis syncs each write (appendfsync)", found.appendfsync.error().message});
  else if (*found.appendfsync != "always")
    out.hazards.push_back({redis_appendfsync, "appendfsync is " + *found.appendfsync});
  else if (found.no_fsync_on_rewrite && *found.no_fsync_on_rewrite == "yes")
    out.hazards.push_back({redis_appendfsync, "no-appendfsync-on-rewrite is yes: nothing is synced meanwhile"});
  else if (!found.no_fsync_on_rewrite)
    out.unknown.push_back({"no-appendfsync-on-rewrite", found.no_fsync_on_rewrite.error().message});
}

}  // namespace

findings judge(const redis_facts& found) {
  findings out;
  if (found.info)
    judge_info(*found.info, out);
  else
    out.unknown.push_back({"its role, persistence, eviction and replicas", found.info.error().message});
  judge_fsync(found, out);
  bool open = false;
  if (!found.strangers)
    out.unknown.push_back({"what may be written without signing in", found.strangers.error().message});
  else if ((open = *found.strangers == redis_facts::stranger::writes))
    out.hazards.push_back({redis_open_default, "the default user needs no password, and may write"});
  if (!found.forgers) {
    out.unknown.push_back({"which users may change marks", found.forgers.error().message});
    return out;
  }
  auto forgers = *found.forgers;
  if (open) std::erase(forgers, "default");  // has been said
  if (!forgers.empty())
    out.hazards.push_back({redis_forgeable_marks, some_of(forgers) + " may write keys of fencegate:*"});
  return out;
}

}  // namespace fencegate::backend
