#include "wire/http_head.hpp"

#include "base/limits.hpp"
#include "wire/http_bytes.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

constexpr std::string_view version_prefix = "HTTP/";
// A request line without its target: the method, two blanks and the version.
constexpr std::size_t around_target_bytes_max = limits::http_method_bytes_max + 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The line at the start of `rest`, without its CRLF; `rest` then starts behind it. nullopt: no line end, or a bare LF.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const auto end = rest.find('\n');
  if (end == std::string_view::npos || end == 0 || rest[end - 1] != '\r') return std::nullopt;
  const auto line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  return line;
}

// The minor of HTTP/1.0 and HTTP/1.1. Another version is 505, anything else is malformed.
http_result<int> parse_version(std::string_view text) {
  const bool formed = text.size() == version_prefix.size() + 3 && text.starts_with(version_prefix) && text[6] == '.' &&
                      is_digit(text[5]) && is_digit(text[7]);
  if (!formed) return http_error{400, "no HTTP version behind the target"};
  if (text[5] != '1' || text[7] > '1') return http_error{505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  return text[7] - '0';
}

http_result<void> parse_fields(std::string_view rest, std::vector<header_field>& fields) {
  fields.clear();
  for (;;) {
    const auto line = take_line(rest);
    if (!line) return http_error{400, "a head without its empty line, or with a bare LF"};
    if (line->empty()) break;
    if (line->front() == ' ' || line->front() == '\t') return http_error{400, "a folded field line"};
    const auto field = parse_header_field(*line);
    if (!field) return http_error{400, "a malformed field line"};
    if (fields.size() == limits::http_fields_max) return http_error{431, "too many fields"};
    fields.push_back(*field);
  }
  if (!rest.empty()) return http_error{400, "bytes behind a head"};
  return {};
}

http_result<void> parse_request_line(std::string_view line, http_request_head& out) {
  const auto method_end = line.find(' ');
  if (method_end == std::string_view::npos) return http_error{400, "a malformed request line"};
  out.method = line.substr(0, method_end);
  if (!is_http_token(out.method)) return http_error{400, "a malformed method"};

  const auto target_end = line.find(' ', method_end + 1);
  if (target_end == std::string_view::npos) return http_error{400, "a request line without a version"};
  out.target = line.substr(method_end + 1, target_end - method_end - 1);
  const auto version = parse_version(line.substr(target_end + 1));
  if (!version) return version.error();
  out.minor = *version;

  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  if (out.method.size() > limits::http_method_bytes_max || std::any_of(out.method.begin(), out.method.end(), lower)) {
    return http_error{501, "methods are at most 32 bytes without lower-case letters"};
  }
  if (out.target.size() > limits::http_target_bytes_max) return http_error{414, "a target of more than 8 KiB"};
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (out.target.empty() || !std::all_of(out.target.begin(), out.target.end(), visible)) {
    return http_error{400, "a malformed target"};
  }
  return {};
}

http_result<void> take_host(http_request_head& out) {
  const auto hosts = count_fields(out.fields, "host");
  if (hosts > 1) return http_error{400, "more than one Host"};
  if (hosts == 0 && out.minor == 1) return http_error{400, "no Host"};
  out.host = hosts == 0 ? std::string_view{} : find_field(out.fields, "host")->value;
  if (!out.host.empty() && !is_http_host(out.host)) return http_error{400, "a malformed Host"};
  return {};
}

http_result<void> parse_status_line(std::string_view line, http_response_head& out) {
  constexpr std::size_t version_bytes = 8;
  constexpr std::size_t status_end = version_bytes + 4;
  const auto version = parse_version(line.substr(0, version_bytes));
  if (!version) return version.error();
  out.minor = *version;
  const auto status = line.size() >= status_end ? line.substr(version_bytes, 4) : std::string_view{};
  if (status.empty() || status[0] != ' ' || status[1] < '1' || status[1] > '5' || !is_digit(status[2]) ||
      !is_digit(status[3])) {
    return http_error{502, "a malformed status"};
  }
  out.status = (status[1] - '0') * 100 + (status[2] - '0') * 10 + (status[3] - '0');

  const auto rest = line.substr(status_end);
  if (!rest.empty() && rest.front() != ' ') return http_error{502, "a malformed status line"};
  out.reason = rest.empty() ? rest : rest.substr(1);
  if (!all_http(out.reason, http_class::text)) return http_error{502, "a malformed reason"};
  return {};
}

}  // namespace

http_error http_head_finder::failure(int status, std::string_view message) const {
  return {of_ == side::request ? status : 502, message};
}

// False: not even the first byte is there.
http_result<bool> http_head_finder::take_start(std::string_view input) {
  if (of_ == side::request && begin_ == 0 && !input.empty() && input[0] == '\r') {
    if (input.size() == 1) return false;
    if (input[1] != '\n') return failure(400, "a bare CR");
    begin_ = line_ = at_ = 2;
  }
  if (input.size() <= begin_) return false;
  const char first = input[begin_];
  const bool fits = of_ == side::request ? is_http(first, http_class::token) : first == 'H';
  if (!fits) return failure(400, "not HTTP");
  return true;
}

http_result<std::optional<http_head_extent>> http_head_finder::find(std::string_view input) {
  const auto started = take_start(input);
  if (!started) return started.error();
  if (!*started) return std::nullopt;

  while (at_ < input.size()) {
    const auto lf = input.find('\n', at_);
    at_ = lf == std::string_view::npos ? input.size() : lf + 1;
    if (at_ - begin_ > limits::http_head_bytes_max) break;
    if (lf == std::string_view::npos) break;
    if (input[lf - 1] != '\r') return failure(400, "a bare LF");
    if (lf - line_ == 1) {
      const http_head_extent found{begin_, lf + 1};
      begin_ = line_ = at_ = 0;
      return found;
    }
    line_ = at_;
  }
  const bool in_first_line = line_ == begin_;
  if (of_ == side::request && in_first_line && at_ - begin_ > limits::http_target_bytes_max + around_target_bytes_max) {
    return failure(414, "a request line of more than 8 KiB");
  }
  if (at_ - begin_ > limits::http_head_bytes_max) return failure(431, "a head of more than 64 KiB");
  return std::nullopt;
}

http_result<void> parse_request_head(std::string_view bytes, http_request_head& out) {
  const auto line = take_line(bytes);
  if (!line) return http_error{400, "a request without a line end"};
  if (auto read = parse_request_line(*line, out); !read) return read;
  if (auto read = parse_fields(bytes, out.fields); !read) return read;
  return take_host(out);
}

http_result<void> parse_response_head(std::string_view bytes, http_response_head& out) {
  const auto read = [&]() -> http_result<void> {
    const auto line = take_line(bytes);
    if (!line) return http_error{502, "a response without a line end"};
    if (auto parsed = parse_status_line(*line, out); !parsed) return parsed;
    return parse_fields(bytes, out.fields);
  }();
  if (!read) return http_error{502, read.error().message};
  return {};
}

std::optional<header_field> parse_header_field(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto name = line.substr(0, colon);
  const auto value = line.substr(colon + 1);
  if (!is_http_token(name) || !all_http(value, http_class::text)) return std::nullopt;
  return header_field{name, without_blanks(value)};
}

const header_field* find_field(std::span<const header_field> fields, std::string_view name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const header_field& f) { return same_field_name(f.name, name); });
  return found == fields.end() ? nullptr : &*found;
}

std::size_t count_fields(std::span<const header_field> fields, std::string_view name) {
  return static_cast<std::size_t>(std::count_if(fields.begin(), fields.end(),
                                                [&](const header_field& f) { return same_field_name(f.name, name); }));
}

bool is_http_host(std::string_view text) {
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return false;
    const auto address = text.substr(1, close - 1);
    const auto fits = [](char c) { return hex_digit(c) >= 0 || c == ':' || c == '.'; };
    if (address.find(':') == std::string_view::npos || !std::all_of(address.begin(), address.end(), fits)) return false;
    port = text.substr(close + 1);
  } else {
    const auto colon = text.find(':');
    const auto name = text.substr(0, colon);
    if (name.empty() || !all_http(name, http_class::host)) return false;
    port = text.substr(name.size());
  }
  if (port.empty()) return true;
  const auto digits = port.substr(1);
  return port.front() == ':' && digits.size() <= 5 && std::all_of(digits.begin(), digits.end(), is_digit);
}

void append_request_line(std::string& out, std::string_view method, std::string_view target) {
  out.append(method).append(" ").append(target).append(" HTTP/1.1\r\n");
}

void append_status_line(std::string& out, int status, std::string_view reason) {
  out.append("HTTP/1.1 ").append(std::to_string(status)).append(" ").append(reason).append("\r\n");
}

void append_header_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

std::string_view http_reason(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "";
  }
}

}  // namespace fencegate::wire
