// What a byte of SQL text can begin or go on with, by PostgreSQL's scan.l. Only ASCII is told apart and folded; every
// byte from 0x80 on is a letter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fencegate::wire {

enum class byte_class : std::uint8_t {
  other,  // operators and punctuation
  blank,
  line_end,
  word,  // what a word begins with
  digit,
  quote,
  double_quote,
  dollar,
  slash,
  dash,
  semicolon,
};

[[nodiscard]] constexpr std::array<byte_class, 256> make_byte_classes() {
  std::array<byte_class, 256> out{};
  for (unsigned c = 0; c < 256; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80) {
      out[c] = byte_class::word;
    } else if (c >= '0' && c <= '9') {
      out[c] = byte_class::digit;
    }
  }
  // \v is a blank from PostgreSQL 16 on and an error before.
  for (const char c : {' ', '\t', '\f', '\v'}) {
    out[static_cast<unsigned char>(c)] = byte_class::blank;
  }
  out['\n'] = out['\r'] = byte_class::line_end;
  out['\''] = byte_class::quote;
  out['"'] = byte_class::double_quote;
  out['$'] = byte_class::dollar;
  out['/'] = byte_class::slash;
  out['-'] = byte_class::dash;
  out[';'] = byte_class::semicolon;
  return out;
}

inline constexpr std::array<byte_class, 256> byte_classes = make_byte_classes();

[[nodiscard]] inline byte_class class_of(char c) { return byte_classes[static_cast<unsigned char>(c)]; }
[[nodiscard]] inline bool is_sql_blank(char c) {
  return class_of(c) == byte_class::blank || class_of(c) == byte_class::line_end;
}
[[nodiscard]] inline bool in_delimiter(char c) {
  return class_of(c) == byte_class::word || class_of(c) == byte_class::digit;
}
[[nodiscard]] inline bool in_word(char c) { return in_delimiter(c) || c == '$'; }
// Wider than a number: a letter behind one is an error from PostgreSQL 15 on, unless it belongs to it (1e5, 0x1F).
[[nodiscard]] inline bool in_number(char c) { return in_delimiter(c) || c == '.'; }

[[nodiscard]] inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace fencegate::wire
