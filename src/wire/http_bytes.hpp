// Which bytes may stand where in HTTP/1.1 and in URIs (RFC 9110 section 5.6, RFC 3986), by one table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fencegate::wire {

enum class http_class : std::uint8_t {
  token = 1,        // tchar: methods, field names
  text = 2,         // field values and reasons: visible ASCII, SP, HTAB, bytes above ASCII
  unreserved = 4,   // of a URI: what needs no escape and means nothing
  path = 8,         // pchar without '%'
  query = 16,       // pchar and "/?" without '%', and what clients leave as it is: [ ] \ ^ ` { | }
  host = 32,        // of a registered name or an address; sub-delims and escapes are in no real one
  chunk_extra = 64  // chunk extensions: visible ASCII, SP, HTAB
};

namespace detail {

constexpr std::array<std::uint8_t, 256> http_classes() {
  std::array<std::uint8_t, 256> table{};
  const auto add = [&table](std::string_view bytes, http_class c) {
    for (const char b : bytes) table[static_cast<std::uint8_t>(b)] |= static_cast<std::uint8_t>(c);
  };
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    const std::string_view one(&c, 1);
    const bool visible = b > 0x20 && b < 0x7f;
    if (visible || b == ' ' || b == '\t') add(one, http_class::chunk_extra);
    if (visible || b == ' ' || b == '\t' || b >= 0x80) add(one, http_class::text);
    if (visible && c != '"' && c != '<' && c != '>' && c != '#' && c != '%') add(one, http_class::query);
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!alphanumeric) continue;
    for (const auto k : {http_class::token, http_class::unreserved, http_class::path, http_class::host}) add(one, k);
  }
  add("!#$%&'*+-.^_`|~", http_class::token);
  add("-._~", http_class::unreserved);
  add("-._~!$&'()*+,;=:@", http_class::path);
  add("-._~", http_class::host);
  return table;
}

inline constexpr auto http_class_of_byte = http_classes();

}  // namespace detail

[[nodiscard]] constexpr bool is_http(char c, http_class what) {
  return (detail::http_class_of_byte[static_cast<std::uint8_t>(c)] & static_cast<std::uint8_t>(what)) != 0;
}

[[nodiscard]] constexpr bool all_http(std::string_view bytes, http_class what) {
  for (const char c : bytes) {
    if (!is_http(c, what)) return false;
  }
  return true;
}

[[nodiscard]] constexpr bool is_http_token(std::string_view text) {
  return !text.empty() && all_http(text, http_class::token);
}

[[nodiscard]] constexpr std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Takes the next element off a list; empty ones are passed over (RFC 9110 section 5.6.1.2). "": there is none left.
[[nodiscard]] constexpr std::string_view take_element(std::string_view& list) {
  std::string_view element;
  while (element.empty() && !list.empty()) {
    const auto comma = list.find(',');
    element = without_blanks(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return element;
}

[[nodiscard]] constexpr int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte that `%XX` at the start of `text` stands for.
[[nodiscard]] constexpr std::optional<char> percent_decoded(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  const int high = hex_digit(text[1]);
  const int low = hex_digit(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace fencegate::wire
