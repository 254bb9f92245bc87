// Whole replies out of bytes, and nothing kept of those that are too large.
#include "backend/reply_reader.hpp"

#include "backend/redis_replies.hpp"
#include "base/limits.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fencegate::backend {
namespace {

using wire::head_status;

// The replies in these bytes, which come in pieces: "type text/elements", each; then "malformed" or what is still to come.
std::string replies_of(std::string_view bytes, std::size_t piece) {
  reply_reader reader;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.input().append(bytes.substr(at, piece));
    wire::reply_value one;
    auto read = reader.next(one);
    for (; read == head_status::complete; read = reader.next(one)) {
      out += one.type + std::string(one.text) + "/" + std::to_string(one.elements.size()) + " ";
      reader.done_with();
    }
    if (read == head_status::malformed) return out + "malformed";
  }
  return out + std::to_string(reader.input().size());
}

TEST(ReplyReader, OneAfterTheOtherAtEverySplit) {
  const std::string bytes = "+OK\r\n$5\r\nhello\r\n*2\r\n$1\r\na\r\n*1\r\n:7\r\n-ERR no\r\n$-1\r\n*0\r\n$3\r\nab";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece)
    EXPECT_EQ(replies_of(bytes, piece), "+OK/0 $hello/0 */2 -ERR no/0 $/0 */0 6") << piece;
}

TEST(ReplyReader, WhatIsNoReply) {
  for (const std::string bytes : {"?1\r\n", "$x\r\n", "*-2\r\n", "$1\r\nab\r\n", "*1\r\n?1\r\n", "$?\r\n"})
    for (const std::size_t piece : {std::size_t{1}, bytes.size()})
      EXPECT_EQ(replies_of("+OK\r\n" + bytes, piece), "+OK/0 malformed") << bytes;
}

TEST(ReplyReader, OfALargeOneNothingIsKept) {
  const std::string large(limits::redis_reply_bytes_max + 1, 'x');
  const std::string bytes = "$" + std::to_string(large.size()) + "\r\n" + large + "\r\n+OK\r\n";
  const std::string expected = "-" + std::string(detail::reply_too_large) + "/0 +OK/0 0";
  EXPECT_EQ(replies_of(bytes, bytes.size()), expected);
  reply_reader reader;
  for (std::size_t at = 0; at < bytes.size(); at += 64 * 1024) {
    reader.input().append(std::string_view(bytes).substr(at, 64 * 1024));
    wire::reply_value one;
    while (reader.next(one) == head_status::complete) reader.done_with();
    ASSERT_LE(reader.input().size(), limits::redis_reply_bytes_max + 64 * 1024);
  }
  EXPECT_TRUE(reader.input().empty());
}

TEST(ReplyReader, ManyValuesAreTooManyHoweverTheyAreNested) {
  const auto most = static_cast<std::size_t>(limits::redis_reply_values_max);
  const auto flat = [](std::size_t values) {
    std::string out = "*" + std::to_string(values) + "\r\n";
    for (std::size_t i = 0; i < values; ++i) out += ":1\r\n";
    return out;
  };
  EXPECT_EQ(replies_of(flat(most - 1), 1 << 20), "*/" + std::to_string(most - 1) + " 0");
  EXPECT_EQ(replies_of(flat(most), 1 << 20), "-FENCEGATETOOLARGE/0 0");
  EXPECT_EQ(replies_of("*2\r\n" + flat(most / 2) + flat(most / 2), 1 << 20), "-FENCEGATETOOLARGE/0 0");
}

TEST(ReplyReader, ADeclaredLengthTakesNoMemory) {
  reply_reader reader;
  reader.input().append("*1000000000\r\n$100000000000\r\n");
  wire::reply_value one;
  EXPECT_EQ(reader.next(one), head_status::need_more);
  EXPECT_LT(reader.input().capacity(), 1024u);
}

}  // namespace
}  // namespace fencegate::backend
