// `fencegate copy-self DIR`: for init containers, which bring fencegate-hold to images that have nothing of fencegate.
#pragma once

#include <iosfwd>
#include <string>

namespace fencegate::cli {

// Copies the fencegate-hold that stands beside the running program to `folder`, which is made where it is missing. Whoever
// starts the copy meanwhile gets the old file or the new one, whole. Exit codes as of commands.hpp.
[[nodiscard]] int copy_self(const std::string& folder, std::ostream& err);

}  // namespace fencegate::cli
