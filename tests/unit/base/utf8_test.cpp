#include "base/utf8.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, TakesEveryLength) {
  for (const auto text :
       {""sv, "a"sv, "\0"sv, "\x7f"sv, "\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv, "\xed\x9f\xbf"sv, "\xee\x80\x80"sv,
        "\xef\xbf\xbf"sv, "\xf0\x90\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv, "a\xc3\xa4z"sv}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesWhatIsNone) {
  for (const auto text : {"\x80"sv,
                          "\xbf"sv,
                          "\xc0\xaf"sv,
                          "\xc1\xbf"sv,
                          "\xc2"sv,
                          "\xc2\x7f"sv,
                          "\xc2\xc0"sv,
                          "\xe0\x80\xaf"sv,
                          "\xe0\x9f\xbf"sv,
                          "\xed\xa0\x80"sv,
                          "\xed\xbf\xbf"sv,
                          "\xe1\x80"sv,
                          "\xe1\x80\x7f"sv,
                          "\xf0\x80\x80\xaf"sv,
                          "\xf0\x8f\xbf\xbf"sv,
                          "\xf4\x90\x80\x80"sv,
                          "\xf1\x80\x80"sv,
                          "\xf5\x80\x80\x80"sv,
                          "\xff"sv,
                          "a\xe4z"sv}) {
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_EQ(utf8_character_bytes(text.substr(text.front() == 'a' ? 1 : 0)), 0U);
  }
}

}  // namespace
}  // namespace fencegate
