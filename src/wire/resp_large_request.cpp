#include "base/limits.hpp"
#include "wire/resp_header_line.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>

namespace fencegate::wire {

large_request::large_request(const request_decoder& limits)
    : arguments_max_(limits.arguments_max), bulk_bytes_max_(limits.bulk_bytes_max) {}

// Reads one header line; `consumed` is 0 while it is incomplete.
large_request::step large_request::take_head(std::string_view input) {
  const bool first = arguments_left_ < 0;
  if (first && input[0] != '*') {
    return {status::malformed, 0, "expected '*'"};
  }
  const header_line line = first ? read_array_line(input, arguments_max_) : read_bulk_line(input, bulk_bytes_max_);
  if (line.status == number_status::need_more) {
    return {};
  }
  if (line.status != number_status::complete) {
    return {status::malformed, 0, line.message};
  }
  if (first) {
    if (line.value <= 0) {
      return {status::malformed, 0, "invalid multibulk length"};  // never `large` for the decoder
    }
    arguments_left_ = line.value;
    return {status::more, line.bytes, {}};
  }
  arguments_left_ -= 1;
  arguments_.push_back({{}, line.value});
  payload_left_ = line.value;
  crlf_left_ = 2;
  return {status::more, line.bytes, {}};
}

// Takes what is there of the current argument's payload.
std::size_t large_request::take_payload(std::string_view input) {
  const auto available = static_cast<std::int64_t>(input.size());
  const auto taken = static_cast<std::size_t>(std::min(payload_left_, available));
  payload_left_ -= static_cast<std::int64_t>(taken);
  argument& current = arguments_.back();
  const bool small = current.size <= static_cast<std::int64_t>(kept_bytes_max);
  const std::size_t kept_max = small ? kept_bytes_max : head_bytes_max;
  const std::size_t kept = std::min(taken, kept_max - current.head.size());
  current.head.append(input.substr(0, kept));
  kept_total_ += kept;
  return taken;
}

large_request::step large_request::advance(std::string_view input) {
  std::size_t at = 0;
  while (at < input.size()) {
    if (payload_left_ > 0) {
      at += take_payload(input.substr(at));
      if (kept_total_ > kept_bytes_total_max) {
        return {status::malformed, at, "too many arguments in a large command"};
      }
    } else if (crlf_left_ > 0) {
      if (input[at] != (crlf_left_ == 2 ? '\r' : '\n')) {
        return {status::malformed, at, missing_crlf};
      }
      at += 1;
      crlf_left_ -= 1;
      if (crlf_left_ == 0 && arguments_left_ == 0) {
        return {status::complete, at, {}};
      }
    } else {
      const step head = take_head(input.substr(at));
      at += head.consumed;
      if (head.what == status::malformed || head.consumed == 0) {
        return {head.what, at, head.message};
      }
    }
  }
  return {status::more, at, {}};
}

}  // namespace fencegate::wire
