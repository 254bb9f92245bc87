// A name in which somebody has hidden a tag: says so, not too often.
#pragma once

#include <string_view>

namespace fencegate::gate {

// One line in the log when the name has `fence:` in it and carries no tag all the same; at most one in ten seconds.
void warn_of_hidden_tag(std::string_view gate, std::string_view client_name);

}  // namespace fencegate::gate
