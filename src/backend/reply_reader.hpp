// Takes whole replies, one after the other, out of the bytes that Redis sent. Pure.
//
// Rule kept: nothing is allocated from a declared length. A reply is followed to its end before a tree is made of it; of one
// that is larger than limits::redis_reply_bytes_max, or has more values than limits::redis_reply_values_max, nothing is
// kept. (So the reader is ours, not that of hiredis: it takes memory for as many elements as a reply says that it has.)
#pragma once

#include "base/byte_queue.hpp"
#include "wire/resp_reply.hpp"

#include <cstddef>

namespace fencegate::backend {

class reply_reader {
 public:
  // Where what was received is appended. REQUIRES: next() has nothing out.
  [[nodiscard]] byte_queue& input() { return in_; }

  // complete: `out` is the next reply, and its texts are valid until done_with(). A reply that is too large is the error
  // detail::reply_too_large (backend/redis_replies.hpp).
  [[nodiscard]] wire::head_status next(wire::reply_value& out);
  // Forgets the reply that next() gave.
  void done_with();

 private:
  byte_queue in_;
  wire::value_scanner scanner_;  // of the reply that is coming
  std::size_t scanned_ = 0;      // of it, in in_
  bool dropped_ = false;         // it is too large, and what came of it so far is gone
};

}  // namespace fencegate::backend
