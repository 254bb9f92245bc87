// Inline command lines without quotes, split in place; split_inline (resp_request.hpp) is the full form.
#pragma once

#include <string_view>
#include <vector>

namespace fencegate::wire {

// Appends the words of `line` as views into it, as split_inline would. REQUIRES: no quote and no NUL in `line`.
void split_plain(std::string_view line, std::vector<std::string_view>& words);

}  // namespace fencegate::wire
