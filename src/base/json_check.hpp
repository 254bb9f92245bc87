// Whether a text is JSON, of which nothing else is asked.
#pragma once

#include <string_view>

namespace fencegate {

// One value (RFC 8259) in UTF-8, perhaps with blanks around it. However deep it nests: nothing recurses, and a level takes
// a bit. Numbers are those of is_json_number; escaped surrogates come in pairs.
[[nodiscard]] bool is_json(std::string_view text);

}  // namespace fencegate
