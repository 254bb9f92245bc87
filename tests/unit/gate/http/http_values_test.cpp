// Where the values of an atomic route's statement come from.
#include "http_rig.hpp"

#include <gmock/gmock.h>

namespace fencegate::gate {
namespace {

using testing::ElementsAre;

class http_values : public http_rig {
 protected:
  // Asks with these parameters of the statement; → the status, 0 when it runs.
  int ask(std::vector<std::string> parameters, const std::string& target, const std::string& fields = "") {
    restart();
    host.asked.clear();
    gate_.routes.back().parameters = std::move(parameters);
    client("POST " + target + " HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n" + fields + "\r\n");
    return status_of(to_client());
  }
};

TEST_F(http_values, come_from_path_query_header_and_token) {
  EXPECT_EQ(ask({"{id}", "{query.when}", "{header.X-User}", "{token}", "a {id}: {header.X-User}"},
                "/entries/a%20b?x=1&when=now+or%20never", "X-User: me\r\n"),
            0);
  EXPECT_EQ(host.asked, "run");
  EXPECT_THAT(host.run_values, ElementsAre("a b", "now or never", "me", "34", "a a b: me"));
}

TEST_F(http_values, that_may_be_missing_are_null) {
  EXPECT_EQ(ask({"{query.when?}", "{header.X-User?}", "{query.empty?}"}, "/entries/7?empty="), 0);
  EXPECT_THAT(host.run_values, ElementsAre(std::nullopt, std::nullopt, ""));
  EXPECT_EQ(ask({"{query.when?}", "{header.X-User?}"}, "/entries/7?when=now", "X-User: me\r\n"), 0);
  EXPECT_THAT(host.run_values, ElementsAre("now", "me"));
  EXPECT_EQ(ask({"{query.when?}"}, "/entries/7?when=1&when=2"), 400);
  EXPECT_EQ(ask({"{header.X-User?}"}, "/entries/7", "X-User: a\r\nx-user: b\r\n"), 400);
}

TEST_F(http_values, that_are_missing_or_stand_twice_run_nothing) {
  EXPECT_EQ(ask({"{query.when}"}, "/entries/7"), 400);
  EXPECT_EQ(ask({"{query.when}"}, "/entries/7?when=1&when=2"), 400);
  EXPECT_EQ(ask({"{header.X-User}"}, "/entries/7"), 400);
  EXPECT_EQ(ask({"{header.X-User}"}, "/entries/7", "X-User: a\r\nx-user: b\r\n"), 400);
  EXPECT_EQ(host.asked, "");
}

}  // namespace
}  // namespace fencegate::gate
