#include "gate/redis/pubsub.hpp"

#include <gtest/gtest.h>

namespace fencegate::gate::pubsub {
namespace {

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

std::string confirmation(std::string_view kind, std::string_view channel, int count) {
  return "*3\r\n" + bulk(kind) + bulk(channel) + ":" + std::to_string(count) + "\r\n";
}

TEST(PubSub, TellsMessagesFromReplies) {
  EXPECT_EQ(kind_of(bulk("message") + bulk("c") + bulk("m"), 3), message_kind::message);
  EXPECT_EQ(kind_of(bulk("pmessage") + bulk("p") + bulk("c") + bulk("m"), 4), message_kind::message);
  EXPECT_EQ(kind_of(bulk("smessage") + bulk("c") + bulk("m"), 3), message_kind::message);
  EXPECT_EQ(kind_of(bulk("subscribe") + bulk("c") + ":1\r\n", 3), message_kind::confirmation);
  EXPECT_EQ(kind_of(bulk("sunsubscribe") + "$-1\r\n:0\r\n", 3), message_kind::confirmation);
  EXPECT_EQ(kind_of(bulk("pong") + bulk(""), 2), message_kind::other);
  EXPECT_EQ(kind_of(bulk("message"), 1), message_kind::other);
  EXPECT_EQ(kind_of(":1\r\n", 1), message_kind::other);
  EXPECT_EQ(kind_of("", 0), message_kind::other);
}

TEST(PubSub, SaysWhenItCannotTellYet) {
  const std::string text = bulk("message") + bulk("c");
  for (std::size_t n = 0; n < text.size(); ++n)
    EXPECT_EQ(kind_of(std::string_view(text).substr(0, n), 3), message_kind::need_more) << n;
  EXPECT_EQ(kind_of(text, 3), message_kind::message);
}

TEST(PubSub, DoesNotWaitForAnEndlessKind) { EXPECT_EQ(kind_of("$100000000\r\nxxx", 3), message_kind::other); }

TEST(PubSub, KnowsInvalidationsOfBothProtocols) {
  EXPECT_EQ(kind_of(bulk("invalidate") + "*1\r\n" + bulk("k"), 2), message_kind::invalidation);
  EXPECT_EQ(kind_of(bulk("message") + bulk("__redis__:invalidate") + "*1\r\n" + bulk("k"), 3),
            message_kind::invalidation);
}

TEST(PubSub, TakesMarksOutOfInvalidations) {
  const std::string mark = bulk("fencegate:mark:{orders}");
  EXPECT_EQ(without_reserved_keys(">2\r\n" + bulk("invalidate") + "*2\r\n" + mark + bulk("k")),
            ">2\r\n" + bulk("invalidate") + "*1\r\n" + bulk("k"));
  EXPECT_EQ(without_reserved_keys(">2\r\n" + bulk("invalidate") + "*1\r\n" + mark), "");
  const std::string plain = ">2\r\n" + bulk("invalidate") + "*1\r\n" + bulk("k");
  EXPECT_EQ(without_reserved_keys(plain), plain);
  const std::string flush = ">2\r\n" + bulk("invalidate") + "_\r\n";  // everything
  EXPECT_EQ(without_reserved_keys(flush), flush);
  const std::string redirected = "*3\r\n" + bulk("message") + bulk("__redis__:invalidate");
  EXPECT_EQ(without_reserved_keys(redirected + "*2\r\n" + bulk("k") + mark), redirected + "*1\r\n" + bulk("k"));
}

TEST(PubSub, CountsChannelsAndPatternsTogetherAsRedisDoes) {
  subscription_counts counts;
  EXPECT_EQ(counts.confirmed(confirmation("subscribe", "a", 1)), 1);
  EXPECT_EQ(counts.confirmed(confirmation("psubscribe", "p*", 2)), 2);
  EXPECT_EQ(counts.confirmed(confirmation("subscribe", "b", 3)), 3);
  EXPECT_EQ(counts.unsubscribe_all('c'), 2u);
  EXPECT_EQ(counts.unsubscribe_all('p'), 1u);
  EXPECT_EQ(counts.confirmed(confirmation("unsubscribe", "a", 2)), 2);
  EXPECT_EQ(counts.unsubscribe_all('c'), 1u);
}

TEST(PubSub, CountsShardChannelsApart) {
  subscription_counts counts;
  EXPECT_EQ(counts.confirmed(confirmation("subscribe", "a", 1)), 1);
  EXPECT_EQ(counts.confirmed(confirmation("ssubscribe", "s", 1)), 2);
  EXPECT_EQ(counts.unsubscribe_all('s'), 1u);
  EXPECT_EQ(counts.confirmed(confirmation("sunsubscribe", "s", 0)), 1);
}

TEST(PubSub, UnsubscribingFromNothingIsConfirmedOnce) {
  subscription_counts counts;
  EXPECT_EQ(counts.unsubscribe_all('c'), 1u);
  EXPECT_EQ(counts.confirmed(confirmation("unsubscribe", "", 0)), 0);
}

}  // namespace
}  // namespace fencegate::gate::pubsub
