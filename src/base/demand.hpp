// An assertion about ourselves: it stays on, and the process ends. Never about what a peer or the world controls.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace fencegate {

#ifdef NDEBUG
inline constexpr bool is_debug_build = false;
#else
inline constexpr bool is_debug_build = true;
#endif

inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fencegate: broken invariant: %s\n", what);
  std::abort();
}

}  // namespace fencegate
