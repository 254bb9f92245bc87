// What replies to the gate itself prove.
#include "backend/redis_replies.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fencegate::backend::detail {
namespace {

using fence::token;

bool proves(const std::string& bytes, const std::vector<fence::claim>& claims, std::string_view epoch = "e1") {
  const auto parsed = wire::parse_value(bytes);
  return detail::proves(&(*parsed)->first, claims, epoch);
}

TEST(MarksProof, EachMarkAndTheEpochByteForByte) {
  const std::vector<fence::claim> one{{"orders", token(34)}}, two{{"orders", token(34)}, {"payments", token(7)}};
  EXPECT_TRUE(proves("*2\r\n$2\r\n34\r\n$2\r\ne1\r\n", one));
  EXPECT_TRUE(proves("*3\r\n$2\r\n34\r\n$1\r\n7\r\n$2\r\ne1\r\n", two));
  const char* const not_one[] = {"*2\r\n$2\r\n35\r\n$2\r\ne1\r\n",             // higher
                                 "*2\r\n$2\r\n33\r\n$2\r\ne1\r\n",             // lower
                                 "*2\r\n$3\r\n034\r\n$2\r\ne1\r\n",            // the same number
                                 "*2\r\n$3\r\n34 \r\n$2\r\ne1\r\n",            //
                                 "*2\r\n$0\r\n\r\n$2\r\ne1\r\n",               //
                                 "*2\r\n$-1\r\n$2\r\ne1\r\n",                  // none, or another type
                                 "*2\r\n:34\r\n$2\r\ne1\r\n",                  // no bulk string
                                 "*2\r\n+34\r\n$2\r\ne1\r\n",                  //
                                 "*2\r\n*1\r\n$2\r\n34\r\n$2\r\ne1\r\n",       //
                                 "*2\r\n$2\r\n34\r\n$2\r\ne2\r\n",             // another epoch
                                 "*2\r\n$2\r\n34\r\n$-1\r\n",                  // none
                                 "*2\r\n$2\r\n34\r\n+e1\r\n",                  //
                                 "*2\r\n$2\r\ne1\r\n$2\r\n34\r\n",             // in another order
                                 "*1\r\n$2\r\n34\r\n",                         // not as many
                                 "*1\r\n$2\r\ne1\r\n",                         //
                                 "*3\r\n$2\r\n34\r\n$1\r\n7\r\n$2\r\ne1\r\n",  //
                                 "*3\r\n$2\r\n34\r\n$2\r\ne1\r\n$2\r\ne1\r\n",
                                 "*0\r\n",
                                 "*-1\r\n",
                                 "$2\r\n34\r\n",  // no array
                                 "~2\r\n$2\r\n34\r\n$2\r\ne1\r\n",
                                 "-NOPERM no\r\n",
                                 "+OK\r\n"};
  for (const auto* bytes : not_one) EXPECT_FALSE(proves(bytes, one)) << bytes;
  EXPECT_FALSE(proves("*3\r\n$2\r\n34\r\n$1\r\n8\r\n$2\r\ne1\r\n", two));  // the second one
  EXPECT_FALSE(proves("*3\r\n$1\r\n7\r\n$2\r\n34\r\n$2\r\ne1\r\n", two));
  EXPECT_FALSE(proves("*2\r\n$2\r\n34\r\n$2\r\ne1\r\n", two));
  EXPECT_FALSE(proves("*2\r\n$2\r\n34\r\n$0\r\n\r\n", one, ""));  // an epoch that is not known
  EXPECT_FALSE(detail::proves(nullptr, one, "e1"));               // the connection was lost
}

TEST(MarksProof, OnlyMinusOneIsNoExpiry) {
  for (const std::string bytes :
       {":-1\r\n", ":-2\r\n", ":0\r\n", ":1000\r\n", "-NOPERM no\r\n", "$2\r\n-1\r\n", "_\r\n"}) {
    const auto parsed = wire::parse_value(bytes);
    EXPECT_EQ(is_without_expiry(&(*parsed)->first), bytes == ":-1\r\n") << bytes;
  }
  EXPECT_FALSE(is_without_expiry(nullptr));
}

}  // namespace
}  // namespace fencegate::backend::detail
