// What replies to the gate itself prove.
#include "backend/redis_replies.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fencegate::backend::detail {
namespace {

bool is_value(const std::string& bytes, std::string_view value) {
  const auto parsed = wire::parse_value(bytes);
  return detail::is_value(&(*parsed)->first, value);
}

TEST(MarksProof, ByteForByte) {
  EXPECT_TRUE(is_value("$2\r\n34\r\n", "34"));
  for (const std::string bytes : {"$2\r\n35\r\n",        // higher
                                  "$2\r\n33\r\n",        // lower
                                  "$3\r\n034\r\n",       // the same number
                                  "$3\r\n34 \r\n",       //
                                  "$0\r\n\r\n",          //
                                  "$-1\r\n",             // none
                                  ":34\r\n",             // no bulk string
                                  "+34\r\n",             //
                                  "*1\r\n$2\r\n34\r\n",  //
                                  "=6\r\ntxt:34\r\n",    //
                                  "-NOPERM no\r\n", "_\r\n"})
    EXPECT_FALSE(is_value(bytes, "34")) << bytes;
  EXPECT_FALSE(is_value("$-1\r\n", ""));          // none is not an empty one
  EXPECT_FALSE(detail::is_value(nullptr, "34"));  // the connection was lost
}

}  // namespace
}  // namespace fencegate::backend::detail
