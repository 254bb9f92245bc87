// What a request asks for (RFC 9112 section 3.2, RFC 3986), read once: the path that routes are matched with is the path
// that goes out. What two readers could take for two paths is an error: '.', '..' and empty segments, encoded or not, an
// encoded '/', '\', control characters, bytes that are no UTF-8.
#pragma once

#include "wire/http_error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::wire {

struct http_target {
  enum class kind : std::uint8_t {
    path,     // origin-form, or absolute-form
    asterisk  // `OPTIONS *`
  };
  kind what = kind::path;

  // Canonical: escapes of unreserved characters are undone, the others are %XX in upper case. An escaped sub-delimiter
  // stays escaped, since `%3B` and `;` need not mean the same (RFC 3986 section 2.2). Canonical again, it is the same.
  // "*" for an asterisk.
  std::string path;
  // The path with all escapes undone, for routes. No segment holds a '/', so its slashes are those between segments; a
  // slash at the end is an empty last segment, and counts. "" for an asterisk.
  std::string decoded;
  // As it came, behind '?', into the target that was parsed; nullopt: no '?'.
  std::optional<std::string_view> query;

  // For the upstream: path and query.
  void append_to(std::string& out) const;
  // Puts this in the place of a segment, counted from 0, of both forms of the path. REQUIRES: there is one, and `text` is
  // of unreserved characters.
  void set_segment(std::size_t index, std::string_view text);
};

// `host` is the request's Host, "" when there is none: an absolute-form (http:// only) must name the same, without case.
// `out` is overwritten; its strings keep their memory. Errors are 400. `*` is for OPTIONS only; host:port alone
// (CONNECT) is an error. In the query, escapes must be good; its bytes are not otherwise looked at.
// A segment that begins with "..;" or ".;" is an error, too: servlet containers drop what follows the ';'.
[[nodiscard]] http_result<void> parse_http_target(std::string_view method, std::string_view target,
                                                  std::string_view host, http_target& out);

// The value of `name` in a query split at '&', names and values decoded, '+' being a blank. nullopt: it is not there.
// Errors (400): it is there twice; a value that is no UTF-8, or has control characters other than tab and line ends.
[[nodiscard]] http_result<std::optional<std::string>> http_query_value(std::string_view query, std::string_view name);

}  // namespace fencegate::wire
