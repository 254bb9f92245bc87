#include "wire/sql_pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fencegate::wire {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view sql, bool backslashes = false) {
  std::vector<std::string> out;
  for (const auto& one : split_sql(sql, backslashes)) {
    out.emplace_back(one.text);
    EXPECT_EQ(sql.substr(one.at, one.text.size()), one.text) << "it stands where it says";
  }
  return out;
}

TEST(SqlPieces, EndAtSemicolons) {
  EXPECT_THAT(pieces("SELECT 1"), ElementsAre("SELECT 1"));
  EXPECT_THAT(pieces("SELECT 1;"), ElementsAre("SELECT 1"));
  EXPECT_THAT(pieces("BEGIN; SELECT 1 ;COMMIT"), ElementsAre("BEGIN", " SELECT 1 ", "COMMIT"));
}

TEST(SqlPieces, OfWhichNoneHoldsNothing) {
  EXPECT_THAT(pieces(";; SELECT 1;/* a */;-- b\n; ;SELECT 2; -- c"), ElementsAre(" SELECT 1", "SELECT 2"));
  for (const char* sql : {"", ";", " ; ", "/* a */;-- b", "/* no end;"})
    EXPECT_THAT(pieces(sql), ElementsAre("")) << sql;
}

TEST(SqlPieces, StandWhereTheySay) {
  const auto all = split_sql("; BEGIN;/* a */SELECT 1;;COMMIT", false);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].at, 1U);
  EXPECT_EQ(all[1].at, 8U);
  EXPECT_EQ(all[2].at, 25U);
}

TEST(SqlPieces, HoldSemicolonsOfLiteralsAndNames) {
  for (const char* sql : {"SELECT 'a;b'", "SELECT 'a'';b'", "SELECT ';' \";\"", "SELECT \"a\"\";b\"", "SELECT 'no end;",
                          "SELECT \"no end;", "SELECT N';' B';' X';' U&';' U&\";\"", "SELECT '--' ';' '/*;'"})
    EXPECT_THAT(pieces(sql), ElementsAre(sql));
  EXPECT_THAT(pieces("SELECT 'a';SELECT 'b'"), ElementsAre("SELECT 'a'", "SELECT 'b'"));
}

TEST(SqlPieces, BackslashesEscapeWhereTheServerSaysSo) {
  EXPECT_THAT(pieces("SELECT '\\';SELECT ';'", false), ElementsAre("SELECT '\\'", "SELECT ';'"));
  EXPECT_THAT(pieces("SELECT '\\';SELECT ';'", true), ElementsAre("SELECT '\\';SELECT '", "'"));
  EXPECT_THAT(pieces("SELECT '\\\\';SELECT 1", true), ElementsAre("SELECT '\\\\'", "SELECT 1"));
  EXPECT_THAT(pieces("SELECT \"\\\";SELECT 1", true), ElementsAre("SELECT \"\\\"", "SELECT 1")) << "never in names";
  EXPECT_THAT(pieces("SELECT '\\", true), ElementsAre("SELECT '\\"));
}

TEST(SqlPieces, BackslashesAlwaysEscapeInEscapeStrings) {
  for (const std::string e : {"E", "e"}) {
    EXPECT_THAT(pieces("SELECT " + e + "'\\';a'"), ElementsAre("SELECT " + e + "'\\';a'"));
    EXPECT_THAT(pieces("SELECT " + e + "'''\\';'"), ElementsAre("SELECT " + e + "'''\\';'"));
    EXPECT_THAT(pieces("SELECT a" + e + "'\\';SELECT 1"), ElementsAre("SELECT a" + e + "'\\'", "SELECT 1"));
  }
}

TEST(SqlPieces, EscapeStringsGoOnBehindANewLine) {
  for (const char* between : {"\n", " \r\t", " -- ;'\n", "-- a\n-- b\r\n  "}) {
    const auto sql = std::string("SELECT E'a'") + between + "'\\';'";
    EXPECT_THAT(pieces(sql + ";SELECT 1"), ElementsAre(sql, "SELECT 1"));
  }
  for (const char* between : {"", " ", "/*\n*/", "\n/**/"}) {
    const auto sql = std::string("SELECT E'a' ") + between + "'\\'";
    EXPECT_THAT(pieces(sql + ";SELECT 1"), ElementsAre(sql, "SELECT 1")) << "an error of the server's; plain";
  }
  EXPECT_THAT(pieces("SELECT 'a'\n'\\';SELECT 1"), ElementsAre("SELECT 'a'\n'\\'", "SELECT 1"));
  EXPECT_THAT(pieces("SELECT E'a'\n-- '"), ElementsAre("SELECT E'a'\n-- '"));
}

TEST(SqlPieces, HoldSemicolonsOfDollarQuotes) {
  for (const char* sql :
       {"DO $$a;b$$", "DO $a$;$$;$b$;$a$", "DO $\xC3\xA4$;$\xC3\xA4$", "DO $$no end;", "DO $a1$;$a1$"})
    EXPECT_THAT(pieces(sql), ElementsAre(sql));
  EXPECT_THAT(pieces("DO $$;$$;SELECT $1;SELECT a$$;b$$"), ElementsAre("DO $$;$$", "SELECT $1", "SELECT a$$", "b$$"));
  EXPECT_THAT(pieces("SELECT $1$;2"), ElementsAre("SELECT $1$", "2"));
}

TEST(SqlPieces, HoldSemicolonsOfComments) {
  for (const char* sql :
       {"SELECT /* ; */ 1", "SELECT /* /* ; */ ; */ 1", "SELECT -- ;\n1", "SELECT -- ;' \r1", "SELECT /* ;"})
    EXPECT_THAT(pieces(sql), ElementsAre(sql));
  EXPECT_THAT(pieces("SELECT 1-2;SELECT 4/2"), ElementsAre("SELECT 1-2", "SELECT 4/2"));
  EXPECT_THAT(pieces("SELECT 1 -- '\n;SELECT 2"), ElementsAre("SELECT 1 -- '\n", "SELECT 2"));
}

TEST(SqlPieces, HoldSemicolonsInParentheses) {
  const std::string rule = "CREATE RULE r AS ON INSERT TO t DO (INSERT INTO u;INSERT INTO v)";
  EXPECT_THAT(pieces(rule + ";SELECT 1"), ElementsAre(rule, "SELECT 1"));
  EXPECT_THAT(pieces("SELECT ')';SELECT ((1);2);3)"), ElementsAre("SELECT ')'", "SELECT ((1);2)", "3)"));
  EXPECT_THAT(pieces("SELECT 1);SELECT 2"), ElementsAre("SELECT 1)", "SELECT 2"));
  EXPECT_THAT(pieces("SELECT (1;SELECT 2"), ElementsAre("SELECT (1;SELECT 2")) << "psql does the same";
}

TEST(SqlPieces, HoldTheBodiesOfRoutines) {
  for (const std::string create : {"CREATE", "create OR replace"})
    for (const std::string what : {"FUNCTION", "procedure"}) {
      const auto sql =
          create + " " + what +
          " f() BEGIN ATOMIC SELECT CASE WHEN a THEN 1 END; SELECT CASE a WHEN 1 THEN CASE b WHEN 2 THEN 3 "
          "END END; END";
      EXPECT_THAT(pieces(sql + ";SELECT 1"), ElementsAre(sql, "SELECT 1"));
    }
  EXPECT_THAT(pieces("BEGIN; SELECT CASE WHEN a THEN 1 END; END"),
              ElementsAre("BEGIN", " SELECT CASE WHEN a THEN 1 END", " END"));
  EXPECT_THAT(pieces("CREATE TABLE begin_it (a int);SELECT 1"),
              ElementsAre("CREATE TABLE begin_it (a int)", "SELECT 1"));
}

}  // namespace
}  // namespace fencegate::wire
