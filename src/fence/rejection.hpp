// Why a request was not let through: one table for all protocols, and the texts that clients see.
#pragma once

#include "fence/token.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::fence {

enum class reason : std::uint8_t {
  stale,        // token < mark; do not retry with this token
  missing,      // a write without a token for its resource
  malformed,    // not a tag, not an integer, out of range, two that disagree
  equal,        // equal_token: reject, and token = mark: the token was used
  jump,         // token exceeds the mark by more than max_step
  unavailable,  // the mark could not be checked
  refused,      // a command that could damage marks or escape the fence
};
inline constexpr int reasons = 7;

// The contract with users; stable.
struct reason_terms {
  std::string_view name;        // label value of metrics, log field
  int http_status;              // RFC 9110
  std::string_view redis_code;  // first word of the Redis error, without '-'
  std::string_view sqlstate;
  std::string_view title;  // RFC 9457 "title"
};
[[nodiscard]] const reason_terms& terms_of(reason why);

// Of a jump above a mark that a lease has sealed: its detail.
inline constexpr std::string_view raised_by_leases_only = "which only leases of its issuer raise";

// What a fencing token was needed for. A connection's rejection has a detail.
enum class attempt : std::uint8_t { write, read, raise, connection };

// REQUIRES: what is rejected was definitely not applied.
struct rejection {
  reason why = reason::unavailable;
  std::string resource;            // "" when none is known
  std::optional<token> presented;  // the request's token
  std::optional<token> mark;       // the mark it was compared with
  std::string detail;              // what is particular to this case, and what to do; may be ""
  attempt at = attempt::write;     // missing: what was tried without a token
  // Which lowering the mark stands under (backend/mark_memory.hpp), where the server said so.
  std::optional<std::uint64_t> lowering{};

  friend bool operator==(const rejection&, const rejection&) = default;
};

// One line for people: names resource, token and mark where they are known, says "not applied". No CR or LF, printable
// ASCII (other bytes of `detail` are replaced by '?').
[[nodiscard]] std::string describe(const rejection& r);

// RESP error line with its CRLF: "-FENCED token 33 of orders is below mark 34; not applied\r\n".
[[nodiscard]] std::string redis_error(const rejection& r);

// To a connection that is not served at all: "-FENCEDOWN standby: held by host:4711; not applied\r\n".
[[nodiscard]] std::string redis_refusal(std::string_view why);

}  // namespace fencegate::fence
