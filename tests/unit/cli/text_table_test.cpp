#include "cli/text_table.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace fencegate::cli {
namespace {

TEST(TextTable, ShowsWhatATerminalWouldObeyAsQuestionMarks) {
  std::ostringstream out;
  print_table({{"HOLDER", "X"},
               {"a\x1b[2Jb", "1"},
               {"c\xc2\x9b"
                "31md",
                "2"},
               {"\xff", "3"},
               {"gr\xc3\xb6\xc3\x9f"
                "er",
                "4"}},
              out);
  EXPECT_EQ(out.str(),
            "HOLDER    X\na?[2Jb    1\nc?31md    2\n?         3\ngr\xc3\xb6\xc3\x9f"
            "er  4\n");
}

}  // namespace
}  // namespace fencegate::cli
