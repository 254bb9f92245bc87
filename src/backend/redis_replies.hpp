// What a reply to the gate itself says.
#pragma once

#include "wire/resp_reply.hpp"

#include <string>
#include <string_view>

namespace fencegate::backend::detail {

// nullptr: the connection was lost before it came.
[[nodiscard]] inline bool is_error(const wire::reply_value* reply) {
  return reply == nullptr || reply->type == '-' || reply->type == '!';
}

[[nodiscard]] inline std::string words_of(const wire::reply_value* reply) {
  if (reply == nullptr) return "the connection to Redis was lost";
  return is_error(reply) ? std::string(reply->text) : "an unexpected reply";
}

// Stands in for a reply of which nothing was kept: it was none of an error.
inline constexpr std::string_view reply_too_large = "FENCEGATETOOLARGE";

// A key that is there, byte for byte.
[[nodiscard]] inline bool is_value(const wire::reply_value* reply, std::string_view value) {
  return reply != nullptr && reply->type == '$' && !reply->null && reply->text == value;
}

}  // namespace fencegate::backend::detail
