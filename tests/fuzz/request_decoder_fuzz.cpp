// uses: wire
// Bytes of a client, whole and in pieces: both must be read the same, what was read must be encoded as it came, and no
// more than promised may have to be held. Input: buffer limit (1 byte), size of the pieces (1 byte), the stream.
#include "base/limits.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

// Reads a stream as a session does and writes down everything it learned.
class reader {
 public:
  explicit reader(std::size_t buffered_max) : buffered_max_(buffered_max) {}

  void feed(std::string_view piece) {
    pending_ += piece;
    while (!broken_ && step()) {
    }
    if (!broken_ && !following_) {
      require(pending_.size() <= std::max(buffered_max_, fencegate::limits::resp_line_bytes_max));
    }
  }

  [[nodiscard]] const std::vector<std::string>& events() const { return events_; }
  [[nodiscard]] std::size_t left() const { return broken_ ? 0 : pending_.size(); }

 private:
  bool step() { return following_ ? follow() : decode(); }

  bool decode() {
    const decoded_request got = decoder_.decode(pending_, buffered_max_, command_);
    switch (got.status) {
      case request_status::need_more: return false;
      case request_status::empty: events_.emplace_back("empty"); break;
      case request_status::complete: take_command(got.consumed); break;
      case request_status::large:
        following_ = true;
        large_ = large_request(decoder_);
        return true;
      case request_status::malformed:
        events_.push_back("malformed " + std::string(got.message));
        broken_ = true;
        return false;
    }
    require(got.consumed > 0 && got.consumed <= pending_.size());
    pending_.erase(0, got.consumed);
    return true;
  }

  void take_command(std::size_t consumed) {
    require(!command_.arguments.empty() && command_.raw == std::string_view(pending_).substr(0, consumed));
    std::string encoded;
    append_command(encoded, command_.arguments);
    if (!command_.inlined) {
      require(consumed <= buffered_max_ && encoded == command_.raw);
    }
    request_decoder again;
    request copy;
    require(again.decode(encoded, encoded.size(), copy).status == request_status::complete);
    require(copy.arguments == command_.arguments);
    events_.push_back("command " + encoded);
  }

  bool follow() {
    const large_request::step got = large_.advance(pending_);
    require(got.consumed <= pending_.size());
    pending_.erase(0, got.consumed);
    if (got.what == large_request::status::more) {
      require(pending_.size() < 32);  // only a header line may wait
      return false;
    }
    following_ = false;
    broken_ = got.what == large_request::status::malformed;
    std::string event = broken_ ? "large, malformed " + std::string(got.message) : "large";
    for (const large_request::argument& a : large_.arguments()) {
      event += " " + std::to_string(a.size) + ":" + a.head;
    }
    events_.push_back(event);
    return !broken_;
  }

  const std::size_t buffered_max_;
  std::string pending_;
  request_decoder decoder_;
  request command_;
  large_request large_{decoder_};
  bool following_ = false;
  bool broken_ = false;
  std::vector<std::string> events_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::size_t buffered_max = data[0] * std::size_t{4};
  const std::size_t piece = std::size_t{1} + data[1];
  const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
  reader whole(buffered_max);
  whole.feed(stream);
  reader pieces(buffered_max);
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    pieces.feed(stream.substr(at, piece));
  }
  require(whole.events() == pieces.events() && whole.left() == pieces.left());
  return 0;
}
