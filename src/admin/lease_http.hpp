// The API of leases as messages of HTTP, on one connection: Beast stays here, and in lease_server.
#pragma once

#include "admin/lease_pages.hpp"
#include "admin/peer_listener.hpp"
#include "base/limits.hpp"
#include "lease/clock.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/error_code.hpp>

namespace fencegate::admin {

using lease_parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

struct answer_form {
  unsigned version = 11;
  bool keep_alive = false, head_only = false;
};

[[nodiscard]] boost::beast::http::response<boost::beast::http::string_body> to_response(lease_answer answer,
                                                                                        const answer_form& form);

// A request as it is read from one connection.
struct incoming {
  boost::beast::flat_buffer buffer{limits::admin_head_bytes_max + limits::lease_body_bytes_max};
  // When the bytes that are in the buffer had all come. A client's time counts from when it sent, which was before that.
  lease::clock_reading received = lease::clock_reading::now();
};

// To go on as a gate's client (RFC 9110, 7.8: HTTP/1.0 knows no upgrade, and the field is one of the connection).
[[nodiscard]] bool asks_for_gate(const lease_parser::value_type& request);
// The error is also that it is malformed, or too large. REQUIRES: `into` is new.
[[nodiscard]] boost::asio::awaitable<boost::system::error_code> read_request(peer_stream& from, incoming& in,
                                                                             lease_parser& into);
// Of a request that is refused before it was read: without this, the kernel would take the answer back with the connection.
[[nodiscard]] boost::asio::awaitable<void> swallow_rest(peer_stream& from, boost::beast::flat_buffer& buffer);

}  // namespace fencegate::admin
