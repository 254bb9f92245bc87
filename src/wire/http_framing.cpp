#include "wire/http_framing.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace fencegate::wire {

namespace {

using kind = http_framing::kind;

constexpr std::size_t length_digits_max = 19;  // 2^63 - 1 = 9223372036854775807

std::optional<std::uint64_t> parse_length(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || text.size() > length_digits_max || !std::all_of(text.begin(), text.end(), digit)) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

// What the fields say; nullopt: nothing.
http_result<std::optional<http_framing>> declared_framing(std::span<const header_field> fields, int minor) {
  const auto lengths = count_fields(fields, "content-length");
  const auto codings = count_fields(fields, "transfer-encoding");
  if (lengths > 0 && codings > 0) return http_error{400, "Content-Length and Transfer-Encoding in one message"};
  if (lengths > 1) return http_error{400, "more than one Content-Length"};
  if (codings > 1) return http_error{400, "more than one Transfer-Encoding"};
  if (codings == 1) {
    if (minor == 0) return http_error{400, "Transfer-Encoding in HTTP/1.0"};
    if (!same_field_name(find_field(fields, "transfer-encoding")->value, "chunked")) {
      return http_error{400, "a Transfer-Encoding that is not chunked alone"};
    }
    return http_framing{.what = kind::chunked};
  }
  if (lengths == 0) return std::nullopt;
  const auto length = parse_length(find_field(fields, "content-length")->value);
  if (!length) return http_error{400, "a malformed Content-Length"};
  return http_framing{.what = kind::length, .length = *length};
}

}  // namespace

http_result<http_framing> request_framing(const http_request_head& head) {
  const auto declared = declared_framing(head.fields, head.minor);
  if (!declared) return declared.error();
  return declared->value_or(http_framing{});
}

http_result<http_framing> response_framing(const http_response_head& head, std::string_view method) {
  if (head.status == 101) return http_error{502, "a switch of protocols that nobody asked for"};
  const auto declared = declared_framing(head.fields, head.minor);
  if (!declared) return http_error{502, declared.error().message};

  if (head.status < 200 || head.status == 204) {
    const bool announces_body = *declared && ((*declared)->what != kind::length || (*declared)->length > 0);
    return http_framing{.what = kind::none, .reusable = !announces_body};
  }
  if (method == "HEAD" || head.status == 304) return http_framing{};
  return declared->value_or(http_framing{.what = kind::until_close, .reusable = false});
}

void append_framing_field(std::string& out, const http_framing& framing) {
  switch (framing.what) {
    case kind::none:
    case kind::until_close: return;
    case kind::length: append_header_field(out, "Content-Length", std::to_string(framing.length)); return;
    case kind::chunked: append_header_field(out, "Transfer-Encoding", "chunked"); return;
  }
}

}  // namespace fencegate::wire
