#include "wire/resp_reply.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

// The head lives as long as `input`. Every proper prefix of a good head must be incomplete, never malformed and never a
// shorter head.
reply_head read_whole(const std::string& input) {
  reply_head head;
  for (std::size_t size = 0; size < input.size(); ++size) {
    EXPECT_EQ(read_head(std::string_view(input).substr(0, size), head), head_status::need_more)
        << input << " cut at " << size;
  }
  EXPECT_EQ(read_head(input, head), head_status::complete) << input;
  EXPECT_EQ(head.bytes, input.size()) << input;
  EXPECT_EQ(head.type, input[0]);
  reply_head followed;
  EXPECT_EQ(read_head(input + "+next\r\n", followed), head_status::complete);
  EXPECT_EQ(followed.bytes, input.size());
  return head;
}

head_status status_of(std::string_view input) {
  reply_head head;
  return read_head(input, head);
}

TEST(ReplyHead, ReadsTheSimpleTypes) {
  for (const std::string line : {"+OK",
                                 "+OKAY",
                                 "+O",
                                 "+",
                                 "+QUEUED",
                                 "+QUEUE",
                                 "-ERR no",
                                 ":0",
                                 ":-1",
                                 ":9223372036854775807",
                                 ":-9223372036854775808",
                                 "_",
                                 "#t",
                                 "#f",
                                 ",1.5",
                                 ",-3e-10",
                                 ",1",
                                 ",inf",
                                 ",-inf",
                                 ",nan",
                                 "(12345678901234567890123",
                                 "(-1"}) {
    const std::string input = line + "\r\n";
    const reply_head head = read_whole(input);
    EXPECT_EQ(head.line.size(), line.size() - 1) << line;
    EXPECT_EQ(head.is_error(), line[0] == '-') << line;
    EXPECT_EQ(head.is_ok(), line == "+OK") << line;
    EXPECT_EQ(head.is_null(), line == "_") << line;
  }
}

TEST(ReplyHead, GivesTheLineAsItStands) {
  const std::string input = "-WRONGTYPE Operation\r\n";
  reply_head head;
  ASSERT_EQ(read_head(input, head), head_status::complete);
  EXPECT_EQ(head.line, "WRONGTYPE Operation");
}

TEST(ReplyHead, ReadsLengthsAndCounts) {
  for (const std::string type : {"$", "!", "=", "*", "~", "%", ">", "|"}) {
    EXPECT_EQ(read_whole(type + "17\r\n").count, 17) << type;
    EXPECT_EQ(read_whole(type + std::to_string(reply_count_max) + "\r\n").count, reply_count_max) << type;
    if (type != "=") {
      EXPECT_EQ(read_whole(type + "0\r\n").count, 0) << type;
    }
  }
}

TEST(ReplyHead, KnowsTheNulls) {
  EXPECT_TRUE(read_whole("$-1\r\n").is_null());
  const reply_head array = read_whole("*-1\r\n");
  EXPECT_TRUE(array.is_null());
  EXPECT_FALSE(array.is_array());
  EXPECT_TRUE(read_whole("*0\r\n").is_array());
  EXPECT_TRUE(read_whole("!3\r\n").is_error());
}

TEST(ReplyHead, RefusesUnknownTypesAtTheFirstByte) {
  constexpr std::string_view known = "+-:$*_,#(!=%~>|";
  for (int byte = 0; byte < 256; ++byte) {
    const char type = static_cast<char>(byte);
    EXPECT_EQ(status_of({&type, 1}) == head_status::malformed, known.find(type) == std::string_view::npos) << byte;
  }
}

TEST(ReplyHead, RefusesWhatIsNotCanonical) {
  for (const std::string_view input : {"+a\nb\r\n",
                                       "+a\rb\r\n",
                                       "+a\n",
                                       "-a\r\r\n",
                                       "+OK\n",
                                       "+OK\r+",
                                       ":\r\n",
                                       ":01\r\n",
                                       ":-0\r\n",
                                       ":+1\r\n",
                                       ": 1\r\n",
                                       ":1 \r\n",
                                       ":1\n",
                                       ":1\r\r",
                                       ":9223372036854775808\r\n",
                                       ":-9223372036854775809\r\n",
                                       ":abc\r\n",
                                       "$-2\r\n",
                                       "$01\r\n",
                                       "$?\r\n",
                                       "*?\r\n",
                                       "$\r\n",
                                       "$-\r\n",
                                       "$99999999999999999999",
                                       "$9223372036854775807\r\n",
                                       "*9223372036854775807\r\n",
                                       "%4611686018427387905\r\n",
                                       "*-2\r\n",
                                       "~-1\r\n",
                                       "%-1\r\n",
                                       ">-1\r\n",
                                       "|-1\r\n",
                                       "!-1\r\n",
                                       "=-1\r\n",
                                       "=3\r\n",
                                       "=0\r\n",
                                       "_x\r\n",
                                       "#\r\n",
                                       "#T\r\n",
                                       "#tt\r\n",
                                       ",\r\n",
                                       ",abc\r\n",
                                       ",.\r\n",
                                       ",infinite\r\n",
                                       "(1\n\r\n",
                                       "(1\r1\r\n"}) {
    EXPECT_EQ(status_of(input), head_status::malformed) << input;
  }
}

TEST(ReplyHead, LimitsSimpleLines) {
  for (const char type : {'+', '-', '('}) {
    const std::string longest = type + std::string(simple_line_bytes_max, 'a');
    EXPECT_EQ(status_of(longest), head_status::need_more);
    EXPECT_EQ(status_of(longest + "\r\n"), head_status::complete);
    EXPECT_EQ(status_of(longest + "a"), head_status::malformed);
    EXPECT_EQ(status_of(longest + "a\r\n"), head_status::malformed);
  }
  EXPECT_EQ(status_of("," + std::string(100'000, '1')), head_status::malformed);
}

// `return {big_number = "..."}` in a script: Redis makes spaces of line ends, and looks no further.
TEST(ReplyHead, TakesAnyTextForABigNumber) {
  for (const std::string_view line : {"(\r\n", "(-\r\n", "(1.5\r\n", "(123  123\r\n"}) {
    EXPECT_EQ(status_of(line), head_status::complete) << line;
  }
}

}  // namespace
}  // namespace fencegate::wire
