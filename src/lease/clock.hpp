// The clock of leases: it runs while the machine sleeps, and nobody sets it (CLOCK_BOOTTIME, time_namespaces(7)).
#pragma once

#include <chrono>
#include <ctime>

namespace fencegate::lease {

struct boot_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<boot_clock>;
  static constexpr bool is_steady = true;

  [[nodiscard]] static time_point now() {
    timespec t{};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

// Both clocks at one moment. Where a hypervisor stops CLOCK_BOOTTIME with its guest, only the time of day tells.
struct clock_reading {
  boot_clock::time_point boot;
  std::chrono::system_clock::time_point wall;

  [[nodiscard]] static clock_reading now() { return {boot_clock::now(), std::chrono::system_clock::now()}; }
};

}  // namespace fencegate::lease
