// The parameters of an operator's statement, as its text uses them.
#pragma once

#include <cstddef>
#include <map>
#include <string_view>

namespace fencegate::backend {

// Number of each `$1` outside of '…' and "…" → whether it stands only as `$1::bytea`, so that its value may go as the
// bytes that it has. What is inside dollar quotes or comments counts as well, which is rare.
[[nodiscard]] std::map<std::size_t, bool> sql_parameters(std::string_view sql);

}  // namespace fencegate::backend
