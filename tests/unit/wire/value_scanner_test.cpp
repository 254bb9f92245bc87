#include "base/limits.hpp"
#include "split_input.hpp"
#include "wire/resp_reply.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

using testing::ElementsAre;

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

// Follows a stream of replies as a link does: "<type> <extent>" for each value, then what is left or wrong.
std::vector<std::string> follow_pieces(const std::vector<std::string_view>& pieces) {
  std::vector<std::string> seen;
  value_scanner scanner;
  std::string held;
  std::size_t extent = 0;
  char type = 0;
  for (const std::string_view piece : pieces) {
    held += piece;
    for (;;) {
      std::size_t consumed = 0;
      bool more = false;
      if (scanner.done()) {
        reply_head head;
        const head_status status = read_head(held, head);
        if (status == head_status::need_more) {
          break;
        }
        if (status == head_status::malformed) {
          seen.emplace_back("malformed");
          return seen;
        }
        type = head.type;
        extent = 0;
        consumed = head.bytes;
        scanner.begin(head);
      } else {
        const value_scanner::step step = scanner.advance(held);
        if (step.what == value_scanner::status::malformed) {
          seen.emplace_back("malformed");
          return seen;
        }
        more = step.what == value_scanner::status::more;
        consumed = step.consumed;
      }
      extent += consumed;
      held.erase(0, consumed);
      if (scanner.done()) {
        seen.push_back(std::string(1, type) + " " + std::to_string(extent));
      }
      if (more) {
        break;
      }
    }
  }
  if (!scanner.done() || !held.empty()) {
    seen.emplace_back("more");
  }
  return seen;
}

std::vector<std::string> follow(std::string_view input) { return follow_pieces({input}); }

TEST(ValueScanner, FollowsSimpleValuesAndBulks) {
  EXPECT_THAT(follow("+OK\r\n:1\r\n$5\r\nhello\r\n$0\r\n\r\n$-1\r\n_\r\n"),
              ElementsAre("+ 5", ": 4", "$ 11", "$ 6", "$ 5", "_ 3"));
}

TEST(ValueScanner, ABulksPayloadIsNotLookedAt) {
  EXPECT_THAT(follow("$9\r\n\r\n*1\r\n$-\r\r\n+OK\r\n"), ElementsAre("$ 15", "+ 5"));
}

TEST(ValueScanner, FollowsNestedAggregates) {
  const std::string_view input = "*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n*-1\r\n+OK\r\n";
  EXPECT_THAT(follow(input), ElementsAre("* " + std::to_string(input.size() - 5), "+ 5"));
}

TEST(ValueScanner, MapsHaveTwiceTheirCount) {
  EXPECT_THAT(follow("%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n+OK\r\n"), ElementsAre("% 27", "+ 5"));
  EXPECT_THAT(follow("%1\r\n+a\r\n"), ElementsAre("more"));
  EXPECT_THAT(follow("~2\r\n:1\r\n:2\r\n+OK\r\n"), ElementsAre("~ 12", "+ 5"));
}

TEST(ValueScanner, EmptyAggregatesAreCompleteAtOnce) {
  EXPECT_THAT(follow("*0\r\n%0\r\n~0\r\n>0\r\n|0\r\n"), ElementsAre("* 4", "% 4", "~ 4", "> 4", "| 4"));
}

TEST(ValueScanner, APushBetweenElementsIsNotAnElement) {
  EXPECT_THAT(follow("*2\r\n+OK\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n:1\r\n+OK\r\n"), ElementsAre("* 41", "+ 5"));
}

TEST(ValueScanner, APushInsideOfAnInnerArrayBelongsToNobody) {
  EXPECT_THAT(follow("*2\r\n*2\r\n:1\r\n>1\r\n+x\r\n:2\r\n>1\r\n+y\r\n:3\r\n+OK\r\n"), ElementsAre("* 36", "+ 5"));
}

TEST(ValueScanner, AnAttributeInsideIsNotAnElement) {
  EXPECT_THAT(follow("*2\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n:2\r\n+OK\r\n"), ElementsAre("* 26", "+ 5"));
}

TEST(ValueScanner, AnAttributeAtTheTopStandsAlone) {
  EXPECT_THAT(follow("|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n"), ElementsAre("| 14", "$ 7"));
}

TEST(ValueScanner, FollowsVerbatimStringsAndBulkErrors) {
  EXPECT_THAT(follow("=8\r\ntxt:some\r\n!5\r\nERR x\r\n"), ElementsAre("= 14", "! 11"));
}

TEST(ValueScanner, DemandsTheCrlfBehindABulk) {
  EXPECT_THAT(follow("$1\r\naxx"), ElementsAre("malformed"));
  EXPECT_THAT(follow("$1\r\na\rx"), ElementsAre("malformed"));
  EXPECT_THAT(follow("$0\r\n+OK\r\n"), ElementsAre("malformed"));
  EXPECT_THAT(follow("*2\r\n$1\r\na\n\n"), ElementsAre("malformed"));
}

TEST(ValueScanner, RefusesABadHeadInside) {
  EXPECT_THAT(follow("*2\r\n:1\r\n?"), ElementsAre("malformed"));
  EXPECT_THAT(follow("*2\r\n$-2\r\n"), ElementsAre("malformed"));
  EXPECT_THAT(follow("*1\r\n%-1\r\n"), ElementsAre("malformed"));
}

TEST(ValueScanner, LimitsTheDepth) {
  const std::size_t deepest = limits::resp_relayed_depth_max;
  const std::string fits = repeated("*1\r\n", deepest) + ":1\r\n";
  EXPECT_THAT(follow(fits), ElementsAre("* " + std::to_string(fits.size())));
  EXPECT_THAT(follow(repeated("*1\r\n", deepest + 1)), ElementsAre("malformed"));
  EXPECT_THAT(follow(repeated("|1\r\n", deepest + 1)), ElementsAre("malformed"));
  EXPECT_THAT(follow(repeated(">1\r\n", 100'000)), ElementsAre("malformed"));
}

TEST(ValueScanner, FollowsTheSameHoweverTheInputIsCut) {
  for (const std::string_view input :
       {"+OK\r\n+QUEUED\r\n*2\r\n:1\r\n$1\r\na\r\n", "%1\r\n$3\r\nkey\r\n*2\r\n#t\r\n,1.5\r\n_\r\n",
        "|1\r\n+a\r\n:1\r\n>2\r\n+p\r\n:1\r\n*1\r\n|1\r\n+b\r\n(1\r\n=5\r\ntxt:a\r\n",
        "*2\r\n:1\r\n>1\r\n+x\r\n:2\r\n-ERR\r\n", "$1\r\naxx", "*1\r\n+a\nb\r\n", "*2\r\n$5\r\nhel",
        "*1\r\n$-1\r\n*-1\r\n!3\r\nabc\r\n"}) {
    const std::vector<std::string> whole = follow(input);
    ASSERT_FALSE(whole.empty());
    test::for_each_split(input, [&](const auto& pieces) { EXPECT_EQ(follow_pieces(pieces), whole) << input; });
  }
}

TEST(ValueScanner, FollowsABulkLargerThanAnyRequest) {
  reply_head head;
  ASSERT_EQ(read_head("$3000000000\r\n", head), head_status::complete);
  value_scanner scanner;
  scanner.begin(head);
  const std::string piece(1'000'000, 'x');
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(scanner.advance(piece).what, value_scanner::status::more);
  }
  const value_scanner::step last = scanner.advance("\r\n+OK\r\n");
  EXPECT_EQ(last.what, value_scanner::status::complete);
  EXPECT_EQ(last.consumed, 2U);
}

TEST(ValueScanner, StartsAfreshAfterAnUnfinishedValue) {
  value_scanner scanner;
  reply_head head;
  ASSERT_EQ(read_head("*5\r\n", head), head_status::complete);
  scanner.begin(head);
  EXPECT_FALSE(scanner.done());
  ASSERT_EQ(read_head("+OK\r\n", head), head_status::complete);
  scanner.begin(head);
  EXPECT_TRUE(scanner.done());
}

}  // namespace
}  // namespace fencegate::wire
