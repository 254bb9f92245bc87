// Names that nobody else has, nor guesses.
#pragma once

#include <string>

namespace fencegate {

// 128 random bits of the kernel, as 32 hexadecimal digits. Throws std::system_error where there are none.
[[nodiscard]] std::string random_id();

}  // namespace fencegate
