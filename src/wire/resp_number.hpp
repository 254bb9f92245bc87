// The numbers of RESP header lines: canonical decimal digits followed by exactly CRLF. One spelling per value, so that
// this side and the peer's cannot read the same bytes differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace fencegate::wire {

enum class number_status : std::uint8_t {
  complete,
  need_more,
  malformed,  // not `0|-?[1-9][0-9]*`, outside of 64 bits, or not ended by CRLF
  too_long,   // more digits than any 64-bit number has, whatever follows
};

// Reads a number and its CRLF from the start of `text`; `bytes` is the size of both. The answer depends only on the bytes
// up to the one that decides it, hence a line that arrives in pieces is judged as it is when it arrives whole.
[[nodiscard]] inline number_status read_number(std::string_view text, std::int64_t& value, std::size_t& bytes) {
  constexpr std::size_t digits_max = 19;  // 2^63 has 19; any 19 digits fit an unsigned 64-bit integer
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::size_t size = text.size();
  std::size_t at = 0;
  const bool negative = size > 0 && text[0] == '-';
  if (negative) {
    at = 1;
  }
  const std::size_t first = at;
  std::uint64_t sum = 0;
  for (; at < size; ++at) {
    const auto digit = static_cast<unsigned char>(text[at] - '0');
    if (digit > 9) {
      break;
    }
    if (at - first == digits_max) {
      return number_status::too_long;
    }
    if (at == first + 1 && sum == 0) {
      return number_status::malformed;  // a leading zero
    }
    sum = sum * 10 + digit;
  }
  if (at == size) {
    return number_status::need_more;
  }
  if (text[at] != '\r' || at == first || (negative && sum == 0) || sum > largest + (negative ? 1 : 0)) {
    return number_status::malformed;
  }
  if (at + 1 == size) {
    return number_status::need_more;
  }
  if (text[at + 1] != '\n') {
    return number_status::malformed;
  }
  value = static_cast<std::int64_t>(negative ? ~sum + 1 : sum);
  bytes = at + 2;
  return number_status::complete;
}

}  // namespace fencegate::wire
