// uses: wire hiredis
// Replies in RESP2 against hiredis 0.14, the reader most clients have. Two readers that see different ends of one reply
// are how a proxy hands a client somebody else's answer. The rule:
//   hiredis accepts, and the bytes are the canonical form of what it read   -> accepted here, with the same extent;
//   hiredis accepts anything else                                           -> malformed here, on purpose: hiredis does not
//     look at the CRLF behind a bulk, and lets a bare CR or LF stand inside a line;
//   accepted here (RESP2, up to hiredis's 7 levels)                         -> hiredis accepts, with the same extent.
#include "wire/resp_reply.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

struct reference {
  bool accepted = false;
  std::size_t extent = 0;
  std::string canonical;  // the reply, encoded anew
  bool clean = true;      // no CR or LF inside of a line
};

void encode(const redisReply& reply, reference& out) {
  const std::string_view text(reply.str != nullptr ? reply.str : "", reply.str != nullptr ? reply.len : 0);
  switch (reply.type) {
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
      out.clean = out.clean && text.find_first_of("\r\n") == std::string_view::npos;
      out.canonical += reply.type == REDIS_REPLY_STATUS ? '+' : '-';
      out.canonical += std::string(text) + "\r\n";
      return;
    case REDIS_REPLY_INTEGER: out.canonical += ":" + std::to_string(reply.integer) + "\r\n"; return;
    case REDIS_REPLY_STRING:
      out.canonical += "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
      return;
    case REDIS_REPLY_ARRAY:
      out.canonical += "*" + std::to_string(reply.elements) + "\r\n";
      for (std::size_t i = 0; i < reply.elements; ++i) {
        encode(*reply.element[i], out);
      }
      return;
    default:  // the one nil that hiredis has; `*-1` is spelled `$-1` here
      out.canonical += "$-1\r\n";
  }
}

// hiredis allocates an array of the declared count before anything of it has come: keep the fuzzer's memory.
bool declares_large_array(std::string_view stream) {
  for (std::size_t at = stream.find('*'); at != std::string_view::npos; at = stream.find('*', at + 1)) {
    const std::size_t digits_end = std::min(stream.find_first_not_of("0123456789+-", at + 1), stream.size());
    if (digits_end - at > 5) {
      return true;
    }
  }
  return false;
}

reference read_with_hiredis(std::string_view stream) {
  const std::unique_ptr<redisReader, decltype(&redisReaderFree)> reader(redisReaderCreate(), redisReaderFree);
  void* reply = nullptr;
  redisReaderFeed(reader.get(), stream.data(), stream.size());
  reference out;
  if (redisReaderGetReply(reader.get(), &reply) != REDIS_OK || reply == nullptr) {
    return out;
  }
  out.accepted = true;
  out.extent = stream.size() - (reader->len - reader->pos);
  encode(*static_cast<redisReply*>(reply), out);
  freeReplyObject(reply);
  return out;
}

// Encodes our tree the way encode() does theirs, so that contents are compared and not only extents.
void encode(const reply_value& value, std::string& out) {
  if (value.null) {
    out += "$-1\r\n";
  } else if (value.type == '*') {
    out += "*" + std::to_string(value.elements.size()) + "\r\n";
    for (const reply_value& element : value.elements) {
      encode(element, out);
    }
  } else if (value.type == '$') {
    out += "$" + std::to_string(value.text.size()) + "\r\n" + std::string(value.text) + "\r\n";
  } else {
    out += value.type + std::string(value.text) + "\r\n";
  }
}

bool is_resp2(const reply_value& value) {
  return std::string_view("+-:$*").find(value.type) != std::string_view::npos &&
         std::all_of(value.elements.begin(), value.elements.end(), is_resp2);
}

std::size_t depth(const reply_value& value) {
  std::size_t deepest = 0;
  for (const reply_value& element : value.elements) {
    deepest = std::max(deepest, depth(element));
  }
  return deepest + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view stream(reinterpret_cast<const char*>(data), size);
  if (declares_large_array(stream)) {
    return 0;
  }
  const reference theirs = read_with_hiredis(stream);
  const auto ours = parse_value(stream);
  const bool accepted = ours && ours->has_value();
  if (accepted) {
    const auto& [value, extent] = **ours;
    // An attribute or a push read in passing is RESP3, too, though the tree does not show it.
    const bool plain = stream.substr(0, extent).find_first_of("|>") == std::string_view::npos;
    if (plain && is_resp2(value) && depth(value) <= 7) {
      std::string canonical;
      encode(value, canonical);
      require(theirs.accepted && theirs.extent == extent && theirs.canonical == canonical);
    }
  }
  if (theirs.accepted) {
    // `*-1` is the other spelling of nil.
    std::string read(stream.substr(0, theirs.extent));
    for (std::size_t at = read.find("*-1\r\n"); at != std::string::npos; at = read.find("*-1\r\n", at + 1)) {
      if (theirs.canonical.compare(at, 5, "$-1\r\n") == 0) {
        read[at] = '$';
      }
    }
    const bool canonical = theirs.clean && read == theirs.canonical;
    require(canonical == accepted);
  }
  return 0;
}
