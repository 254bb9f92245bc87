// Where a message's body ends (RFC 9112 section 6.3). Two answers to that question are request smuggling; so whatever is
// not said exactly once and exactly right is an error, also where the RFC lets a recipient repair it.
#pragma once

#include "wire/http_error.hpp"
#include "wire/http_head.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::wire {

struct http_framing {
  enum class kind : std::uint8_t {
    none,        // no body, and no bytes for it
    length,      // exactly `length` bytes, 0 included
    chunked,     // see http_chunks
    until_close  // responses only: whatever comes until the end of the connection
  };
  kind what = kind::none;
  std::uint64_t length = 0;
  // False: behind this message nothing more can be told apart on its connection; close it.
  bool reusable = true;

  friend bool operator==(const http_framing&, const http_framing&) = default;
};

// Errors (400): both framings, a field twice, a length that is not 1 to 19 digits (below 2^63), any Transfer-Encoding but
// `chunked`, or one in HTTP/1.0.
[[nodiscard]] http_result<http_framing> request_framing(const http_request_head& head);

// What follows a response to a request of this method. The same errors (502), and 101, which nobody asked for. A length in
// an answer to HEAD or in a 304 says what would have come: none comes. A 1xx or 204 that announces a body has none, and
// the connection is not used again.
[[nodiscard]] http_result<http_framing> response_framing(const http_response_head& head, std::string_view method);

// The one field that says it, or none.
void append_framing_field(std::string& out, const http_framing& framing);

}  // namespace fencegate::wire
