#include "wire/sql_lead.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::IsEmpty;

std::string tag_of(std::string_view sql) {
  const auto lead = read_sql_lead(sql);
  return lead.tag ? "#" + std::string(*lead.tag) : lead.undecided ? "undecided" : "none";
}

TEST(SqlLead, ReadsTheTagOfTheVeryFirstComment) {
  for (const auto& [sql, tag] : std::vector<std::pair<std::string, std::string>>{
           {"/*fence:orders=34*/ SELECT 1", "#orders=34"},
           {" \t\r\n\f\v/* fence:orders=34 */", "#orders=34"},
           {"/*\n\t fence: \n a=1,b=2 \t*//*fence:c=3*/", "#a=1,b=2"},
           {"/*fence:*/", "#"},
           {"/*fence:a=1**/", "#a=1*"},
           {"/*fence:a /* x */ b*/x*/", "#a /* x */ b"},
           {"/*fence:a/*/b*/*/x", "#a/*/b*/"},
           {"/*fence:a//*b*/*/", "#a//*b*/"},
           {"/*fence:a'\\'*/'*/", "#a'\\'"},
       })
    EXPECT_EQ(tag_of(sql), tag) << sql;
}

TEST(SqlLead, NothingElseIsATag) {
  for (const char* sql :
       {"SELECT 1 /*fence:a=1*/", "/**/ /*fence:a=1*/", "-- x\n/*fence:a=1*/", "--/*fence:a=1*/", ";/*fence:a=1*/",
        "'\\' /*fence:a=1*/", "/* /*fence:a=1*/ */", "/*/*fence:a=1*/*/", "/*Fence:a=1*/", "/*fence :a=1*/", "/*fenc*/",
        "/*xfence:a*/", "/**fence:a*/", "/ *fence:a*/", "+/*fence:a*/", "\xC2\xA0/*fence:a*/", "x"})
    EXPECT_EQ(tag_of(sql), "none") << sql;
}

TEST(SqlLead, SaysWhereMoreTextCouldBringATag) {
  for (const char* sql :
       {"", "  ", "/", "/*", "/* ", "/* fen", "/*fence:", "/*fence:a=1", "/*fence:a=1*", "/*fence:/* */"})
    EXPECT_EQ(tag_of(sql), "undecided") << sql;
  for (const char* sql : {"/* x", "/**", "/* fenced", "-", "--", "//", "S"}) EXPECT_EQ(tag_of(sql), "none") << sql;
}

TEST(SqlLead, ReadsTheFirstWords) {
  for (const auto& [sql, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"", {}},
           {"select 1", {"SELECT"}},
           {" ;;/* /* */ ; */ -- x\n;begin;commit", {"BEGIN"}},
           {"Prepare/**/Transaction--\n'x'", {"PREPARE", "TRANSACTION"}},
           {"prepare\ttransaction'x'", {"PREPARE", "TRANSACTION"}},
           {"SELECT fencegate.arm(1)", {"SELECT", "FENCEGATE"}},
           {"a b c d e f g", {"A", "B", "C", "D", "E", "F"}},
           {"a$b_1\xC3\xA9 c", {"A$B_1\xC3\xA9", "C"}},
           {"(SELECT 1)", {}},
           {"\"select\" x", {}},
           {"SELECT E'x' y", {"SELECT"}},
           {"SELECT u&\"x\" y", {"SELECT"}},
           {std::string(30, 'a') + " b", {std::string(24, 'A'), "B"}},
           {"/* open", {}},
           {"-- open", {}},
       })
    EXPECT_EQ(read_sql_lead(sql).words, words) << sql;
  EXPECT_TRUE(read_sql_lead("prepare transaction").begins_with("PREPARE", "TRANSACTION"));
  EXPECT_FALSE(read_sql_lead("prepare").begins_with("PREPARE", "TRANSACTION"));
  EXPECT_FALSE(read_sql_lead("").begins_with("PREPARE"));
}

}  // namespace
}  // namespace fencegate::wire
