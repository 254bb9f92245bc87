// What passes on a connection whose application_name carries a tag that was refused: that by which the client can take it
// out again. Pure.
#pragma once

#include <string_view>

namespace fencegate::gate {

// All statements of this text begin with SET, RESET, DISCARD, ROLLBACK or ABORT: they write nothing, and without the last
// two nobody leaves a transaction that has failed. (A pooler sets application_name together with other settings.) The text
// is cut at each semicolon, also in literals and comments: so every statement begins where a piece does.
[[nodiscard]] bool only_mends(std::string_view sql);

}  // namespace fencegate::gate
