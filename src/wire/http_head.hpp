// Heads of HTTP/1.1 messages (RFC 9112), read strictly and written anew. Nothing is repaired: a bare CR or LF, a folded
// line, a blank before a colon, a control character, a second Host is an error, since the peer behind might repair it in
// another way, and then two of us would see two different requests.
//
// Stricter than the RFC: methods have no lower-case letters (a server that takes `put` for PUT would not be fenced), and a
// Host is a name or an address without sub-delims and escapes.
#pragma once

#include "base/header_field.hpp"
#include "wire/http_error.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

// Where a head begins and ends, its empty line included.
struct http_head_extent {
  std::size_t begin = 0;  // 2 where an empty line came first, which is ignored (RFC 9112 section 2.2); else 0
  std::size_t end = 0;
};

// Looks for the end of a head in a growing input; each byte is looked at once.
class http_head_finder {
 public:
  enum class side : std::uint8_t { request, response };
  explicit http_head_finder(side of) : of_(of) {}

  // REQUIRES: after nullopt, `input` starts with the bytes of that call's input, at any address. nullopt: incomplete.
  // Errors, as early as they show: what is no HTTP by its first byte, a bare LF, more than limits::http_head_bytes_max
  // (431), a request line beyond limits::http_target_bytes_max (414). After a whole head the search is for the next.
  [[nodiscard]] http_result<std::optional<http_head_extent>> find(std::string_view input);

 private:
  [[nodiscard]] http_result<bool> take_start(std::string_view input);
  [[nodiscard]] http_error failure(int status, std::string_view message) const;

  side of_;
  std::size_t begin_ = 0;  // of the head
  std::size_t line_ = 0;   // of the line that is being looked at
  std::size_t at_ = 0;     // what needs no second look
};

// All views are into the bytes that were parsed.
struct http_request_head {
  std::string_view method;
  std::string_view target;  // visible ASCII; see http_target
  int minor = 1;            // HTTP/1.minor: 0 or 1
  std::string_view host;    // name or address, and port; "" when there is none (HTTP/1.0) or it is empty
  std::vector<header_field> fields;
};

struct http_response_head {
  int status = 0;           // 100 … 599
  std::string_view reason;  // may be empty
  int minor = 1;
  std::vector<header_field> fields;
};

// REQUIRES: `bytes` is a head as found by http_head_finder. `out` is overwritten; its vector keeps its memory.
// Errors: 400; 414 and 431 for too much; 501 for an impossible method; 505 for another version than 1.0 and 1.1.
[[nodiscard]] http_result<void> parse_request_head(std::string_view bytes, http_request_head& out);
// Errors are 502. The blank behind the status may be missing where there is no reason.
[[nodiscard]] http_result<void> parse_response_head(std::string_view bytes, http_response_head& out);

// `name: value`, without its line end: a trailer's, too. nullopt: malformed.
[[nodiscard]] std::optional<header_field> parse_header_field(std::string_view line);

// The first field of this name; nullptr when there is none.
[[nodiscard]] const header_field* find_field(std::span<const header_field> fields, std::string_view name);
[[nodiscard]] std::size_t count_fields(std::span<const header_field> fields, std::string_view name);

// A host with an optional port: `name`, `name:80`, `192.0.2.1`, `[2001:db8::1]:80`.
[[nodiscard]] bool is_http_host(std::string_view text);

// The parts of a head that goes out. REQUIRES: no part holds a CR, LF or NUL; they come from a parsed head, or are ours.
void append_request_line(std::string& out, std::string_view method, std::string_view target);
void append_status_line(std::string& out, int status, std::string_view reason);
void append_header_field(std::string& out, std::string_view name, std::string_view value);

// "Not Found" for 404; "" for a status that is not in RFC 9110 or RFC 6585.
[[nodiscard]] std::string_view http_reason(int status);

}  // namespace fencegate::wire
