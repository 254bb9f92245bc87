#include "backend/reply_reader.hpp"

#include "backend/redis_replies.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fencegate::backend {
namespace {

// Of a reply that is whole, nested ones included.
bool has_too_many_values(std::string_view reply) {
  std::ptrdiff_t values = 0;
  wire::reply_head head;
  while (!reply.empty() && wire::read_head(reply, head) == wire::head_status::complete) {
    if (++values > limits::redis_reply_values_max) return true;
    const bool has_payload = std::string_view("$!=").find(head.type) != std::string_view::npos && head.count >= 0;
    const auto bytes = head.bytes + (has_payload ? static_cast<std::size_t>(head.count) + 2 : 0);
    reply.remove_prefix(std::min(bytes, reply.size()));
  }
  return false;
}

}  // namespace

wire::head_status reply_reader::next(wire::reply_value& out) {
  using status = wire::head_status;
  if (in_.empty()) return status::need_more;
  if (scanned_ == 0 && !dropped_) {
    wire::reply_head head;
    const auto read = wire::read_head(in_.view(), head);
    if (read != status::complete) return read;
    scanner_.begin(head);
    scanned_ = head.bytes;
  }
  if (!scanner_.done()) {
    const auto step = scanner_.advance(in_.view().substr(scanned_));
    if (step.what == wire::value_scanner::status::malformed) return status::malformed;
    scanned_ += step.consumed;
  }
  const auto whole = in_.view().substr(0, scanned_);
  dropped_ = dropped_ || scanned_ > limits::redis_reply_bytes_max || (scanner_.done() && has_too_many_values(whole));
  if (!scanner_.done()) {
    if (dropped_) in_.consume(std::exchange(scanned_, 0));
    return status::need_more;
  }
  if (dropped_) {
    out = {'-', detail::reply_too_large, false, {}};
    return status::complete;
  }
  auto parsed = wire::parse_value(whole);
  if (parsed.has_error() || !*parsed) return status::malformed;
  out = std::move((*parsed)->first);
  return status::complete;
}

void reply_reader::done_with() {
  in_.consume(std::exchange(scanned_, 0));
  dropped_ = false;
}

}  // namespace fencegate::backend
