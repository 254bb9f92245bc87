#include "wire/pg_opening.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_view_literals;

std::string joined(const std::vector<pg_option>& settings) {
  std::string out;
  for (const pg_option& s : settings) {
    out += "[" + s.name + "=" + s.value + "]";
  }
  return out;
}

struct options_case {
  std::string_view options;
  std::string_view settings;
  std::string_view without_f_t;
};

// The settings were read back from PostgreSQL 15 behind a start with these options, where it accepts them.
const std::vector<options_case>& accepted() {
  static const std::vector<options_case> all{
      {"", "", ""},
      {" \t\n\v\f\r", "", ""},
      {"-c f.t=a=1", "[f.t=a=1]", ""},
      {"-cf.t=a", "[f.t=a]", ""},
      {"--f.t=a", "[f.t=a]", ""},
      {"--F.T=A", "[f.t=A]", ""},
      {"-c f-x.t=a", "[f_x.t=a]", "-c f-x.t=a"},
      {"-c -f.t=a", "[_f.t=a]", "-c -f.t=a"},
      {"-c f.t=", "[f.t=]", ""},
      {"-c f.t=a -c F.T=b", "[f.t=a][f.t=b]", ""},
      {"-e -c f.t=a", "[f.t=a]", "-e"},
      {"-ec f.t=a", "[f.t=a]", "-e"},
      {"-ecf.t=a -e", "[f.t=a]", "-e -e"},
      {"-e-f.t=a", "[f.t=a]", "-e"},
      {"-e- f.t=a", "[f.t=a]", "-e"},
      {"-\\e\\c f.t=a", "[f.t=a]", "-\\e"},
      {"-c f.t=a\\ b", "[f.t=a b]", ""},
      {"-c f.t=a\\\\b", "[f.t=a\\b]", ""},
      {"-c f.t=a\\", "[f.t=a]", ""},
      {"\\-c f.t=a", "[f.t=a]", ""},
      {"-\\c f\\.t=a", "[f.t=a]", ""},
      {"-c\tf.t=a\n", "[f.t=a]", ""},
      {"-c\vf.t=a\f", "[f.t=a]", ""},
      {"-c f.t=a\xA0"
       "b",
       "[f.t=a\xA0"
       "b]",
       ""},
      {"-S 64 -c f.t=a", "[f.t=a]", "-S 64"},
      {"-f s -c f.t=a -O", "[f.t=a]", "-f s -O"},
      {"-fs -O -c f.t=a", "[f.t=a]", "-fs -O"},
      {"-tpa -W 0 --f.t=a", "[f.t=a]", "-tpa -W 0"},
      {"-c x=1  -c f.t=a\t-c g.u=\\ 2", "[x=1][f.t=a][g.u= 2]", "-c x=1 -c g.u=\\ 2"},
      {"-c f.tt=a", "[f.tt=a]", "-c f.tt=a"},
      {"-c f.t=a -- ", "[f.t=a]", "--"},
  };
  return all;
}

// PostgreSQL refuses the connection. What it would have set does not matter, but nobody may trip over it.
const std::vector<options_case>& refused() {
  static const std::vector<options_case> all{
      {"-c", "", "-c"},
      {"-c f.t", "", "-c f.t"},
      {"--f.t", "", "--f.t"},
      {"-c f.t =a", "", "-c f.t =a"},
      {"-c =a", "[=a]", "-c =a"},
      {"-c \"f.t=a b\"", "[\"f.t=a]", "-c \"f.t=a b\""},
      {"-ef.t=a", "", "-ef.t=a"},
      {"-S -c f.t=a", "", "-S -c f.t=a"},
      {"-c f.t=a -S", "[f.t=a]", "-S"},
      {"foo -c f.t=a", "[f.t=a]", "foo"},
      {"- -c f.t=a", "[f.t=a]", "-"},
      {"\\ -c f.t=a", "", "\\ -c f.t=a"},
      {"-- -c f.t=a", "", "-- -c f.t=a"},
      {"-Z -c f.t=a", "", "-Z -c f.t=a"},
      {"-: -c f.t=a", "", "-: -c f.t=a"},
      {"-c f.t=a\0 -c g.u=b"sv, "[f.t=a]", ""},
      {"\\", "", "\\"},
  };
  return all;
}

TEST(PgOptions, AreReadAsTheServerReadsThem) {
  for (const auto* cases : {&accepted(), &refused()}) {
    for (const options_case& c : *cases) {
      EXPECT_EQ(joined(pg_settings_in_options(c.options)), c.settings) << c.options;
    }
  }
}

TEST(PgOptions, LoseOneSettingAndKeepTheRest) {
  for (const auto* cases : {&accepted(), &refused()}) {
    for (const options_case& c : *cases) {
      EXPECT_EQ(pg_options_without(c.options, "f.t"), c.without_f_t) << c.options;
      EXPECT_EQ(pg_options_without(c.options, "F.T"), c.without_f_t) << c.options;
    }
  }
}

TEST(PgOptions, WhatIsLeftSaysTheSameAsBefore) {
  for (const options_case& c : accepted()) {
    auto expected = pg_settings_in_options(c.options);
    std::erase_if(expected, [](const pg_option& s) { return s.name == "f.t"; });
    EXPECT_EQ(joined(pg_settings_in_options(pg_options_without(c.options, "f.t"))), joined(expected)) << c.options;
  }
}

}  // namespace
}  // namespace fencegate::wire
