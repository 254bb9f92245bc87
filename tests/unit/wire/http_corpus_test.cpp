// What the codec makes of tests/corpus: whole, cut in two anywhere, and byte by byte.
#include "support/http_corpus.hpp"

#include "support/http_readers.hpp"
#include "unit/wire/split_input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace fencegate::wire {
namespace {

using test::http_case;
using testing::MatchesRegex;

// Larger ones are only cut into pieces of 1000 bytes: each split of them would take minutes.
constexpr std::size_t split_bytes_max = 1024;

template <class Reader>
std::vector<std::string> verdicts(Reader reader, const std::vector<std::string_view>& pieces) {
  for (const auto piece : pieces) reader.feed(piece);
  return reader.verdicts();
}

std::string trailers_of(const test::http_request_reader&, const std::vector<std::string_view>&) { return {}; }
std::string trailers_of(test::http_response_reader reader, const std::vector<std::string_view>& pieces) {
  for (const auto piece : pieces) reader.feed(piece);
  return reader.trailers();
}

template <class Reader>
void check(const http_case& c, const Reader& reader) {
  SCOPED_TRACE(c.name + ": " + c.why);
  const std::string_view bytes = c.bytes;
  EXPECT_EQ(verdicts(reader, {bytes}), c.expected);
  if (bytes.size() <= split_bytes_max) {
    test::for_each_split(bytes, [&](const auto& pieces) {
      EXPECT_EQ(verdicts(reader, pieces), c.expected);
      EXPECT_EQ(trailers_of(reader, pieces), c.trailers);
    });
  }
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < bytes.size(); at += 1000) pieces.push_back(bytes.substr(at, 1000));
  EXPECT_EQ(verdicts(reader, pieces), c.expected);
}

void check_format(const std::vector<http_case>& cases) {
  std::set<std::string> names;
  for (const http_case& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " stands twice";
    EXPECT_THAT(c.why, MatchesRegex("(RFC [0-9]+|CVE-[0-9]+-[0-9]+|URL Standard).*")) << c.name;
    EXPECT_FALSE(c.expected.empty()) << c.name;
  }
}

TEST(HttpCorpus, Requests) {
  const auto cases = test::read_corpus("tests/corpus/http_requests.txt");
  check_format(cases);
  EXPECT_GE(cases.size(), 150U);
  for (const http_case& c : cases) check(c, test::http_request_reader());
}

TEST(HttpCorpus, Responses) {
  const auto cases = test::read_corpus("tests/corpus/http_responses.txt");
  check_format(cases);
  EXPECT_GE(cases.size(), 40U);
  for (const http_case& c : cases) check(c, test::http_response_reader(c.method));
}

}  // namespace
}  // namespace fencegate::wire
