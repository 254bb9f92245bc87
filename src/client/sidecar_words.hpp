// What a sidecar's answer says to people.
#pragma once

#include <cstddef>
#include <string>

namespace fencegate::client {

// Of the body of an answer: why, or else a state; printable, and cut behind `bytes_max`. "": nothing.
[[nodiscard]] std::string sidecar_words(const std::string& body, std::size_t bytes_max = 200);

}  // namespace fencegate::client
