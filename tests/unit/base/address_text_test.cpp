#include "base/address_text.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

TEST(Address, ReadsEachForm) {
  EXPECT_EQ(*parse_address("127.0.0.1:6380"), (settings::address{"127.0.0.1", 6380, ""}));
  EXPECT_EQ(*parse_address("[::1]:6380"), (settings::address{"::1", 6380, ""}));
  EXPECT_EQ(*parse_address(":6380"), (settings::address{"::", 6380, ""}));
  EXPECT_EQ(*parse_address("localhost:65535"), (settings::address{"localhost", 65535, ""}));
  EXPECT_EQ(*parse_address("unix:/run/x.sock"), (settings::address{"", 0, "/run/x.sock"}));
}

TEST(Address, RejectsWhatCannotBeListenedOn) {
  const std::string path_too_long = "unix:/" + std::string(107, 'x');
  for (const auto& text : {std::string(""),
                           std::string("6380"),
                           std::string("host"),
                           std::string("host:"),
                           std::string("host:0"),
                           std::string("host:65536"),
                           std::string("host:x"),
                           std::string("::1:6380"),
                           std::string("[::1]"),
                           std::string("[host]:1"),
                           std::string("[]:1"),
                           std::string("10.0.0.256:1"),
                           std::string("127.1:1"),
                           std::string("a b:1"),
                           std::string("a/b:1"),
                           std::string("redis://h:1"),
                           std::string("unix:"),
                           std::string("unix:x.sock"),
                           std::string("127.0.0.1\0.evil:1", 17),
                           std::string("unix:/a\0b", 9),
                           path_too_long})
    EXPECT_FALSE(parse_address(text)) << text;
  EXPECT_TRUE(parse_address(path_too_long.substr(0, path_too_long.size() - 1)));
}

TEST(Address, IsWrittenAsItIsRead) {
  for (const auto* text : {"127.0.0.1:6380", "[::1]:6380", "unix:/run/x.sock"})
    EXPECT_EQ(to_string(*parse_address(text)), text);
}

TEST(Address, KnowsWhichListenersCollide) {
  const auto collide = [](const char* a, const char* b) { return overlap(*parse_address(a), *parse_address(b)); };
  EXPECT_TRUE(collide("127.0.0.1:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide(":1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("127.0.0.1:1", "0.0.0.0:1"));
  EXPECT_TRUE(collide("LOCALHOST:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("[::1]:1", "[0:0::1]:1"));
  EXPECT_TRUE(collide("[::ffff:127.0.0.1]:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("[0::0]:1", "127.0.0.1:1"));
  EXPECT_TRUE(collide("unix:/a", "unix:/a"));
  EXPECT_TRUE(collide("unix:/tmp/a", "unix://tmp/./x/../a"));
  EXPECT_FALSE(collide("127.0.0.1:1", "127.0.0.1:2"));
  EXPECT_FALSE(collide("127.0.0.1:1", "127.0.0.2:1"));
  EXPECT_FALSE(collide("unix:/a", "unix:/b"));
  EXPECT_FALSE(collide(":1", "unix:/a"));
}

}  // namespace
}  // namespace fencegate
