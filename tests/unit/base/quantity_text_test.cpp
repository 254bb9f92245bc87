#include "base/quantity_text.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using namespace std::chrono_literals;

TEST(Duration, ReadsEachUnit) {
  EXPECT_EQ(*parse_duration("500ms"), 500ms);
  EXPECT_EQ(*parse_duration("25s"), 25s);
  EXPECT_EQ(*parse_duration("5m"), 5min);
  EXPECT_EQ(*parse_duration("720h"), 720h);
  EXPECT_EQ(*parse_duration("0"), 0ms);
  EXPECT_EQ(*parse_duration("0s"), 0ms);
}

TEST(Duration, IsWrittenInItsLargestUnit) {
  for (const std::string_view text : {"0h", "1ms", "1500ms", "90s", "10m", "720h"})
    EXPECT_EQ(write_duration(*parse_duration(text)), text);
  EXPECT_EQ(write_duration(60'000ms), "1m");
}

TEST(Duration, RejectsWhatIsNoneOrTooLong) {
  for (const auto* text : {"", "25", "s", "-1s", "+1s", "1.5s", "1 s", "1S", "1sec", "1d", "721h", "2592001s",
                           "9223372036854775807h", "99999999999999999999s"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Count, ReadsDecimalDigitsWithinBounds) {
  EXPECT_EQ(*parse_count("0", 0, 5), 0);
  EXPECT_EQ(*parse_count("9223372036854775807", 0, INT64_MAX), INT64_MAX);
  for (const auto* text : {"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "6", "9223372036854775808"})
    EXPECT_FALSE(parse_count(text, 0, 5)) << text;
}

}  // namespace
}  // namespace fencegate
