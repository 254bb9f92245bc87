#include "wire/http_trailers.hpp"

#include "wire/http_bytes.hpp"

#include <algorithm>
#include <array>

namespace fencegate::wire {

namespace {

constexpr std::array<std::string_view, 47> forbidden_names{
    // between neighbours, framing, routing
    "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "HTTP2-Settings", "Transfer-Encoding", "Host",
    "Max-Forwards", "Status",
    // authentication
    "Authorization", "WWW-Authenticate", "Authentication-Info", "Cookie", "Cookie2", "Set-Cookie", "Set-Cookie2",
    "X-Api-Key",
    // request modifiers
    "Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Expect", "Origin", "Pragma", "Prefer", "Range",
    "Referer", "From", "User-Agent",
    // response controls
    "Age", "Alt-Svc", "Cache-Control", "CDN-Cache-Control", "Clear-Site-Data", "Date", "Expires", "Location", "Refresh",
    "Retry-After", "Strict-Transport-Security", "Surrogate-Control", "Vary", "Warning",
    // proxies
    "Via", "Forwarded", "X-Real-IP"};

constexpr std::array<std::string_view, 10> forbidden_beginnings{
    "Access-Control-", "Content-",   "Fencing-",     "If-",          "Proxy-", "Sec-",
    "X-Accel-",        "X-Fencing-", "X-Forwarded-", "X-HTTP-Method"};

// Of "Content-": what is computed while the content goes out (RFC 9530 section 2), and says nothing of how to read it.
constexpr std::array<std::string_view, 2> allowed_names{"Content-Digest", "Content-MD5"};

}  // namespace

bool wants_trailers(const http_request_head& head) {
  bool wanted = false;
  for (const header_field& field : head.fields) {
    if (!same_field_name(field.name, "TE")) continue;
    if (field.value.find('"') != std::string_view::npos) return false;  // a comma may be one of a parameter's text
    std::string_view rest = field.value;
    for (auto coding = take_element(rest); !coding.empty(); coding = take_element(rest))
      wanted = wanted || same_field_name(coding, "trailers");
  }
  return wanted && head.minor == 1;
}

bool may_be_trailer(std::string_view name, const http_trailer_rules& rules) {
  if (looks_like_any(name, rules.fence_fields) || looks_like_any(name, rules.listed)) return false;
  if (looks_like_any(name, allowed_names)) return true;
  return !looks_like_any(name, forbidden_names) &&
         std::none_of(forbidden_beginnings.begin(), forbidden_beginnings.end(),
                      [name](std::string_view b) { return looks_like_field_name(b, name.substr(0, b.size())); });
}

void append_trailers(std::string& out, std::string_view lines, const http_trailer_rules& rules) {
  while (!lines.empty()) {
    const auto line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(std::min(lines.size(), line.size() + 2));
    const auto field = parse_header_field(line);
    if (field && may_be_trailer(field->name, rules)) append_header_field(out, field->name, field->value);
  }
}

void append_trailer_names(std::string& out, std::span<const header_field> fields, const http_trailer_rules& rules) {
  std::string names;
  bool good = true;
  for (const header_field& field : fields) {
    if (!same_field_name(field.name, "Trailer")) continue;
    std::string_view rest = field.value;
    for (auto name = take_element(rest); !name.empty(); name = take_element(rest)) {
      good = good && is_http_token(name);
      if (may_be_trailer(name, rules)) names.append(names.empty() ? "" : ", ").append(name);
    }
  }
  if (good && !names.empty()) append_header_field(out, "Trailer", names);
}

}  // namespace fencegate::wire
