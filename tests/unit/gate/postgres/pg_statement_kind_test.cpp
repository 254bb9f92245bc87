#include "gate/postgres/pg_statement_kind.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fencegate::gate {
namespace {

using kind = pg_statement_kind;

const std::vector<std::pair<kind, std::vector<std::string>>> table{
    {kind::plain,
     {"SELECT 1",    "INSERT INTO t", "UPDATE t",   "DELETE FROM t",  "MERGE INTO t", "WITH a AS (SELECT 1) SELECT 1",
      "VALUES(1)",   "TABLE t",       "(SELECT 1)", "EXPLAIN SELECT", "FETCH c",      "MOVE c",
      "CREATE t",    "ALTER t",       "DROP t",     "TRUNCATE t",     "GRANT x",      "REVOKE x",
      "COMMENT ON",  "ANALYZE",       "REFRESH x",  "CLOSE c",        "NOTIFY n",     "LISTEN n",
      "DEALLOCATE s"}},
    {kind::copy, {"COPY t FROM STDIN"}},
    {kind::wants_block, {"DECLARE c CURSOR FOR SELECT 1"}},
    {kind::locks, {"LOCK TABLE t"}},
    {kind::may_commit, {"CALL p()", "DO $$x$$"}},
    {kind::begins, {"BEGIN", "BEGIN READ ONLY", "START TRANSACTION"}},
    {kind::ends_surely,
     {"COMMIT", "END", "ROLLBACK", "ABORT", "COMMIT WORK", "END TRANSACTION", "ROLLBACK WORK", "ABORT TRANSACTION",
      "COMMIT;", "COMMIT ; ;", "COMMIT/* AND CHAIN */", "COMMIT -- AND CHAIN", "COMMIT WORK;--\n;",
      "ROLLBACK/**/WORK/**/"}},
    {kind::ends,
     {"COMMIT AND CHAIN", "COMMIT AND NO CHAIN", "COMMIT WORK AND CHAIN", "END AND CHAIN", "ABORT AND CHAIN",
      "ROLLBACK TO a", "ROLLBACK TO SAVEPOINT a", "ROLLBACK TRANSACTION TO a", "ROLLBACK/**/TO a",
      "ROLLBACK -- c\nTO a", "SAVEPOINT a", "RELEASE a", "RELEASE SAVEPOINT a", "COMMIT PREPARED 'x'",
      "ROLLBACK PREPARED 'x'", "COMMIT WORK WORK", "COMMIT; SELECT 1", "COMMIT 'x'"}},
    {kind::named, {"EXECUTE s", "EXECUTE s(1)"}},
    {kind::prepares, {"PREPARE s AS SELECT 1", "PREPARE \"transaction\" AS SELECT 1", "PREPARE"}},
    {kind::hands_over, {"PREPARE TRANSACTION 'x'", "prepare/**/transaction'x'", "PREPARE -- c\n TRANSACTION 'x'"}},
    {kind::bare,
     {"SET a TO b", "RESET a", "SHOW a", "DISCARD ALL", "UNLISTEN n", "", " ", ";", " ;/* c */-- d", "/* no end"}},
    {kind::unsure, {"VACUUM",     "CHECKPOINT", "REINDEX", "CLUSTER",  "LOAD 'x'", "IMPORT x",       "SECURITY LABEL",
                    "REASSIGN x", "SELEC 1",    "SELECTS", "SELECT_1", "SELECT$1", "SELECT\xC3\xA4", "\xE9SELECT",
                    "\"SELECT\"", "'SELECT'",   "1",       "$1",       "+",        "/ * */",         "- - x"}},
};

TEST(PgStatementKind, FollowsFromTheFirstWords) {
  for (const auto& [what, texts] : table)
    for (const auto& sql : texts) EXPECT_EQ(kind_of_statement(sql), what) << sql;
}

TEST(PgStatementKind, IsTheSameInAnyCase) {
  for (const auto& [what, texts] : table)
    for (auto sql : texts) {
      for (std::size_t at = 0; at < sql.size(); at += 2)
        if (sql[at] >= 'A' && sql[at] <= 'Z') sql[at] = static_cast<char>(sql[at] - 'A' + 'a');
      EXPECT_EQ(kind_of_statement(sql), what) << sql;
    }
}

TEST(PgStatementKind, IsTheSameBehindBlanksCommentsAndSemicolons) {
  for (const std::string front :
       {" \t\r\n\f", ";", " ; ;", "/* SELECT */", "/* /* COMMIT */ ' */", "-- SELECT\n", "--\r", "/**/;--\n/* */ "})
    for (const auto& [what, texts] : table)
      for (const auto& sql : texts) EXPECT_EQ(kind_of_statement(front + sql), what) << front << sql;
}

TEST(PgStatementKind, NothingIsTakenForAFoldedLetter) {
  EXPECT_EQ(kind_of_statement("\xC4\xB1nsert"), kind::unsure);    // ı
  EXPECT_EQ(kind_of_statement("LI\xC5\xBFTEN n"), kind::unsure);  // ſ
}

TEST(PgStatementKind, OfATextThatIsNotWholeOnlyWhatIsThereIsKnown) {
  EXPECT_EQ(kind_of_statement("", false), kind::unknown);
  EXPECT_EQ(kind_of_statement(" /* c */ ", false), kind::unknown);
  EXPECT_EQ(kind_of_statement("/* c", false), kind::unknown);
  EXPECT_EQ(kind_of_statement("SELECT", false), kind::unknown) << "the word may go on";
  EXPECT_EQ(kind_of_statement("SELECT ", false), kind::plain);
  EXPECT_EQ(kind_of_statement("(", false), kind::plain);
  EXPECT_EQ(kind_of_statement("SET a", false), kind::bare);
  EXPECT_EQ(kind_of_statement("BEGIN ", false), kind::begins);
  EXPECT_EQ(kind_of_statement("DO $$", false), kind::may_commit);
  for (const char* sql : {"COMMIT ", "COMMIT WORK ", "COMMIT;", "ROLLBACK /*"})
    EXPECT_EQ(kind_of_statement(sql, false), kind::ends) << sql;
  for (const char* sql : {"PREPARE ", "PREPARE trans", "PREPARE /*"})
    EXPECT_EQ(kind_of_statement(sql, false), kind::hands_over) << sql;
  EXPECT_EQ(kind_of_statement("PREPARE s AS", false), kind::prepares);
}

}  // namespace
}  // namespace fencegate::gate
