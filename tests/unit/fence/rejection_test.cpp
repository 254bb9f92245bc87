#include "fence/rejection.hpp"

#include "fence/printable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fencegate::fence {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

rejection make(reason why, std::optional<std::int64_t> presented = {}, std::optional<std::int64_t> mark = {},
               std::string detail = {}) {
  rejection r{.why = why, .resource = "orders", .presented = {}, .mark = {}, .detail = std::move(detail)};
  if (presented) r.presented = token(*presented);
  if (mark) r.mark = token(*mark);
  return r;
}

constexpr reason all_reasons[] = {reason::stale, reason::missing,     reason::malformed, reason::equal,
                                  reason::jump,  reason::unavailable, reason::refused};
static_assert(std::size(all_reasons) == reasons);

TEST(RejectionTerms, AreTheContract) {
  struct row {
    reason why;
    std::string_view name;
    int http;
    std::string_view redis;
    std::string_view sqlstate;
  };
  const row rows[] = {
      {reason::stale, "stale", 412, "FENCED", "ZF001"},
      {reason::missing, "missing", 428, "FENCEMISSING", "ZF002"},
      {reason::malformed, "malformed", 400, "FENCEBAD", "ZF003"},
      {reason::equal, "equal", 409, "FENCEUSED", "ZF004"},
      {reason::jump, "jump", 403, "FENCEJUMP", "ZF005"},
      {reason::unavailable, "unavailable", 503, "FENCEDOWN", "ZF006"},
      {reason::refused, "refused", 403, "FENCEDENY", "ZF007"},
  };
  static_assert(std::size(rows) == reasons);
  for (const auto& r : rows) {
    const auto& terms = terms_of(r.why);
    EXPECT_EQ(terms.name, r.name);
    EXPECT_EQ(terms.http_status, r.http) << r.name;
    EXPECT_EQ(terms.redis_code, r.redis);
    EXPECT_EQ(terms.sqlstate, r.sqlstate);
    EXPECT_FALSE(terms.title.empty());
  }
}

// Clients retry on these by themselves.
TEST(RejectionTerms, NeverLookLikeSomethingToRetry) {
  std::set<std::string_view> codes;
  for (const auto why : all_reasons) {
    const auto& terms = terms_of(why);
    codes.insert(terms.redis_code);
    for (const auto* retried :
         {"TRYAGAIN", "LOADING", "READONLY", "CLUSTERDOWN", "MOVED", "ASK", "BUSY", "MASTERDOWN"}) {
      EXPECT_NE(terms.redis_code, retried);
    }
    EXPECT_FALSE(terms.sqlstate.starts_with("08") || terms.sqlstate.starts_with("40"));
    EXPECT_EQ(terms.sqlstate.size(), 5u);
  }
  EXPECT_EQ(codes.size(), std::size_t{reasons});
}

TEST(RedisError, OfEveryReason) {
  EXPECT_EQ(redis_error(make(reason::stale, 33, 34)), "-FENCED token 33 of orders is below mark 34; not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::missing)),
            "-FENCEMISSING a write needs a fencing token for orders (put fence:RESOURCE=TOKEN into the client name, or "
            "send FENCE SET RESOURCE TOKEN); not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::malformed, {}, {}, "'034' is not a fencing token")),
            "-FENCEBAD no usable fencing token for orders: '034' is not a fencing token; not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::equal, 34, 34)),
            "-FENCEUSED token 34 of orders was used already (equal_token: reject); not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::jump, 900, 34, "at most 100")),
            "-FENCEJUMP token 900 of orders exceeds mark 34, at most 100; not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::unavailable, {}, {}, "timed out")),
            "-FENCEDOWN the mark of orders could not be checked: timed out; not applied\r\n");
  EXPECT_EQ(
      redis_error(
          {.why = reason::refused, .resource = "", .presented = {}, .mark = {}, .detail = "FLUSHALL removes marks"}),
      "-FENCEDENY FLUSHALL removes marks; not applied\r\n");
}

TEST(RedisError, MissingTakesAdviceFromDetail) {
  EXPECT_EQ(redis_error(make(reason::missing, {}, {}, "use FENCE CALL")),
            "-FENCEMISSING a write needs a fencing token for orders (use FENCE CALL); not applied\r\n");
}

TEST(RedisError, NumbersAreExact) {
  EXPECT_EQ(redis_error(make(reason::stale, 9007199254740992, 9007199254740993)),
            "-FENCED token 9007199254740992 of orders is below mark 9007199254740993; not applied\r\n");
  EXPECT_EQ(redis_error(make(reason::stale, 0, 9223372036854775807)),
            "-FENCED token 0 of orders is below mark 9223372036854775807; not applied\r\n");
}

TEST(Describe, NamesEveryKnownFactAndSaysNotApplied) {
  for (const auto why : all_reasons) {
    const auto text = describe(make(why, 7001, why == reason::equal ? 7001 : 8002, "because of this"));
    EXPECT_THAT(text, HasSubstr("orders"));
    EXPECT_THAT(text, HasSubstr("7001"));
    EXPECT_THAT(text, HasSubstr(why == reason::equal ? "7001" : "8002"));
    EXPECT_THAT(text, EndsWith("; not applied"));
    EXPECT_THAT(text, HasSubstr("because of this"));
  }
}

TEST(Describe, ReadsWellWithoutFacts) {
  EXPECT_EQ(describe({.why = reason::stale, .resource = "", .presented = {}, .mark = {}, .detail = ""}),
            "the token is below the mark; not applied");
  EXPECT_EQ(describe({.why = reason::missing, .resource = "", .presented = {}, .mark = {}, .detail = ""}),
            "a write needs a fencing token; not applied");
  EXPECT_EQ(describe({.why = reason::malformed, .resource = "", .presented = {}, .mark = {}, .detail = ""}),
            "no usable fencing token; not applied");
  EXPECT_EQ(describe({.why = reason::unavailable, .resource = "", .presented = {}, .mark = {}, .detail = ""}),
            "the mark could not be checked; not applied");
  EXPECT_EQ(describe({.why = reason::refused, .resource = "", .presented = {}, .mark = {}, .detail = ""}),
            "this command is refused; not applied");
}

TEST(Describe, TokenAndMarkOfAnUncheckedWriteAreShown) {
  EXPECT_EQ(describe(make(reason::unavailable, 34, {}, "refused")),
            "the mark of orders could not be checked: refused (token 34); not applied");
  EXPECT_EQ(describe(make(reason::missing, {}, 34)), "a write needs a fencing token for orders (mark 34); not applied");
}

TEST(Describe, AMissingTokenIsMissedByWhatWasTried) {
  auto r = make(reason::missing, {}, {}, "it was lost");
  r.at = attempt::read;
  EXPECT_EQ(describe(r), "a read needs a fencing token for orders (it was lost); not applied");
  r.at = attempt::raise;
  EXPECT_EQ(describe(r), "a raise of a mark needs a fencing token for orders (it was lost); not applied");
  EXPECT_EQ(describe({reason::missing, {}, {}, {}, "this connection brings none", attempt::connection}),
            "a connection through this gate needs a fencing token, and this connection brings none; not applied");
}

// A backend's error text or a captured key may hold anything; the client must see one line.
TEST(Describe, HostileBytesCannotEndTheLine) {
  std::string every_byte;
  for (int b = 0; b < 256; ++b) every_byte += static_cast<char>(b);
  for (const auto why : all_reasons) {
    auto r = make(why, 1, 2, every_byte);
    r.resource = "a\r\n+OK" + every_byte;
    const auto line = redis_error(r);
    ASSERT_THAT(line, EndsWith("\r\n"));
    EXPECT_THAT(line, StartsWith("-" + std::string(terms_of(why).redis_code) + " "));
    for (const char c : std::string_view(line).substr(0, line.size() - 2)) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
  }
}

TEST(Describe, ResourceFromAKeyCannotForgeTheSentence) {
  auto r = make(reason::stale, 1, 2);
  r.resource = "x was applied; (ok)";
  EXPECT_EQ(describe(r), "token 1 of x?was?applied???ok? is below mark 2; not applied");
}

TEST(Describe, IsShortWhateverItIsMadeOf) {
  for (const auto why : all_reasons) {
    auto r = make(why, 1, 2, std::string(1 << 20, 'd'));
    r.resource = std::string(1 << 20, 'r');
    EXPECT_LT(describe(r).size(), 1024u);
    EXPECT_THAT(describe(r), EndsWith("; not applied"));
  }
}

TEST(Printable, KeepsPrintableAsciiOnly) {
  EXPECT_EQ(printable("abc ~", 64), "abc ~");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x7f\x80\xff\x1b[31m", 12), 64), "a?b?????[31m");
}

TEST(Printable, CutsWhatIsTooLong) {
  EXPECT_EQ(printable("12345", 5), "12345");
  EXPECT_EQ(printable("123456", 5), "12345...");
}

}  // namespace
}  // namespace fencegate::fence
