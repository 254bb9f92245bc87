// What a reply to the gate itself says.
#pragma once

#include "fence/tag.hpp"
#include "wire/resp_reply.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
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

// What a script says of one of several claims, from 1: "2 why mark" or "2 mark".
struct refused_claim {
  const fence::claim* claim;
  std::string_view why;  // "" = it has none
  std::optional<fence::token> mark;
};
[[nodiscard]] inline std::optional<refused_claim> read_refusal(std::string_view text,
                                                               const fence::claims_list& claims) {
  const auto next_word = [&text] {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    return word;
  };
  std::size_t index = 0;
  const auto number = next_word();
  std::from_chars(number.data(), number.data() + number.size(), index);
  if (index == 0 || index > claims.size()) return std::nullopt;
  const auto why = text.find(' ') == std::string_view::npos ? std::string_view{} : next_word();
  const auto mark = fence::token::parse(text);
  return refused_claim{&claims[index - 1], why, mark ? std::optional(*mark) : std::nullopt};
}

// A key that is there, byte for byte.
[[nodiscard]] inline bool is_value(const wire::reply_value* reply, std::string_view value) {
  return reply != nullptr && reply->type == '$' && !reply->null && reply->text == value;
}

}  // namespace fencegate::backend::detail
