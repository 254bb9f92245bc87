// An assertion about ourselves: it stays on, and the process ends. Never about what a peer or the world controls.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace fencegate {

inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fencegate: broken invariant: %s\n", what);
  std::abort();
}

}  // namespace fencegate
