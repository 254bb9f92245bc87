// Names one acquisition of a lease. Whoever knows it may renew and release what it was granted: it is a secret.
#pragma once

#include <string>

namespace fencegate::lease {

// 128 random bits of the kernel, as 32 hexadecimal digits. Throws std::system_error where there are none.
[[nodiscard]] std::string new_grant_id();

}  // namespace fencegate::lease
