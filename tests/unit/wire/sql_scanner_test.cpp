#include "wire/sql_scanner.hpp"

#include "unit/wire/split_input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// What was found in one line: `SELECT 1|INSERT INTO T #orders=34`.
std::string summary(const sql_findings& found) {
  std::string out;
  for (const auto& words : found.statements) {
    out += out.empty() ? "" : "|";
    for (std::size_t i = 0; i < words.size(); ++i) {
      out += (i == 0 ? "" : " ") + words[i];
    }
    out += words.empty() ? "-" : "";
  }
  for (const std::string& tag : found.tags) {
    out += " #" + tag;
  }
  return out + (found.too_many_tags ? " too many tags" : "") + (found.more_statements ? " more" : "");
}

// The same at every split.
std::string scan(std::string_view sql) {
  const std::string whole = summary(scan_sql(sql));
  test::for_each_split(sql, [&](const std::vector<std::string_view>& pieces) {
    sql_scanner scanner;
    for (const std::string_view piece : pieces) {
      scanner.feed(piece);
      (void)scanner.found();  // changes nothing
    }
    EXPECT_EQ(summary(scanner.found()), whole) << sql;
    EXPECT_EQ(scanner.found(), scan_sql(sql)) << sql;
  });
  return whole;
}

bool unterminated(std::string_view sql) {
  sql_scanner scanner;
  scanner.feed(sql);
  return scanner.unterminated();
}

struct text_case {
  std::string_view sql;
  std::string_view found;
};

void expect_found(std::initializer_list<text_case> cases) {
  for (const text_case& c : cases) {
    EXPECT_EQ(scan(c.sql), c.found) << c.sql;
  }
}

TEST(SqlScanner, KeepsTheFirstWordsOfEachStatement) {
  expect_found({
      {"", ""},
      {" ;; \n;", ""},
      {"select 1", "SELECT"},
      {"prepare\ttransaction'x'", "PREPARE TRANSACTION"},
      {"Prepare/**/Transaction--\n'x'", "PREPARE TRANSACTION"},
      {"BEGIN;insert into t values (1);COMMIT", "BEGIN|INSERT INTO T VALUES|COMMIT"},
      {"SELECT a b c d e f g", "SELECT A B C D E"},
      {"a$b_1\xC3\xA9 c", "A$B_1\xC3\xA9 C"},
      {"SET x.y = 1", "SET X"},
      {"(SELECT 1)", "-"},
      {"\"select\" x", "-"},
      {"1;'a';$1;$$b$$;-1;/", "-|-|-|-|-|-"},
      {"SELECT E'x' y", "SELECT"},
      {"SELECT e", "SELECT E"},
      {"u&x", "U"},
      {"x u&", "X U"},
      {"U&\"x\" y", "-"},
      {"SELECT\vx", "SELECT X"},
  });
  EXPECT_EQ(scan(std::string(30, 'a') + " b"), std::string(24, 'A') + " B");
  EXPECT_EQ(scan(std::string(24, 'a') + " b"), std::string(24, 'A') + " B");
}

TEST(SqlScanner, CountsStatementsUpToItsLimit) {
  std::string text;
  for (std::size_t i = 0; i < sql_scanner::statements_kept; ++i) {
    text += "a;";
  }
  EXPECT_THAT(scan_sql(text).statements, SizeIs(sql_scanner::statements_kept));
  EXPECT_FALSE(scan_sql(text + " ; ").more_statements);
  EXPECT_TRUE(scan_sql(text + "b").more_statements);
  EXPECT_FALSE(scan_sql(text + "b").begins_with("B"));
}

TEST(SqlScanner, ReadsFenceTags) {
  expect_found({
      {"/*fence:orders=34*/ SELECT 1", "SELECT #orders=34"},
      {"SELECT 1 /* fence:orders=34 */", "SELECT #orders=34"},
      {"/*\n\t fence: \n a=1,b=2 \t*/", " #a=1,b=2"},
      {"/*fence:a=1*//*fence:b=2*/x/*fence:a=1*/", "X #a=1 #b=2"},
      {"/*fence:*/", " #"},
      {"/*fence:a=1**/", " #a=1*"},
      {"/*fence:a /* x */ b*/", " #a /* x */ b"},
      {"/*fence:a/*/b*/*/x", "X #a/*/b*/"},
      {"/*fence:a/*/*/b*/*/*/x", "X #a/*/*/b*/*/"},
      {"/*fence:a//*b*/*/", " #a//*b*/"},
      {"+/*fence:a*/", "- #a"},
      {"a/*fence:b*/c", "A C #b"},
      {"/*fence:a", ""},
      {"/*fence:a*", ""},
  });
}

TEST(SqlScanner, ReadsOnlyWhatIsSpelledAsAFenceTag) {
  expect_found({
      {"/*Fence:a*/", ""},
      {"/*fence :a*/", ""},
      {"/*fenc*/", ""},
      {"/*xfence:a*/", ""},
      {"/* x fence:a*/", ""},
      {"/**fence:a*/", ""},
      {"/ *fence:a*/", "-"},
      {"--/*fence:a*/", ""},
      {"-- x\r/*fence:a*/", " #a"},
      {"--+/*fence:a*/\n/*fence:b*/", " #b"},
  });
}

TEST(SqlScanner, ATagInAnotherCommentIsNone) {
  expect_found({
      {"/* /*fence:a*/ */", ""},
      {"/*/*fence:a*/*/", ""},
      {"/* /* */ fence:a*/", ""},
      {"/*/ /*fence:a*/ */ */", "-"},
      {"/* x */ /*fence:a*/", " #a"},
      {"/***/ /*fence:a*/", " #a"},
      {"/*/* **/**/ /*fence:a*/", " #a"},
  });
}

TEST(SqlScanner, TagsHaveLimits) {
  const std::string longest(sql_scanner::tag_bytes_max, 'a');
  EXPECT_EQ(scan_sql("/*fence: " + longest + "*/").tags, std::vector{longest});
  EXPECT_FALSE(scan_sql("/*fence: " + longest + "*/").too_many_tags);
  for (const char* more : {"a", "aa", "aaaaaa", "*", "**"}) {
    const sql_findings found = scan_sql("/*fence:" + longest + more + "*/");
    EXPECT_TRUE(found.too_many_tags) << more;
    EXPECT_THAT(found.tags, IsEmpty());
  }
  EXPECT_EQ(scan("/*fence:a*//*fence:b*//*fence:c*//*fence:d*//*fence:b*/"), " #a #b #c #d");
  EXPECT_EQ(scan("/*fence:a*//*fence:b*//*fence:c*//*fence:d*//*fence:e*/"), " #a #b #c #d too many tags");
}

TEST(SqlScanner, LooksIntoNoLiteral) {
  expect_found({
      {"'/*fence:a*/;b'", "-"},
      {"'a''/*fence:a*/;b';c", "-|C"},
      {"\"/*fence:a*/;b\"\"/*fence:a*/\";c", "-|C"},
      {"U&\"/*fence:a*/\";U&'/*fence:a*/';u&'x''/*fence:b*/'", "-|-|-"},
      {"N'/*fence:a*/';n'x''/*fence:a*/'", "-|-"},
      {"B'/*fence:a*/';x'/*fence:b*/'", "-|-"},
      {"E'\\'/*fence:a*/';e'\\\\'/*fence:b*/", "-|- #b"},
      {"E'a''\\'/*fence:a*/'", "-"},
      {"E'\\''/*fence:a*/", "- #a"},
      {"'/*';/*fence:a*/'*/'", "-|- #a"},
      {"'--';b", "-|B"},
      {"$$/*fence:a*/;'$$;b", "-|B"},
  });
}

TEST(SqlScanner, KnowsDollarQuotes) {
  expect_found({
      {"$a$/*fence:x*/;$$;$b$;$A$;$aa$;$a b$ $a$;c", "-|C"},
      {"$a$ $$a$;b", "-|B"},
      {"$ab$ $a$ab$;b", "-|B"},
      {"$ab$ $aab$ $ab$;b", "-|B"},
      {"$\xC3\xA9_1$;$\xC3\xA9_1$;b", "-|B"},
      {"$$$;$$;b", "-|B"},
      {"a$b$;c$b$", "A$B$|C$B$"},
      {"_$$;c", "_$$|C"},
      {"\xC3$a$;b", "\xC3$A$|B"},
      {"$1$a$;b$a$;c", "-|C"},
      {"1$a$;b$a$;c", "-|C"},
      {"1e5$a$;b$a$;c", "-|C"},
      {"1.5e-7$a$;b$a$;c", "-|C"},
      {"0x1F_a$a$;b$a$;c", "-|C"},
      {"+$a$;b$a$;c", "-|C"},
      {"\"x\"$a$;b$a$;c", "-|C"},
      {"$1a;b", "-|B"},
      {"$a;b", "-|B"},
      {"$;b", "-|B"},
      {"$-;b", "-|B"},
  });
}

TEST(SqlScanner, ALongDelimiterEndsTheReading) {
  const std::string longest(sql_limits::delimiter_bytes_max, 'a');
  EXPECT_EQ(summary(scan_sql("$" + longest + "$;/*fence:a*/$" + longest + "$;b")), "-|B");
  const std::string longer = longest + "a";
  const std::string text = "x;$" + longer + "$;$" + longer + "$;b/*fence:a*/";
  EXPECT_EQ(summary(scan_sql(text)), "X too many tags more");
  EXPECT_EQ(scan(text), "X too many tags more");
}

TEST(SqlScanner, LiteralsGoOnAfterALineEnd) {
  // Of an escaping literal the continuation escapes too; a new literal would not, hence would end at its second quote.
  expect_found({
      {"E'a'\n'\\';b'", "-"},
      {"E'a' \t\r '\\';b'", "-"},
      {"E'a' -- '\n -- c\n\n'\\';b'", "-"},
      {"E'a'--\n'\\';b'", "-"},
      {"E'a'\n''\n'\\';b'", "-"},
      {"U&'a'\n'\\';b", "-|B"},
      {"B'a'\n'\\';b", "-|B"},
      {"x'a'\n''/*fence:a*/", "- #a"},
  });
}

TEST(SqlScanner, LiteralsEndWhereNoLineEnds) {
  // The second literal is a plain one, and one way of reading ends it; as a continuation neither would.
  expect_found({
      {"E'a' '\\';b", "-|B"},
      {"E'a'/**/\n'\\';b", "-|B"},
      {"E'a'-\n'\\';b", "-|B"},
      {"E'a';\n'\\';b", "-|-|B"},
      {"E'a'\n'b' '\\';b", "-|B"},
  });
}

// What stands behind `'\'` is code to one way of reading and text to the other.
TEST(SqlScanner, BothWaysOfReadingCount) {
  expect_found({
      {"'\\';/*fence:a*/b", "-|B #a"},
      {"'\\';/*fence:a*/b ';/*fence:c*/d", "-|B|D #a #c"},
      {"'\\'' ;prepare transaction 'x", "-|PREPARE TRANSACTION"},
      {"'\\\\';/*fence:a*/b", "-|B #a"},
      {"'C:\\dir\\';a", "-|A"},
      {"N'\\';a", "-|A"},
      {"n'\\'';a", "-|A"},
      {"'a'\n'\\'';a", "-|A"},
      {"$$\\$$;\"\\\";U&'\\';b'\\';/*\\*/a", "-|-|-|-|A"},
  });
}

// The statements in their order as the way with backslash escapes reads them, where that is another.
TEST(SqlScanner, TheOtherWayHasItsOwnOrder) {
  const auto other = [](std::string_view sql) {
    sql_findings found;
    found.statements = scan_sql(sql).other_way;
    return summary(found);
  };
  EXPECT_EQ(other("A '\\'; B; --'\n; C; B"), "A|C|B");
  EXPECT_EQ(other("A; B '\\'; C; --'\n; D; E '\\'; F; --'\n; G"), "A|B|D|E|G");
  EXPECT_EQ(other("A '\\'; B"), "") << "it does not end";
  EXPECT_EQ(other("A '\\\\'; B"), "") << "it is the same";
  EXPECT_EQ(other("A; B"), "");
}

TEST(SqlScanner, TagsOfBothWaysAreMerged) {
  EXPECT_EQ(scan("'\\'/*fence:a*//*fence:b*/'/*fence:c*//*fence:d*//*fence:a*/"), "- #a #b #c #d");
  EXPECT_EQ(scan("'\\'/*fence:a*//*fence:b*//*fence:c*/'/*fence:d*//*fence:e*/"), "- #a #b #c #d too many tags");
}

TEST(SqlScanner, SaysWhetherTheTextIsUnterminated) {
  for (const std::string_view sql : {"'", "'a''", "E'\\'", "E'\\", "\"", "\"a\"\"", "/*", "/* /* */", "/*/", "/**",
                                     "$$", "$a$ $a", "$a$ $", "U&'", "U&\"", "B'", "'a'\n'"}) {
    EXPECT_TRUE(unterminated(sql)) << sql;
  }
  for (const std::string_view sql : {"", "'a'", "''", "E'\\''", "\"a\"", "/**/", "-- '", "$$$$", "$a", "$a$ $a$",
                                     "'\\'", "'\\''", "U&", "a/", "a-", "e"}) {
    EXPECT_FALSE(unterminated(sql)) << sql;
  }
}

TEST(SqlScanner, ANulEndsTheText) {
  EXPECT_EQ(scan("a;/*fence:\0x*/b"sv), "A");
  EXPECT_EQ(scan("a\0;b"sv), "A");
  EXPECT_EQ(scan("'\\\0';b"sv), "-");
}

TEST(SqlScanner, ForgetsEverythingAtReset) {
  sql_scanner scanner;
  scanner.feed("x;/*fence:a*/'\\'\0"sv);
  scanner.reset();
  EXPECT_EQ(summary(scanner.found()), "");
  EXPECT_FALSE(scanner.unterminated());
  scanner.feed("y");
  EXPECT_EQ(summary(scanner.found()), "Y");
}

TEST(SqlScanner, GoesOnAfterAskingWhatWasFound) {
  sql_scanner scanner;
  scanner.feed("prep");
  EXPECT_TRUE(scanner.found().begins_with("PREP"));
  scanner.feed("are transaction");
  EXPECT_EQ(summary(scanner.found()), "PREPARE TRANSACTION");
}

TEST(SqlFindings, BeginsWith) {
  const sql_findings found = scan_sql("(x);begin;prepare transaction 'a'");
  EXPECT_TRUE(found.begins_with("BEGIN"));
  EXPECT_TRUE(found.begins_with("PREPARE"));
  EXPECT_TRUE(found.begins_with("PREPARE", "TRANSACTION"));
  EXPECT_FALSE(found.begins_with("BEGIN", "TRANSACTION"));
  EXPECT_FALSE(found.begins_with("X"));
  EXPECT_FALSE(found.begins_with("TRANSACTION"));
}

// Long enough for stretches of every size, at ends that fall anywhere in them.
TEST(SqlScanner, LongTextsReadTheSameInAnyPieces) {
  std::string text = "insert into t values ";
  for (int i = 0; i < 3000; ++i) {
    text += "('C:\\dir " + std::to_string(i) + (i % 7 == 0 ? "\\'" : "") + "', E'\\'', $x$'$x$)" +
            (i % 90 == 0 ? ";" : ",");
  }
  text += "/*fence:last*/";
  const sql_findings whole = scan_sql(text);
  EXPECT_FALSE(whole.tags.empty());
  for (const std::size_t piece : {1, 3, 17, 4096, 5000}) {
    sql_scanner scanner;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      scanner.feed(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(scanner.found(), whole) << piece;
  }
}

}  // namespace
}  // namespace fencegate::wire
