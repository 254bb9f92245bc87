#include "backend/raise_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RaiseLine : public testing::Test {
 protected:
  using time_point = raise_line::time_point;

  static raise_line::claims claims_of(const std::vector<std::string>& resources) {
    raise_line::claims out;
    for (const auto& one : resources) out.push_back({one, fence::token(34)});
    return out;
  }
  // The wish's name is its statement.
  bool add(const std::string& name, const std::vector<std::string>& resources, raise_line::has_left left = nullptr,
           int until = 10) {
    return line_.add({claims_of(resources), {{name}}, std::move(left), nullptr, at(until)});
  }
  // Those that begin now.
  std::vector<std::string> begin() {
    std::vector<std::string> out;
    while (const auto one = line_.next()) out.push_back(one->statements[0].sql);
    return out;
  }
  void end(const std::vector<std::string>& resources) { line_.ended(claims_of(resources)); }
  std::vector<std::string> late(int now) { return names_of(line_.late(at(now))); }
  static std::vector<std::string> names_of(const std::vector<raise_line::wish>& wishes) {
    std::vector<std::string> out;
    for (const auto& one : wishes) out.push_back(one.statements[0].sql);
    return out;
  }
  static time_point at(int second) { return time_point() + std::chrono::seconds(second); }

  raise_line line_;
};

TEST_F(RaiseLine, EachResourceWaitsForItself) {
  EXPECT_TRUE(add("a1", {"a"}));
  EXPECT_FALSE(add("a2", {"a"}));
  EXPECT_TRUE(add("b1", {"b"}));
  EXPECT_THAT(begin(), ElementsAre("a1", "b1"));
  EXPECT_TRUE(add("c1", {"c"}));
  EXPECT_THAT(begin(), ElementsAre("c1"));
  end({"b"});
  EXPECT_THAT(begin(), IsEmpty());
  end({"a"});
  EXPECT_THAT(begin(), ElementsAre("a2"));
  EXPECT_TRUE(line_.empty());
}

TEST_F(RaiseLine, NobodyOvertakesWhoWantsTheSame) {
  add("a", {"a"});
  EXPECT_FALSE(add("ab", {"a", "b"}));
  EXPECT_FALSE(add("b", {"b"}));
  EXPECT_THAT(begin(), ElementsAre("a"));
  end({"a"});
  EXPECT_THAT(begin(), ElementsAre("ab"));
  EXPECT_FALSE(add("b2", {"b"}));
  end({"a", "b"});
  EXPECT_THAT(begin(), ElementsAre("b"));
}

TEST_F(RaiseLine, WhoHasLeftIsForgotten) {
  const auto left = std::make_shared<std::atomic<bool>>(false);
  add("a1", {"a"});
  EXPECT_THAT(begin(), ElementsAre("a1"));
  add("a2", {"a"}, left);
  add("a3", {"a"});
  *left = true;
  end({"a"});
  EXPECT_THAT(begin(), ElementsAre("a3"));
  end({"a"});
  EXPECT_TRUE(add("a4", {"a"}, left));
  EXPECT_THAT(late(9), IsEmpty());
  EXPECT_TRUE(line_.empty());
  EXPECT_TRUE(add("a5", {"a"}));
}

TEST_F(RaiseLine, NobodyStandsInItForEver) {
  add("a1", {"a"});
  EXPECT_THAT(begin(), ElementsAre("a1"));
  add("a2", {"a"}, nullptr, 10);
  add("a3", {"a"}, nullptr, 20);
  EXPECT_THAT(late(9), IsEmpty());
  EXPECT_THAT(late(10), ElementsAre("a2"));
  end({"a"});
  EXPECT_THAT(begin(), ElementsAre("a3"));
  EXPECT_THAT(late(30), IsEmpty());  // it is at it
}

TEST_F(RaiseLine, AllLeaveAtTheEnd) {
  add("a1", {"a"});
  add("a2", {"a"});
  EXPECT_THAT(begin(), ElementsAre("a1"));
  add("b", {"b"});
  EXPECT_THAT(names_of(line_.all()), ElementsAre("a2", "b"));
  EXPECT_TRUE(line_.empty());
  EXPECT_TRUE(add("b2", {"b"}));
  EXPECT_FALSE(add("a3", {"a"}));  // a1 is still at it
}

}  // namespace
}  // namespace fencegate::backend
