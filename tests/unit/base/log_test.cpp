#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::log {
namespace {

struct line {
  level at;
  std::string message;
  std::vector<std::string> fields;

  friend bool operator==(const line&, const line&) = default;
};

std::vector<line> seen;

void record(level at, std::string_view message, const field* fields, std::size_t count) {
  line e{at, std::string(message), {}};
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
  EXPECT_EQ(seen, (std::vector<line>{{level::warn, "write rejected", {"gate=cache", "token=33"}}}));
}

TEST_F(Log, AnEventLeavesOutWhatIsMissing) {
  set_sink(record, level::info);
  struct token {
    std::int64_t n;
    [[nodiscard]] std::int64_t value() const { return n; }
  };
  const std::optional<token> none;
  const std::optional<token> some = token{34};
  event()
      .add("gate", "cache")
      .add("store", "")
      .add("mark", none)
      .add("seen", some)
      .write(level::error, "mark went back");
  EXPECT_EQ(seen, (std::vector<line>{{level::error, "mark went back", {"gate=cache", "seen=34"}}}));
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
