#include "wire/trace_parent.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fencegate::wire {
namespace {

const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

std::string_view of(const std::string& value) {
  static std::vector<header_field> fields;
  fields = {{"Host", "a"}, {"traceparent", value}};
  return trace_parent_of(fields);
}

TEST(TraceParent, IsTheValueOfItsField) {
  EXPECT_EQ(of(parent), parent);
  const std::vector<header_field> other_case{{"Traceparent", parent}};
  EXPECT_EQ(trace_parent_of(other_case), parent);
  EXPECT_EQ(trace_parent_of({}), "");
}

TEST(TraceParent, OfAVersionToComeMayHaveMoreBehindIt) {
  const std::string next = "01" + parent.substr(2);
  EXPECT_EQ(of(next), next);
  EXPECT_EQ(of(next + "-more"), next + "-more");
  EXPECT_EQ(of(next + "more"), "");
  EXPECT_EQ(of(next + "-" + std::string(1000, 'x')), "");
}

TEST(TraceParent, MalformedIsNone) {
  const std::vector<std::string> malformed{std::string(),
                                           std::string("00"),
                                           parent + "-00",
                                           parent.substr(1),
                                           parent + "0",
                                           "ff" + parent.substr(2),
                                           "0g" + parent.substr(2),
                                           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                                           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                                           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x"};
  for (const auto& one : malformed) EXPECT_EQ(of(one), "") << one;
}

TEST(TraceParent, TwoAreNone) {
  const std::vector<header_field> fields{{"traceparent", parent}, {"traceparent", parent}};
  EXPECT_EQ(trace_parent_of(fields), "");
}

}  // namespace
}  // namespace fencegate::wire
