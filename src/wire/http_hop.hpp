// What a message says to its neighbour alone (RFC 9110 section 7.6), and what would hide from the fence what it does:
// fields that name another method or path, fields that `Connection` would take away, look-alikes of fields that count.
#pragma once

#include "wire/http_error.hpp"
#include "wire/http_head.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace fencegate::wire {

struct http_hop {
  bool keep_alive = false;               // the peer would go on with this connection
  bool expects_continue = false;         // `Expect: 100-continue` of an HTTP/1.1 request
  std::vector<std::string_view> listed;  // names in Connection, but for close and keep-alive; into the head
};

// `fence_fields` are names by which tokens travel. `out` is overwritten; its vector keeps its memory.
// Errors: 501 for CONNECT, 405 for TRACE, 417 for an expectation other than 100-continue; 400 for
// - Upgrade to anything but h2c and TLS, which are not taken up: they are dropped, with HTTP2-Settings;
// - Connection that is no list of names, has more than limits::http_connection_options_max of them, or names one of
//   `fence_fields` or a field of authentication, framing or routing (Fabio CVE-2025-48865);
// - a field of framing with '_' for '-' (`Transfer_Encoding`): behind CGI both are one;
// - X-HTTP-Method-Override, X-Original-URL and their like: the request would be another than the one that was checked.
[[nodiscard]] http_result<void> read_request_hop(const http_request_head& head,
                                                 std::span<const std::string_view> fence_fields, http_hop& out);
// Errors are 502: a malformed or too long Connection.
[[nodiscard]] http_result<void> read_response_hop(const http_response_head& head, http_hop& out);

// Whether a field of the head is copied into the one that goes out. Not: what the hop lists, what is between neighbours
// (Keep-Alive, Proxy-Connection, TE, Trailer, Upgrade, HTTP2-Settings), and what the gate writes itself (Connection, Content-Length,
// Transfer-Encoding, Expect).
[[nodiscard]] bool travels_on(std::string_view name, const http_hop& hop);

}  // namespace fencegate::wire
