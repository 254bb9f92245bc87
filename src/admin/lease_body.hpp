// The JSON that clients of the API of leases send. Strict: a member of another name, or of another kind, is an error, which
// says what is wrong and where.
#pragma once

#include "base/result.hpp"
#include "fence/tag.hpp"
#include "lease/desk.hpp"
#include "lease/operation.hpp"

#include <string>
#include <string_view>

namespace fencegate::admin {

// {"resources":["orders"]}, and perhaps "id", "ttl", "wait", "stop_grace", "at_least", "holder".
[[nodiscard]] result<lease::lease_wish> read_lease_wish(std::string_view body);

// {"tokens":{"orders":35}}. Tokens are whole numbers from 0 to 2^63−1, exact.
[[nodiscard]] result<fence::claims_list> read_lease_tokens(std::string_view body);

// {"resources":["orders"],"reason":"hangs"}, and what else that word takes; "by": who asks, for people.
struct operator_request {
  lease::operation asked;
  std::string by;
};
[[nodiscard]] result<operator_request> read_operation(lease::operation::kind what, std::string_view body);

// {"started_ms":123456}, and perhaps "container": on CLOCK_BOOTTIME, rounded down.
struct writer_start {
  std::string container;  // "": it was not named
  lease::boot_clock::time_point at;
};
[[nodiscard]] result<writer_start> read_writer_start(std::string_view body);

// 32 hexadecimal digits, in lower case: one spelling for each id.
[[nodiscard]] bool is_grant_id(std::string_view text);

}  // namespace fencegate::admin
