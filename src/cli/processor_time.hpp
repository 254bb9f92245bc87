// Whether this process may take as much time of its processors as there is.
#pragma once

#include <chrono>
#include <string>

namespace fencegate::cli {

// No control group that it is in, and none above, limits it: `cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1 (the kernel's
// admin-guide: cgroup-v2, "CPU", and sched-bwc). False, too, when that cannot be seen. `membership`: as /proc/self/cgroup;
// `mount`: where the groups are. In a container both may show its own group as the root.
[[nodiscard]] bool processor_time_is_unlimited(const std::string& membership = "/proc/self/cgroup",
                                               const std::string& mount = "/sys/fs/cgroup");

// threads: auto. Clients and servers need processors, too, and the fewer threads there are, the more writes share a link.
[[nodiscard]] unsigned threads_by_itself();

// busy_poll_us: auto. Longer than a client on the same machine needs from an answer to its next request; 0 with one processor, or
// where its time is limited.
[[nodiscard]] std::chrono::microseconds busy_poll_by_itself();

}  // namespace fencegate::cli
