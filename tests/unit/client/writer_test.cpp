#include "client/writer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fencegate::client {
namespace {

std::string stat_of(std::string_view name, std::string_view ticks) {
  return "4711 (" + std::string(name) + ") S 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 " + std::string(ticks) +
         " 9 10 11\n";
}

TEST(ProcessStart, IsInMillisecondsRoundedDown) {
  EXPECT_EQ(*start_of(stat_of("app", "12345"), 100), 123'450);
  EXPECT_EQ(*start_of(stat_of("app", "1"), 300), 3);
  EXPECT_EQ(*start_of(stat_of("app", "0"), 100), 0);
}

TEST(ProcessStart, OfAProgramWithAnyName) {
  for (const auto* name : {"", "a b", ")", ") S 1 1 1 1 1 1 1", "((", "a\nb"})
    EXPECT_EQ(*start_of(stat_of(name, "70"), 100), 700) << name;
}

TEST(ProcessStart, IsNotGuessed) {
  for (const auto& stat : {std::string(), std::string("4711 (app"), std::string("4711 (app) S 1 2 3"),
                           stat_of("app", "-5"), stat_of("app", "x"), stat_of("app", "9223372036854775807")})
    EXPECT_FALSE(start_of(stat, 100)) << stat;
  EXPECT_FALSE(start_of(stat_of("app", "70"), 0));
}

}  // namespace
}  // namespace fencegate::client
