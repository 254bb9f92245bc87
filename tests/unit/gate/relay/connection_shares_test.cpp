#include "gate/relay/connection_shares.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::gate {
namespace {

using testing::HasSubstr;
using testing::Optional;

fence::claims_list tag(const std::string& text) { return *fence::parse_tag(text); }

struct room {
  explicit room(std::size_t connections_max) : all(std::make_shared<connection_shares>("db", connections_max)) {}

  std::shared_ptr<connection_shares> all;
  std::vector<std::unique_ptr<connection_shares::part>> parts;

  std::optional<std::string> enter(const std::string& text) {
    parts.push_back(std::make_unique<connection_shares::part>(all));
    auto why = parts.back()->take(tag(text));
    if (why) parts.pop_back();
    return why;
  }
};

TEST(ConnectionShares, OneTagLeavesAnEighth) {
  room r(16);
  for (int i = 0; i < 14; ++i) EXPECT_EQ(r.enter("orders=33"), std::nullopt) << i;
  EXPECT_THAT(r.enter("orders=33"), Optional(HasSubstr("gate db: 14 have the tag orders=33, the others are for")));
  EXPECT_EQ(r.enter("stock=33"), std::nullopt);
  EXPECT_NE(r.enter("bids=1,orders=33"), std::nullopt);  // and is not counted for bids
  EXPECT_EQ(r.all->tags(), 2U);
}

TEST(ConnectionShares, TheNextHolderOfTheResourceHasRoom) {
  room r(8);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(r.enter("orders=33"), std::nullopt);
  EXPECT_NE(r.enter("orders=33"), std::nullopt);
  EXPECT_EQ(r.enter("orders=34"), std::nullopt);
}

TEST(ConnectionShares, WhoLeavesMakesRoom) {
  room r(8);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(r.enter("orders=1"), std::nullopt);
  EXPECT_NE(r.enter("orders=1"), std::nullopt);
  r.parts.pop_back();
  EXPECT_EQ(r.enter("orders=1"), std::nullopt);
  EXPECT_EQ(r.parts.back()->take(tag("stock=1")), std::nullopt);
  EXPECT_EQ(r.enter("orders=1"), std::nullopt);
  EXPECT_NE(r.parts[6]->take(tag("orders=1")), std::nullopt);
  EXPECT_EQ(r.all->tags(), 2U);  // it is counted for stock as before
  *r.parts[0] = {};
  EXPECT_EQ(r.parts[6]->take(tag("orders=1")), std::nullopt);
  EXPECT_EQ(r.all->tags(), 1U);
  r.parts.clear();
  EXPECT_EQ(r.all->tags(), 0U);
}

TEST(ConnectionShares, WhoHasAPlaceKeepsItWithAnotherTagBesideAndWithoutATag) {
  room r(8);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(r.enter("orders=1"), std::nullopt);
  EXPECT_EQ(r.parts[0]->take({}), std::nullopt);
  EXPECT_EQ(r.parts[0]->take(tag("orders=1,stock=3")), std::nullopt);
  EXPECT_NE(r.enter("orders=1"), std::nullopt);
}

TEST(ConnectionShares, FewConnectionsAreForAll) {
  room r(7);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(r.enter("orders=1"), std::nullopt);
  EXPECT_EQ(connection_shares("db", 1).most(), 1U);
  EXPECT_EQ(connection_shares("db", 10'000).most(), 8'750U);
  connection_shares::part of_none;
  EXPECT_EQ(of_none.take(tag("orders=1")), std::nullopt);
}

TEST(ConnectionShares, ManyThreadsAtOnce) {
  const auto all = std::make_shared<connection_shares>("db", 8);
  const auto come_and_go = [&all](const std::string& text) {
    for (int i = 0; i < 2'000; ++i) {
      connection_shares::part one(all);
      EXPECT_EQ(one.take(tag(text)), std::nullopt);
      EXPECT_EQ(one.take(tag(text + ",more=1")), std::nullopt);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(come_and_go, "r" + std::to_string(i % 2) + "=1");
  }
  EXPECT_EQ(all->tags(), 0U);
}

}  // namespace
}  // namespace fencegate::gate
