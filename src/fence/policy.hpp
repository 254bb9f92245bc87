// What a gate does with a request whose token is not simply good; per gate, and overridable per resource rule.
#pragma once

#include <cstdint>

namespace fencegate::fence {

enum class enforcement : std::uint8_t {
  enforce,  // reject what must be rejected
  monitor,  // forward, count and log what would have been rejected: for roll-out
};

enum class missing_token : std::uint8_t {
  reject,     // a write without a token is rejected
  read_only,  // the same for writes; connections without a token are welcome to read (differs only in PostgreSQL)
  allow,      // a write without a token passes unchecked
};

enum class equal_token : std::uint8_t {
  accept,  // token = mark is the holder's next write
  reject,  // each token is good for one batch of writes, or one request
};

enum class reads : std::uint8_t {
  pass,   // reads are not checked
  fence,  // a read whose connection carries a stale token is rejected; reads never raise
};

struct policy {
  enforcement mode = enforcement::enforce;
  missing_token missing = missing_token::reject;
  equal_token equal = equal_token::accept;
  fence::reads read = fence::reads::pass;
  std::int64_t max_step = 0;  // largest allowed rise of a mark by one token; 0 = no limit

  // A write spends its token: the next one is told that the token was used.
  [[nodiscard]] constexpr bool spends() const { return equal == equal_token::reject; }

  friend bool operator==(const policy&, const policy&) = default;
};

// Of a gate, where nothing else is configured. A czxid jumps by 2^32 at an election; a typing error goes further.
inline constexpr policy policy_of_gates{.max_step = std::int64_t{1} << 40};

}  // namespace fencegate::fence
