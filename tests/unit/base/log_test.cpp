#include "base/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fencegate::log {
namespace {

struct event {
  level at;
  std::string message;
  std::vector<std::string> fields;

  friend bool operator==(const event&, const event&) = default;
};

std::vector<event> seen;

void record(level at, std::string_view message, const field* fields, std::size_t count) {
  event e{at, std::string(message), {}};
  for (const field* f = fields; f != fields + count; ++f) {
    const auto* text = std::get_if<std::string_view>(&f->value);
    e.fields.push_back(std::string(f->key) + "=" + (text ? std::string(*text) : std::to_string(std::get<1>(f->value))));
  }
  seen.push_back(e);
}

class Log : public testing::Test {
 protected:
  void SetUp() override { seen.clear(); }
  void TearDown() override { set_sink(nullptr, level::info); }
};

TEST_F(Log, IsOffWithoutASink) {
  set_sink(nullptr, level::debug);
  EXPECT_FALSE(enabled(level::error));
  write(level::error, "nobody listens");
  EXPECT_TRUE(seen.empty());
}

TEST_F(Log, PassesMessageAndFieldsInOrder) {
  set_sink(record, level::info);
  write(level::warn, "write rejected", {{"gate", "cache"}, {"token", std::int64_t{33}}});
  EXPECT_EQ(seen, (std::vector<event>{{level::warn, "write rejected", {"gate=cache", "token=33"}}}));
}

TEST_F(Log, DropsWhatIsBelowTheLeastLevel) {
  set_sink(record, level::warn);
  EXPECT_FALSE(enabled(level::info));
  EXPECT_TRUE(enabled(level::warn));
  EXPECT_TRUE(enabled(level::error));
  write(level::debug, "no");
  write(level::info, "no");
  write(level::warn, "yes");
  write(level::error, "yes");
  EXPECT_EQ(seen.size(), 2u);
}

}  // namespace
}  // namespace fencegate::log
