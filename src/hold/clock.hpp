// CLOCK_BOOTTIME: it goes on while the machine sleeps, as the clock of whoever granted a lease does.
#pragma once

#include <time.h>

#include <cstdint>

namespace fencegate::hold {

// Nanoseconds.
[[nodiscard]] inline std::int64_t boottime_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace fencegate::hold
