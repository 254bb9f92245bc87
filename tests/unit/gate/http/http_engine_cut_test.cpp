// Forwards whose hold was ended: by whom, and what the client is told.
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class http_cut : public http_rig {
 protected:
  http_cut() {
    client("PUT /orders/7 HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\nContent-Length: 5\r\n\r\nhello");
    host.admit();
    engine().on_connected();
    to_upstream();
  }

  // To a raise to 35, or for a reason that nobody knows.
  void lose_hold(bool to_a_raise = true) {
    engine().on_hold_lost(std::nullopt);
    engine().on_hold_lost(lost_hold(to_a_raise));
  }
};

TEST_F(http_cut, a_cut_hold_closes_the_upstream_and_says_that_nobody_knows) {
  lose_hold();
  EXPECT_EQ(host.disconnects, 1);
  EXPECT_EQ(host.releases, 1);
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 504);
  EXPECT_THAT(said, HasSubstr("\"applied\":\"unknown\""));
  EXPECT_THAT(said, AllOf(HasSubstr("a newer holder has taken over"), HasSubstr("\"token\":34,\"mark\":35"),
                          HasSubstr("Fencing-Mark: 35\r\n")));
}

TEST_F(http_cut, a_cut_hold_that_nobody_can_explain_names_no_mark) {
  engine().on_hold_lost(std::nullopt);
  EXPECT_EQ(host.disconnects, 1) << "at once";
  EXPECT_EQ(to_client(), "");
  EXPECT_TRUE(engine().blocked());
  engine().on_hold_lost(lost_hold(false));
  const auto said = to_client();
  EXPECT_EQ(status_of(said), 504);
  EXPECT_THAT(said, AllOf(HasSubstr("by a newer holder or because its store went away"), HasSubstr("\"token\":34"),
                          Not(HasSubstr("\"mark\""))));
  EXPECT_THAT(said, Not(HasSubstr("Fencing-Mark")));
}

TEST_F(http_cut, a_client_that_leaves_while_its_cut_is_explained_is_no_trouble) {
  engine().on_hold_lost(std::nullopt);
  engine().on_client_end();
  engine().on_hold_lost(lost_hold(true));
  EXPECT_EQ(status_of(to_client()), 504);
  EXPECT_TRUE(engine().closing());
  EXPECT_EQ(host.releases, 1);
}

}  // namespace
}  // namespace fencegate::gate
