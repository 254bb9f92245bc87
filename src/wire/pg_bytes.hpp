// The pieces that PostgreSQL's messages are made of: numbers in network order and NUL-terminated strings. Reads never
// go beyond the text they were given, and compare before they add: a declared length can be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::wire {

// The largest value of a length field (the protocol's Int32).
inline constexpr std::uint32_t pg_length_max = 0x7FFF'FFFF;

// REQUIRES: four bytes.
[[nodiscard]] inline std::uint32_t read_u32(std::string_view text) {
  const auto at = [text](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  return (at(0) << 24) | (at(1) << 16) | (at(2) << 8) | at(3);
}

inline void append_u32(std::string& out, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) {
    out += static_cast<char>(static_cast<unsigned char>(value >> shift));
  }
}

// The text up to its first NUL, and a NUL: what stands behind a NUL would be read as the next field.
inline void append_string(std::string& out, std::string_view text) {
  out += text.substr(0, text.find('\0'));
  out += '\0';
}

// The length field of a message of ours. One that does not fit would wrap, and the rest of the body would be read as
// messages (CVE-2024-27304): that is a fault in this program, which ends here.
[[nodiscard]] inline std::uint32_t checked_length(std::size_t body_bytes, std::uint32_t more) {
  if (body_bytes > pg_length_max - more) {
    std::abort();
  }
  return static_cast<std::uint32_t>(body_bytes) + more;
}

// A message's type in words: the letter, or its number where it is none.
[[nodiscard]] inline std::string printable_type(char type) {
  const auto code = static_cast<unsigned char>(type);
  return code > ' ' && code < 0x7F ? "'" + std::string(1, type) + "'" : std::to_string(code);
}

// Takes pieces from the front of a body. nullopt: the body is too short for the piece; nothing is taken then.
class pg_reader {
 public:
  explicit pg_reader(std::string_view body) : rest_(body) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

  std::optional<char> byte() {
    const auto one = bytes(1);
    return one ? std::optional(one->front()) : std::nullopt;
  }

  std::optional<std::uint16_t> u16() {
    const auto two = bytes(2);
    if (!two) {
      return std::nullopt;
    }
    const auto at = [two](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>((*two)[i])); };
    return static_cast<std::uint16_t>((at(0) << 8) | at(1));
  }

  std::optional<std::uint32_t> u32() {
    const auto four = bytes(4);
    return four ? std::optional(read_u32(*four)) : std::nullopt;
  }

  std::optional<std::string_view> bytes(std::size_t count) {
    if (rest_.size() < count) {
      return std::nullopt;
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  // Without its NUL, which is taken too.
  std::optional<std::string_view> string() {
    const std::size_t end = rest_.find('\0');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view taken = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return taken;
  }

 private:
  std::string_view rest_;
};

}  // namespace fencegate::wire
