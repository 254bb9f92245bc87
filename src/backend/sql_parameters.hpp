// The parameters of an operator's statement, as its text uses them.
#pragma once

#include <cstddef>
#include <map>
#include <string_view>

namespace fencegate::backend {

struct sql_parameter {
  bool bytea = true;  // stands only as one: its value may go as the bytes that it has
  bool text = true;   // stands only as text or varchar: what differs as text, differs there
};

// Number of each `$1` outside of '…' and "…" → what it is cast to, by `$1::type`, `($1)::type` or `CAST($1 AS type)`. What
// is inside dollar quotes or comments counts as well, which is rare.
[[nodiscard]] std::map<std::size_t, sql_parameter> sql_parameters(std::string_view sql);

}  // namespace fencegate::backend
