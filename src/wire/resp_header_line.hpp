// The two header lines of a RESP request, `*n` and `$n`, with the limits and the words Redis has for them. Shared by the
// decoder, which holds a command, and by large_request, which does not.
#pragma once

#include "base/limits.hpp"
#include "wire/resp_number.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fencegate::wire {

struct header_line {
  number_status status = number_status::need_more;
  std::int64_t value = 0;         // complete only
  std::size_t bytes = 0;          // complete only: the whole line
  std::string_view message = {};  // malformed only; static storage

  [[nodiscard]] static header_line wrong(std::string_view message) { return {number_status::malformed, 0, 0, message}; }
};

// "expected '$', got 'x'" for every byte, since a message must outlive the input.
[[nodiscard]] inline std::string_view expected_dollar(char got) {
  static const auto messages = [] {
    std::array<std::array<char, 21>, 256> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      constexpr std::string_view model = "expected '$', got '?'";
      std::copy(model.begin(), model.end(), all[i].begin());
      if (i >= 0x20 && i < 0x7f) {
        all[i][19] = static_cast<char>(i);
      }
    }
    return all;
  }();
  const auto& message = messages[static_cast<unsigned char>(got)];
  return {message.data(), message.size()};
}

// REQUIRES: `input` starts with `*`. A value of 0 or less is a complete line: it announces no command.
[[nodiscard]] inline header_line read_array_line(std::string_view input, std::int64_t arguments_max) {
  header_line line;
  line.status = read_number(input.substr(1), line.value, line.bytes);
  line.bytes += 1;
  if (line.status == number_status::need_more) {
    return line;
  }
  if (line.status == number_status::too_long) {
    return header_line::wrong("too big mbulk count string");
  }
  if (line.status == number_status::malformed || line.value > std::max(arguments_max, limits::resp_arguments_max)) {
    return header_line::wrong("invalid multibulk length");
  }
  return line.value > arguments_max ? header_line::wrong("unauthenticated multibulk length") : line;
}

[[nodiscard]] inline header_line read_bulk_line(std::string_view input, std::int64_t bulk_bytes_max) {
  header_line line;
  if (input.empty()) {
    return line;
  }
  if (input[0] != '$') {
    return header_line::wrong(expected_dollar(input[0]));
  }
  line.status = read_number(input.substr(1), line.value, line.bytes);
  line.bytes += 1;
  if (line.status == number_status::need_more) {
    return line;
  }
  if (line.status == number_status::too_long) {
    return header_line::wrong("too big bulk count string");
  }
  if (line.status == number_status::malformed || line.value < 0 ||
      line.value > std::max(bulk_bytes_max, limits::resp_bulk_bytes_max)) {
    return header_line::wrong("invalid bulk length");
  }
  return line.value > bulk_bytes_max ? header_line::wrong("unauthenticated bulk length") : line;
}

inline constexpr std::string_view missing_crlf = "missing CRLF after bulk string";

}  // namespace fencegate::wire
