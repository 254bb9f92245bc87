#include "wire/http_hop.hpp"

#include "base/limits.hpp"
#include "wire/http_bytes.hpp"

#include <algorithm>
#include <array>

namespace fencegate::wire {

namespace {

// Never dropped because Connection says so. Content-Type and the like are not here: a peer that drops them harms itself.
constexpr std::array<std::string_view, 16> protected_fields{"Authorization",
                                                            "Content-Length",
                                                            "Cookie",
                                                            "Expect",
                                                            "Host",
                                                            "Origin",
                                                            "Forwarded",
                                                            "If-Match",
                                                            "Via",
                                                            "X-Forwarded-For",
                                                            "X-Forwarded-Proto",
                                                            "X-Forwarded-Host",
                                                            "X-Real-IP",
                                                            "Connection",
                                                            "X-Api-Key",
                                                            "Transfer-Encoding"};

constexpr std::array<std::string_view, 3> framing_fields{"Content-Length", "Transfer-Encoding", "Proxy-Connection"};

// Frameworks take these for the method or the path.
constexpr std::array<std::string_view, 6> overriding_fields{"X-HTTP-Method",     "X-HTTP-Method-Override",
                                                            "X-Method-Override", "X-Original-URL",
                                                            "X-Rewrite-URL",     "X-Original-Method"};

constexpr std::array<std::string_view, 10> neighbour_fields{
    "Connection",     "Keep-Alive",     "Proxy-Connection",  "TE",    "Trailer", "Upgrade",
    "HTTP2-Settings", "Content-Length", "Transfer-Encoding", "Expect"};

// What a client offers that goes on in HTTP/1.1 when nobody takes it up (RFC 9110 section 7.8): Java's and curl's h2c on
// a first request, TLS of RFC 2817. Who asks for anything else, for websocket, waits for the switch.
bool is_mere_offer(std::string_view protocol) {
  constexpr std::string_view tls = "TLS/";
  return same_field_name(protocol, "h2c") ||
         (protocol.size() > tls.size() && same_field_name(protocol.substr(0, tls.size()), tls) &&
          is_http_token(protocol.substr(tls.size())));
}

bool only_offers(std::string_view upgrade) {
  auto protocol = take_element(upgrade);
  if (protocol.empty()) return false;
  for (; !protocol.empty(); protocol = take_element(upgrade))
    if (!is_mere_offer(protocol)) return false;
  return true;
}

// Reads all Connection fields.
http_result<void> read_connection(std::span<const header_field> fields, int minor, http_hop& out) {
  bool close = false;
  bool keep = minor == 1;
  out.listed.clear();
  for (const header_field& field : fields) {
    if (!same_field_name(field.name, "connection")) continue;
    std::string_view rest = field.value;
    for (auto option = take_element(rest); !option.empty(); option = take_element(rest)) {
      if (!is_http_token(option)) return http_error{400, "a malformed Connection"};
      if (same_field_name(option, "close")) {
        close = true;
      } else if (same_field_name(option, "keep-alive")) {
        keep = true;
      } else if (out.listed.size() == limits::http_connection_options_max) {
        return http_error{400, "too many names in Connection"};
      } else {
        out.listed.push_back(option);
      }
    }
  }
  out.keep_alive = keep && !close;
  return {};
}

http_result<void> check_field(const header_field& field, int minor, http_hop& out) {
  if (looks_like_any(field.name, overriding_fields)) {
    return http_error{400, "a field that names another method or path than the request line"};
  }
  if (looks_like_any(field.name, framing_fields) && field.name.find('_') != std::string_view::npos) {
    return http_error{400, "a field of framing with '_' for '-'"};
  }
  if (same_field_name(field.name, "upgrade") && !only_offers(field.value)) {
    return http_error{400, "Upgrade is not supported: neither websocket nor another protocol goes through this gate"};
  }
  if (same_field_name(field.name, "expect") && minor == 1) {
    if (!same_field_name(field.value, "100-continue")) return http_error{417, "only 100-continue can be expected"};
    out.expects_continue = true;
  }
  return {};
}

}  // namespace

http_result<void> read_request_hop(const http_request_head& head, std::span<const std::string_view> fence_fields,
                                   http_hop& out) {
  out.expects_continue = false;
  if (head.method == "CONNECT") return http_error{501, "CONNECT is not supported"};
  if (head.method == "TRACE") return http_error{501, "TRACE is not supported"};
  if (auto read = read_connection(head.fields, head.minor, out); !read) return read;
  for (const auto name : out.listed) {
    if (looks_like_any(name, protected_fields) || looks_like_any(name, fence_fields)) {
      return http_error{400, "Connection names a field that must not be dropped"};
    }
  }
  for (const header_field& field : head.fields) {
    if (auto good = check_field(field, head.minor, out); !good) return good;
  }
  return {};
}

http_result<void> read_response_hop(const http_response_head& head, http_hop& out) {
  out.expects_continue = false;
  if (auto read = read_connection(head.fields, head.minor, out); !read) return http_error{502, read.error().message};
  return {};
}

bool travels_on(std::string_view name, const http_hop& hop) {
  const auto same = [name](std::string_view n) { return same_field_name(n, name); };
  return std::none_of(neighbour_fields.begin(), neighbour_fields.end(), same) &&
         std::none_of(hop.listed.begin(), hop.listed.end(), same);
}

}  // namespace fencegate::wire
