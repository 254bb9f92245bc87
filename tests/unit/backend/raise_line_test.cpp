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
    const auto statements = [name](std::chrono::milliseconds) { return std::vector<pg_statement>{{name}}; };
    return line_.add({claims_of(resources), statements, std::move(left), nullptr, at(until)});
  }
  // Those that begin now.
  std::vector<std::string> begin() {
    std::vector<std::string> out;
    while (auto one = line_.next()) {
      out.push_back(name_of(*one));
      at_it_.insert_or_assign(out.back(), std::move(*one));
    }
    return out;
  }
  // Its turn is over.
  void again(const std::string& name) { line_.again(std::move(at_it_.extract(name).mapped())); }
  void end(const std::vector<std::string>& resources) { line_.ended(claims_of(resources)); }
  std::vector<std::string> late(int now) { return names_of(line_.late(at(now))); }
  static std::vector<std::string> names_of(const std::vector<raise_line::wish>& wishes) {
    std::vector<std::string> out;
    for (const auto& one : wishes) out.push_back(name_of(one));
    return out;
  }
  static std::string name_of(const raise_line::wish& one) { return one.statements({})[0].sql; }
  static time_point at(int second) { return time_point() + std::chrono::seconds(second); }

  raise_line line_;
  std::map<std::string, raise_line::wish> at_it_;
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

TEST_F(RaiseLine, WhoHasHadATurnLetsOthersGoFirst) {
  add("a1", {"a"});
  add("b1", {"b"});
  EXPECT_THAT(begin(), ElementsAre("a1", "b1"));
  add("c", {"c"});
  again("a1");
  again("b1");
  add("d", {"d"});
  EXPECT_THAT(begin(), ElementsAre("c", "d", "b1", "a1"));
  again("b1");
  again("a1");
  again("c");
  EXPECT_THAT(begin(), ElementsAre("c", "a1", "b1")) << "with one turn, and with two";
}

TEST_F(RaiseLine, WhoHasHadATurnIsStillInFrontOfThoseThatWantTheSame) {
  add("a1", {"a"});
  EXPECT_THAT(begin(), ElementsAre("a1"));
  add("ab", {"a", "b"});
  add("b", {"b"});
  add("c", {"c"});
  again("a1");
  EXPECT_THAT(begin(), ElementsAre("c", "a1"));
  end({"a"});
  EXPECT_THAT(begin(), ElementsAre("ab"));
  again("ab");
  EXPECT_THAT(begin(), ElementsAre("ab")) << "nor do they overtake it by their fewer turns";
  end({"a", "b"});
  EXPECT_THAT(begin(), ElementsAre("b"));
}

TEST_F(RaiseLine, WhoHasHadATurnLeavesItLikeOthers) {
  const auto left = std::make_shared<std::atomic<bool>>(false);
  add("a1", {"a"}, left);
  add("b1", {"b"}, nullptr, 10);
  EXPECT_THAT(begin(), ElementsAre("a1", "b1"));
  again("a1");
  again("b1");
  *left = true;
  EXPECT_THAT(late(9), IsEmpty());
  EXPECT_THAT(late(10), ElementsAre("b1"));
  EXPECT_TRUE(line_.empty());
  EXPECT_TRUE(add("a2", {"a"}));
  EXPECT_TRUE(add("b2", {"b"}));
  EXPECT_THAT(begin(), ElementsAre("a2", "b2"));
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
