// What a reply to the gate itself says.
#pragma once

#include "fence/tag.hpp"
#include "wire/resp_reply.hpp"

#include <algorithm>
#include <span>
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

// A mark that stays until it is changed, by its PTTL.
[[nodiscard]] inline bool is_without_expiry(const wire::reply_value* reply) {
  return reply != nullptr && reply->type == ':' && reply->text == "-1";
}

// MGET of the claims' marks, then of the epoch: each is there, byte for byte, and there is nothing else.
[[nodiscard]] inline bool proves(const wire::reply_value* reply, std::span<const fence::claim> claims,
                                 std::string_view epoch) {
  if (reply == nullptr || reply->type != '*' || reply->null || epoch.empty()) return false;
  const auto is = [](const wire::reply_value& one, std::string_view text) {
    return one.type == '$' && !one.null && one.text == text;
  };
  const auto& found = reply->elements;
  if (found.size() != claims.size() + 1 || !is(found.back(), epoch)) return false;
  return std::equal(claims.begin(), claims.end(), found.begin(),
                    [&is](const auto& claim, const auto& mark) { return is(mark, claim.presented.to_string()); });
}

}  // namespace fencegate::backend::detail
