// The status page with its style and its script: status.html, status.css and status.js beside this file, put together when
// the program is built. {{nonce}} and {{status}} are filled in for each answer.
#pragma once

#include <string_view>

namespace fencegate::admin {

[[nodiscard]] std::string_view status_html();

}  // namespace fencegate::admin
