// uses: wire
// Bytes of a server: the scanner, whole and in pieces, and the tree reader must agree where each reply ends.
// Input: size of the pieces (1 byte), the stream.
#include "base/limits.hpp"
#include "wire/resp_reply.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

// Follows one reply with its leading attributes, fed piece by piece; says its extent.
std::pair<head_status, std::size_t> follow(std::string_view stream, std::size_t piece) {
  value_scanner scanner;
  bool attribute = false;
  std::size_t consumed = 0;
  std::size_t come = 0;
  for (;;) {
    const std::string_view waiting = stream.substr(consumed, come - consumed);
    head_status got = head_status::complete;
    if (!scanner.done()) {
      const value_scanner::step step = scanner.advance(waiting);
      require(step.consumed <= waiting.size());
      require((step.what == value_scanner::status::complete) == scanner.done() ||
              step.what == value_scanner::status::malformed);
      consumed += step.consumed;
      got = step.what == value_scanner::status::complete ? head_status::complete
            : step.what == value_scanner::status::more   ? head_status::need_more
                                                         : head_status::malformed;
    } else {
      reply_head head;
      got = read_head(waiting, head);
      if (got == head_status::complete) {
        require(head.bytes <= waiting.size());
        consumed += head.bytes;
        attribute = head.type == '|';
        scanner.begin(head);
      }
    }
    if (got == head_status::malformed) {
      return {got, 0};
    }
    if (got == head_status::complete && scanner.done() && !attribute) {
      return {got, consumed};
    }
    if (got == head_status::need_more) {
      if (come == stream.size()) {
        return {got, 0};
      }
      come = std::min(come + piece, stream.size());
    }
  }
}

// At most.
std::size_t heads_of_aggregates(std::string_view stream) {
  return static_cast<std::size_t>(std::count_if(stream.begin(), stream.end(), [](char c) {
    return std::string_view("*%~>|").find(c) != std::string_view::npos;
  }));
}

// Every text of the tree lies inside of the input.
void require_inside(const reply_value& value, std::string_view input) {
  require(value.text.empty() ||
          (value.text.data() >= input.data() && value.text.data() + value.text.size() <= input.data() + input.size()));
  for (const reply_value& element : value.elements) {
    require_inside(element, input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::size_t piece = std::size_t{1} + data[0];
  std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (;;) {
    const auto tree = parse_value(stream);
    const auto whole = follow(stream, stream.size() + 1);
    require(whole == follow(stream, piece));
    // The tree has a lower limit of levels; there are not more than heads of aggregates.
    if (!tree && heads_of_aggregates(stream) > fencegate::limits::resp_depth_max) {
      return 0;
    }
    const head_status expected = !tree   ? head_status::malformed
                                 : *tree ? head_status::complete
                                         : head_status::need_more;
    require(whole.first == expected);
    if (expected != head_status::complete) {
      return 0;
    }
    require(whole.second == (*tree)->second && whole.second > 0);
    require_inside((*tree)->first, stream);
    stream.remove_prefix(whole.second);
  }
}
