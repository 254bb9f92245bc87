// What a sidecar's answer says to people.
#pragma once

#include <string>

namespace fencegate::client {

// Of the body of an answer: why, or else a state; printable and short. "": nothing.
[[nodiscard]] std::string sidecar_words(const std::string& body);

}  // namespace fencegate::client
