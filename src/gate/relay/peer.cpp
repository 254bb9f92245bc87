#include "gate/relay/peer.hpp"

#include "base/limits.hpp"

#include <boost/asio/error.hpp>

#include <string_view>

namespace fencegate::gate {
namespace {

// Of an empty buffer: what many idle sessions may keep.
constexpr std::size_t kept_bytes = 16 * 1024;

}  // namespace

boost::system::error_code peer::send(std::string& bytes) {
  boost::system::error_code failed;
  while (socket.writable() && sent < bytes.size()) {
    sent += socket.send(std::string_view(bytes).substr(sent), failed);
    if (failed == boost::asio::error::would_block) {
      stalled_since = std::chrono::steady_clock::now();
      failed = {};
      break;
    }
    if (failed) return failed;
  }
  if (sent == bytes.size()) {
    forget(bytes);
  } else if (sent > limits::output_high_water_bytes) {
    bytes.erase(0, sent);
    sent = 0;
  }
  return failed;
}

void peer::forget(std::string& bytes) {
  if (bytes.capacity() > kept_bytes)
    std::string().swap(bytes);
  else
    bytes.clear();
  sent = 0;
}

}  // namespace fencegate::gate
