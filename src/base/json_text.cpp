#include "base/json_text.hpp"

#include "base/utf8.hpp"

#include <algorithm>
#include <cstddef>

namespace fencegate {

namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void append_escape(std::string& out, char c) {
  constexpr std::string_view digits = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out += digits[static_cast<unsigned char>(c) >> 4];
  out += digits[static_cast<unsigned char>(c) & 0xF];
}

void append_base64(std::string& out, std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < group.size() ? static_cast<std::uint8_t>(group[i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) out += i <= group.size() ? digits[bits >> (18 - 6 * i) & 0x3F] : '=';
  }
}

// Of an exponent: no type of any server has one with more, and readers fail at numbers beyond their own types.
constexpr std::size_t exponent_digits_max = 4;

// Takes a run of digits off the front; false: there is none.
bool take_digits(std::string_view& text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto end = std::find_if_not(text.begin(), text.end(), digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  text.remove_prefix(count);
  return count > 0;
}

bool take_one_of(std::string_view& text, std::string_view choices) {
  if (text.empty() || choices.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    // Runs that need nothing go over in one piece.
    std::size_t run = 0;
    while (run < text.size() && !needs_escape(text[run])) {
      const auto bytes = utf8_character_bytes(text.substr(run));
      if (bytes == 0) break;
      run += bytes;
    }
    out += text.substr(0, run);
    text.remove_prefix(run);
    if (text.empty()) break;
    if (needs_escape(text.front())) {
      append_escape(out, text.front());
    } else {
      out += replacement_character;
    }
    text.remove_prefix(1);
  }
  out += '"';
}

void append_json_bytes(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) {
    append_json_string(out, bytes);
    return;
  }
  out += R"({"base64":")";
  append_base64(out, bytes);
  out += R"("})";
}

bool is_json_number(std::string_view text) {
  take_one_of(text, "-");
  const bool leading_zero = text.starts_with('0');
  const auto before = text.size();
  if (!take_digits(text) || (leading_zero && before - text.size() > 1)) return false;
  if (take_one_of(text, ".") && !take_digits(text)) return false;
  if (take_one_of(text, "eE")) {
    take_one_of(text, "+-");
    if (text.size() > exponent_digits_max || !take_digits(text)) return false;
  }
  return text.empty();
}

void json_object::name(std::string_view member) {
  out_ += begun_ ? ',' : '{';
  begun_ = true;
  append_json_string(out_, member);
  out_ += ':';
}

void json_object::add(std::string_view member, std::string_view text) {
  name(member);
  append_json_string(out_, text);
}

void json_object::add(std::string_view member, std::int64_t number) {
  name(member);
  out_ += std::to_string(number);
}

void json_object::add_list(std::string_view member, const std::vector<std::string>& texts) {
  name(member);
  out_ += '[';
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out_ += ',';
    append_json_string(out_, texts[i]);
  }
  out_ += ']';
}

void json_object::end() { out_ += begun_ ? "}" : "{}"; }

}  // namespace fencegate
