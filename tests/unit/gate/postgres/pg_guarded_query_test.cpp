// Simple Queries.
#include "unit/gate/postgres/guarded_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

// ── a simple Query

TEST(PgGuardedQuery, IsTranslated) {
  guarded_rig rig;
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("INSERT") + query_ends));
  rig.server(guarded() + piece("INSERT 0 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C INSERT 0 1", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedQuery, OfSeveralStatementsGoesPieceByPiece) {
  guarded_rig rig;
  rig.client(query("SET a TO b; INSERT;;COMMIT;SELECT 1;"));
  EXPECT_THAT(rig.sent(),
              ElementsAreArray(translated("SET a TO b") + words{"[guard]"} + translated(" INSERT") +
                               translated("COMMIT") + words{"[guard]"} + translated("SELECT 1") + query_ends));
  rig.server(piece("SET") + guarded() + piece("INSERT 0 1") + piece("COMMIT") + guarded() + parse_complete() +
             bind_complete() + row_description() + row({"1"}) + complete("SELECT 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C SET", "C INSERT 0 1", "C COMMIT", "T", "D", "C SELECT 1", "Z I"));
}

TEST(PgGuardedQuery, EndsAtItsFirstError) {
  guarded_rig rig;
  rig.client(query("INSERT;SELECT 1/0;UPDATE"));
  rig.server(guarded() + piece("INSERT 0 1") + parse_complete() + fails() + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C INSERT 0 1", "E ERROR 22012", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedQuery, GoesAsItIsWhereItRunsNothing) {
  for (const std::string sql : {"BEGIN", "begin ; ;", "SET a TO b", "SHOW a", "COMMIT", "ROLLBACK;", "", ";", "-- c"}) {
    guarded_rig rig;
    rig.client(query(sql));
    EXPECT_THAT(rig.sent(), ElementsAre("Q " + sql));
  }
}

TEST(PgGuardedQuery, GoesAsItIsBehindAGuardThatWasAnswered) {
  guarded_rig rig;
  rig.begin_guarded();
  for (const std::string sql : {"INSERT", "CALL p();", "VACUUM", "COPY t FROM STDIN", "SELECT 'no end;"}) {
    rig.client(query(sql));
    EXPECT_THAT(rig.sent(), ElementsAre("Q " + sql));
    rig.server(complete("x") + ready('T'));
    EXPECT_THAT(rig.told(), ElementsAre("C x", "Z T"));
  }
  rig.client(query("INSERT; INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("INSERT") + translated(" INSERT") + query_ends));
}

TEST(PgGuardedQuery, InABlockWithoutAGuardOnlyWhatMayEndItGoesAsItIs) {
  for (const std::string sql : {"SAVEPOINT a", "ROLLBACK TO a", "RELEASE a", "COMMIT AND CHAIN"}) {
    guarded_rig rig;
    rig.begin();
    rig.client(query(sql));
    EXPECT_THAT(rig.sent(), ElementsAre("Q " + sql));
  }
  guarded_rig rig;
  rig.client(query("SAVEPOINT a"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("SAVEPOINT a") + query_ends));
  rig.server(guarded() + fails("25P01") + ready('I'));
  rig.forget();
  rig.begin();
  rig.client(query("INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("INSERT") + query_ends));
}

TEST(PgGuardedQuery, WhatMayCommitInsideGetsABlock) {
  guarded_rig rig;
  rig.client(query("CALL p()"));
  EXPECT_THAT(rig.sent(),
              ElementsAreArray(words{"[begin]", "[guard]"} + translated("CALL p()") + words{"C", "[commit]", "S"}));
  rig.server(own("BEGIN") + guarded() + parse_complete() + bind_complete() + no_data() + fails() + ready('E'));
  EXPECT_THAT(rig.sent(), ElementsAre("[rollback]", "S"));
  rig.server(own("ROLLBACK") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedQuery, EmptyQueryResponsePassesWhereNothingElseComes) {
  guarded_rig rig;
  rig.client(query("/* a */;-- b"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("") + query_ends));
  rig.server(parse_complete() + bind_complete() + no_data() + empty_query() + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("I", "Z I"));
  rig.client(query("SELECT 1;/* a */;"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("SELECT 1") + query_ends));
}

std::string position_in(std::string_view message) {
  for (auto body = message.substr(wire::pg_head_bytes); body.size() > 1; body.remove_prefix(body.find('\0') + 1))
    if (body.front() == 'P') return std::string(body.substr(1, body.find('\0') - 1));
  return "";
}

TEST(PgGuardedQuery, ThePositionOfAnErrorIsThatInTheMessage) {
  const auto failed = wire::encode_pg_message('E', "SERROR\0VERROR\0C42601\0Mwords\0P3\0\0"s);
  struct message {
    std::string sql, encoding, position;
  };
  for (const auto& one :
       {message{"SELECT 1;a b", "UTF8", "12"}, message{"SELECT '\xC3\xA4\xE2\x82\xAC';a b", "UTF8", "15"},
        message{"SELECT '\xE4\xA4';a b", "LATIN1", "15"}, message{"SELECT 1;SELECT 2;a b", "UTF8", "21"}}) {
    guarded_rig rig;
    rig.machine.on_parameter("client_encoding", one.encoding);
    rig.client(query(one.sql));
    std::string replies = guarded() + piece("SELECT 1");
    if (one.sql.find(";SELECT") != std::string::npos) replies += piece("SELECT 1");
    rig.server(replies);
    rig.forget();
    // It may want a block of its own.
    if (rig.machine.own_turn()) rig.server(own("BEGIN"));
    rig.server(failed);
    EXPECT_EQ(position_in(rig.told_bytes()), one.position) << one.sql;
  }
  guarded_rig first;
  first.client(query("SELECT x y"));
  first.server(guarded() + failed);
  EXPECT_EQ(first.told_bytes(), failed);
}

TEST(PgGuardedQuery, ReadsBackslashesAsTheServerDoes) {
  guarded_rig rig;
  const std::string sql = "SELECT '\\'; DELETE --'";
  rig.client(query(sql));
  EXPECT_THAT(rig.sent(),
              ElementsAreArray(words{"[guard]"} + translated("SELECT '\\'") + translated(" DELETE --'") + query_ends));
  guarded_rig off;
  off.machine.on_parameter("standard_conforming_strings", "off");
  off.client(query(sql));
  EXPECT_THAT(off.sent(), ElementsAreArray(words{"[guard]"} + translated(sql) + query_ends));
}

TEST(PgGuardedQuery, WaitsForTheAnswerToTheLastOne) {
  guarded_rig rig;
  rig.client(query("INSERT") + query("COMMIT") + query("UPDATE") + sync());
  rig.forget();
  rig.server(guarded() + piece("INSERT 0 1") + close_complete());
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q COMMIT"));
  rig.server(complete("COMMIT"));
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("UPDATE") + query_ends));
  rig.server(guarded() + piece("UPDATE 1") + query_end('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
}

TEST(PgGuardedQuery, BehindUnsyncedMessagesWaitsAndGoesOnWithTheirSegment) {
  guarded_rig rig;
  rig.client(statement("INSERT") + query("UPDATE"));
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P INSERT", "B", "E", "H"));
  rig.server(guarded() + parse_complete() + bind_complete());
  EXPECT_THAT(rig.sent(), IsEmpty()) << "asked for once";
  rig.server(complete("INSERT 0 1"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("UPDATE") + query_ends)) << "behind the same guard";
  rig.server(piece("UPDATE 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C INSERT 0 1", "C UPDATE 1", "Z I"));
}

TEST(PgGuardedQuery, BehindUnsyncedMessagesEvenBeginIsTranslated) {
  guarded_rig rig;
  rig.run(statement("INSERT") + query("BEGIN"), guarded() + done("INSERT 0 1"));
  rig.server(piece("BEGIN") + query_end('T'));
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_THAT(rig.told(), ElementsAre("C BEGIN", "Z T"));
}

TEST(PgGuardedQuery, BehindUnsyncedMessagesThatFailedIsDropped) {
  guarded_rig rig;
  rig.client(statement("INSERT") + query("UPDATE") + sync());
  rig.forget();
  rig.server(guarded() + fails());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z I"));
  EXPECT_FALSE(rig.waits());
}

TEST(PgGuardedQuery, TakesTheUnnamedStatementWithIt) {
  guarded_rig rig(direct);
  rig.run(parse("", "SELECT 1") + sync(), guard_parsed() + parse_complete() + ready('I'));
  rig.run(query("SHOW a"), complete("SHOW") + ready('I'));
  rig.client(bind_to("") + execute() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
}

// ── a large one

TEST(PgGuardedQuery, ALargeOneIsStreamedAsOneParse) {
  guarded_rig rig;
  const auto sql = large_sql("INSERT", "1");
  rig.client(query(sql));
  const auto bytes = rig.sent_bytes();
  EXPECT_TRUE(bytes.find("\0"s + sql + "\0\0\0"s) != std::string::npos);
  const auto sent = each_message(bytes, words_of_client);
  ASSERT_EQ(sent.size(), 7U + 4U + 2U);
  EXPECT_EQ(sent[2], "P GUARD");
  EXPECT_EQ(sent[7], "P " + std::to_string(sql.size()) + " bytes");
  EXPECT_THAT(words(sent.begin() + 8, sent.end()), ElementsAre("B", "D", "E", "C", "S"));
  rig.server(guarded() + piece("INSERT 0 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C INSERT 0 1", "Z I"));
}

TEST(PgGuardedQuery, ALargeOneThatMayCommitInsideGetsABlock) {
  guarded_rig rig;
  const auto sql = large_sql("DO $$x", "$$");
  rig.client(query(sql));
  EXPECT_THAT(rig.sent(), ElementsAre("[begin]", "[guard]", "P " + std::to_string(sql.size()) + " bytes", "B", "D", "E",
                                      "C", "[commit]", "S"));
}

// COMMIT may be followed by AND CHAIN beyond what is there.
TEST(PgGuardedQuery, OfALargeOneOnlyWhatIsThereIsKnown) {
  guarded_rig rig;
  rig.client(query(large_sql("COMMIT", "AND CHAIN")));
  EXPECT_THAT(rig.sent().front(), "[guard]");
  guarded_rig blank;
  blank.client(query(large_sql("", "CALL p()")));
  EXPECT_THAT(blank.sent().front(), "[begin]");
}

TEST(PgGuardedQuery, ALargeOneOfSeveralStatementsIsTranslatedWhenItIsThere) {
  guarded_rig rig;
  rig.client(query(large_sql("SELECT 1; UPDATE;", "INSERT")));
  EXPECT_EQ(rig.gathered, 1U);
  const auto last = std::to_string(large_sql("", "INSERT").size()) + " bytes";
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("SELECT 1") + translated(" UPDATE") +
                                           translated(last) + query_ends));
  rig.server(guarded() + piece("SELECT 1") + piece("UPDATE 1") + piece("INSERT 0 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C SELECT 1", "C UPDATE 1", "C INSERT 0 1", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
  EXPECT_EQ(rig.machine.translates(), 0U);
}

// Of 2 MB of statements only so many are on their way that neither answers nor bytes pile up; all are behind one guard.
TEST(PgGuardedQuery, OfALargeOneOnlySoMuchIsOnItsWay) {
  guarded_rig rig;
  const std::string one = "INSERT " + std::string(1'000, 'x');
  std::string sql;
  for (int n = 0; n < 2'000; ++n) sql += one + ';';
  rig.client(query(sql));
  EXPECT_EQ(rig.machine.translates(), sql.size());
  std::size_t pieces = 0, turns = 0;
  for (auto sent = rig.sent(); !sent.empty(); sent = rig.sent(), ++turns) {
    const auto now =
        static_cast<std::size_t>(std::count(sent.begin(), sent.end(), "P " + std::to_string(one.size()) + " bytes"));
    ASSERT_GT(now, 0U);
    ASSERT_LE(now * one.size(), limits::output_high_water_bytes + one.size());
    ASSERT_EQ(std::count(sent.begin(), sent.end(), "[guard]"), turns == 0 ? 1 : 0) << "one transaction";
    std::string replies = turns == 0 ? guarded() : "";
    for (std::size_t n = 0; n < now; ++n) replies += piece("INSERT 0 1");
    pieces += now;
    rig.server(replies);
  }
  EXPECT_EQ(pieces, 2'000U);
  EXPECT_GT(turns, 7U);
  rig.server(query_end('I'));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedQuery, ALargeOneThatFailsEndsThere) {
  guarded_rig rig;
  rig.client(query(large_sql("SELECT 1; UPDATE;", "INSERT; DELETE")));
  EXPECT_THAT(rig.sent().back(), "H") << "too much is on its way for the rest";
  rig.server(guarded() + piece("SELECT 1") + fails());
  EXPECT_THAT(rig.sent(), ElementsAre("S"));
  rig.server(ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C SELECT 1", "E ERROR 22012", "Z I"));
  EXPECT_EQ(rig.machine.translates(), 0U);
}

// Nothing of it may be sent before it is known whether the server skips it.
TEST(PgGuardedQuery, ALargeOneIsGatheredWhenItsTurnHasCome) {
  guarded_rig rig;
  rig.client(statement("INSERT") + query(large_sql("SELECT 1; UPDATE;", "")));
  EXPECT_EQ(rig.gathered, 0U);
  rig.forget();
  rig.server(guarded() + done("INSERT 0 1"));
  EXPECT_EQ(rig.gathered, 1U);
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("SELECT 1") + translated(" UPDATE") + query_ends));
}

TEST(PgGuardedQuery, OneOfSeveralStatementsThatIsTooLargeIsRefusedUnread) {
  guarded_rig rig;
  const auto sql = "SELECT 1; INSERT" + std::string(limits::pg_gathered_bytes_max, ' ');
  rig.client(query(sql));
  EXPECT_EQ(rig.gathered, 0U);
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
  EXPECT_THAT(rig.refused, ElementsAre(HasSubstr("16 MiB")));
  rig.server(fails("ZF007") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR ZF007", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedQuery, ALargeOneThatChangesItsReadingIsRefused) {
  guarded_rig rig;
  rig.client(query(large_sql("SET standard_conforming_strings = off; SELECT 1;", "SELECT '\\'")));
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "C", "S"));
}

TEST(PgGuardedQuery, ALargeOneThatIsRefusedIsNotSkippedTo) {
  guarded_rig rig;
  rig.client(query(large_sql("PREPARE TRANSACTION 'x'", "")) + query("SHOW a"));
  EXPECT_THAT(rig.sent(), ElementsAre("[refusal]", "S"));
  rig.server(fails("ZF007") + ready('I'));
  EXPECT_THAT(rig.sent(), ElementsAre("Q SHOW a"));
}

}  // namespace
}  // namespace fencegate
