// Whether libpq can be used, for who calls nothing of it.
#pragma once

#include "base/result.hpp"

namespace fencegate::backend {

// Loads the library, once; an error when there is none, or one too old (before PostgreSQL 14). From any thread.
// From then on a key that has a passphrase is an error: libpq would ask at the terminal for it, and block.
[[nodiscard]] const result<void>& load_libpq();

}  // namespace fencegate::backend
