// Is this UTF-8? Strictly (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fencegate {

// Bytes of the character at the start of `text`; 0 when there is none, or it is malformed.
[[nodiscard]] constexpr std::size_t utf8_character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto continues = [&](std::size_t i, std::uint8_t from = 0x80, std::uint8_t to = 0xBF) {
    return i < text.size() && byte(i) >= from && byte(i) <= to;
  };
  if (text.empty()) return 0;
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const std::uint8_t from = first == 0xE0 ? 0xA0 : 0x80;
    const std::uint8_t to = first == 0xED ? 0x9F : 0xBF;
    return continues(1, from, to) && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const std::uint8_t from = first == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t to = first == 0xF4 ? 0x8F : 0xBF;
    return continues(1, from, to) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto bytes = utf8_character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// UTF-8 that a terminal shows and does not obey: no control characters, neither ASCII's nor U+0080 to U+009F.
[[nodiscard]] constexpr bool is_shown_text(std::string_view text) {
  while (!text.empty()) {
    const auto bytes = utf8_character_bytes(text);
    const auto first = static_cast<std::uint8_t>(text[0]);
    if (bytes == 0 || first < 0x20 || first == 0x7F) return false;
    if (first == 0xC2 && static_cast<std::uint8_t>(text[1]) < 0xA0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace fencegate
