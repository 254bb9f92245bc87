// COPY, by a simple Query and by Execute.
#include "unit/gate/postgres/guarded_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

TEST(PgGuardedCopy, InATranslatedQueryTheRestWaitsForItsEnd) {
  guarded_rig rig;
  rig.client(query("COPY t FROM STDIN;INSERT"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(words{"[guard]"} + translated("COPY t FROM STDIN") + words{"H"}));
  rig.server(guarded() + parse_complete() + bind_complete() + no_data() + copy_in());
  EXPECT_THAT(rig.told(), ElementsAre("G"));
  rig.client(copy_data("1\n") + copy_done());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "H")) << "COPY has taken the first Flush";
  rig.server(complete("COPY 1"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("INSERT") + query_ends));
  rig.server(piece("INSERT 0 1") + query_end('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C COPY 1", "C INSERT 0 1", "Z I"));
}

TEST(PgGuardedCopy, InATranslatedQueryDataThatIsEarlyWaits) {
  guarded_rig rig;
  rig.client(query("COPY t FROM STDIN") + copy_data("1\n") + copy_done());
  rig.forget();
  rig.server(guarded() + parse_complete() + bind_complete() + no_data());
  EXPECT_THAT(rig.sent(), IsEmpty());
  rig.server(copy_in());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "H"));
}

TEST(PgGuardedCopy, InATranslatedQueryDataMayBeForALaterOne) {
  guarded_rig rig;
  rig.client(query("SELECT 1;COPY t FROM STDIN") + copy_data("1\n") + copy_done());
  rig.server(guarded() + piece("SELECT 1"));
  rig.forget();
  rig.server(parse_complete() + bind_complete() + no_data() + copy_in());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "H"));
}

TEST(PgGuardedCopy, InATranslatedQueryThatFailsIsSyncedAtOnce) {
  for (const bool amid : {true, false}) {
    guarded_rig rig;
    rig.client(query("COPY t FROM STDIN;INSERT"));
    rig.server(guarded() + parse_complete() + bind_complete() + no_data());
    if (amid) {
      rig.server(copy_in());
      rig.client(copy_data("x\n"));
    }
    rig.forget();
    rig.server(fails("22P02"));
    EXPECT_THAT(rig.sent(), ElementsAre("S"));
    rig.client(copy_data("y\n") + copy_done());
    rig.server(ready('I'));
    EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22P02", "Z I"));
    EXPECT_TRUE(rig.machine.idle());
    rig.forget();
    rig.client(query("SHOW a"));
    EXPECT_THAT(rig.sent(), ElementsAre("Q SHOW a"));
  }
}

TEST(PgGuardedCopy, OutEndsAtItsTag) {
  guarded_rig rig;
  rig.client(query("COPY t TO STDOUT;SELECT 1"));
  rig.forget();
  rig.server(guarded() + parse_complete() + bind_complete() + no_data() + wire::encode_pg_message('H', "\0\0\0"s) +
             copy_data("1\n") + copy_done() + complete("COPY 1"));
  EXPECT_THAT(rig.told(), ElementsAre("H", "d", "c"));
  EXPECT_THAT(rig.sent(), ElementsAreArray(translated("SELECT 1") + query_ends));
}

// The server reads the Sync behind Execute as a part of the COPY.
TEST(PgGuardedCopy, ExtendedEatsTheSyncsInFrontOfItsEnd) {
  guarded_rig rig;
  rig.client(statement("COPY t FROM STDIN") + sync());
  rig.server(guarded() + parse_complete() + bind_complete() + copy_in());
  rig.forget();
  EXPECT_FALSE(rig.machine.idle());
  rig.client(copy_data("1\n") + copy_done() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "S"));
  rig.server(complete("COPY 1") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("C COPY 1", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedCopy, ExtendedWhoseDataIsThereAtOnceLacksASync) {
  guarded_rig rig;
  rig.client(statement("COPY t FROM STDIN") + sync() + copy_data("1\n") + copy_done() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P COPY t FROM STDIN", "B", "E", "H"));
  rig.server(guarded() + parse_complete() + bind_complete() + copy_in());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "S")) << "the first one is the COPY's";
  rig.server(complete("COPY 1") + ready('I'));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedCopy, ExtendedThatFailsBeforeItReadsHasItsSync) {
  guarded_rig rig;
  rig.client(statement("COPY t FROM STDIN") + sync());
  rig.server(guarded() + parse_complete() + bind_complete() + fails() + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "E ERROR 22012", "Z I"));
  EXPECT_TRUE(rig.machine.idle());
}

TEST(PgGuardedCopy, ASyncAmidDataIsHeldUntilTheCopyFails) {
  for (const bool fails_then : {true, false}) {
    guarded_rig rig;
    rig.client(statement("COPY t FROM STDIN") + flush());
    rig.server(guarded() + parse_complete() + bind_complete() + copy_in());
    rig.forget();
    rig.client(copy_data("1\n") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("d")) << "there it would mean nothing";
    if (fails_then) {
      rig.server(fails());
      EXPECT_THAT(rig.sent(), ElementsAre("S"));
      rig.server(ready('I'));
      EXPECT_THAT(rig.told(), ElementsAre("E ERROR 22012", "Z I"));
    } else {
      rig.client(copy_done());
      rig.server(complete("COPY 1"));
      EXPECT_THAT(rig.sent(), ElementsAre("c"));
      rig.client(sync());
      EXPECT_THAT(rig.sent(), ElementsAre("S"));
      rig.server(ready('I'));
    }
    EXPECT_TRUE(rig.machine.idle());
  }
}

// In its place, what fails the COPY if the server still reads it, and means nothing if not.
TEST(PgGuardedCopy, WhatIsUnexpectedInItFailsIt) {
  for (const auto& message : {query("INSERT"), parse("", "INSERT"), bind_to(""), execute(), describe_portal(),
                              close_statement("s"), call_function()}) {
    guarded_rig rig;
    rig.client(statement("COPY t FROM STDIN") + flush());
    rig.server(guarded() + parse_complete() + bind_complete() + copy_in());
    rig.forget();
    rig.client(message);
    EXPECT_THAT(rig.sent(), ElementsAre("f")) << message[0];
    rig.client(statement("INSERT"));
    EXPECT_THAT(rig.sent(), IsEmpty()) << message[0];
    rig.server(fails("57014"));
    rig.client(sync());
    EXPECT_THAT(rig.sent(), ElementsAre("S")) << message[0];
    rig.server(ready('I'));
    EXPECT_THAT(rig.told(), ElementsAre("E ERROR 57014", "Z I")) << message[0];
  }
}

// The server reads them while it is in the COPY, and fails it: the segment behind is not concerned.
TEST(PgGuardedCopy, IsFailedByWhatWasSentBehindIt) {
  guarded_rig rig;
  rig.client(statement("COPY t FROM STDIN") + statement("INSERT") + sync() + statement("UPDATE") + sync());
  rig.server(guarded() + parse_complete() + bind_complete() + copy_in());
  rig.forget();
  rig.server(fails("08P01") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("E ERROR 08P01", "Z I"));
  EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P UPDATE", "B", "E", "S"));
}

TEST(PgGuardedCopy, OfAQueryIsFailedByTheNextQuery) {
  for (const bool raw : {true, false}) {
    guarded_rig rig;
    if (raw) rig.begin_guarded();
    rig.client(query("COPY t FROM STDIN") + query("INSERT"));
    rig.server((raw ? "" : guarded() + parse_complete() + bind_complete() + no_data()));
    rig.forget();
    rig.server(copy_in());
    EXPECT_THAT(rig.sent(), ElementsAre("f")) << raw;
    rig.server(fails("57014"));
    EXPECT_THAT(rig.sent(), ElementsAreArray(raw ? words{} : words{"S"}));
    rig.server(ready(raw ? 'E' : 'I'));
    EXPECT_THAT(rig.told(), ElementsAre("G", "E ERROR 57014", raw ? "Z E" : "Z I"));
    EXPECT_TRUE(rig.machine.idle());
    EXPECT_FALSE(rig.waits());
  }
}

// The machine's COMMIT must not reach the server while it reads data.
TEST(PgGuardedCopy, InABlockOfItsOwnIsNotInterruptedByTheCommit) {
  guarded_rig rig;
  rig.client(statement("CALL p()") + statement("COPY t FROM STDIN") + sync());
  EXPECT_THAT(rig.sent(),
              ElementsAre("[begin]", "[guard]", "P CALL p()", "B", "E", "P COPY t FROM STDIN", "B", "E", "H"));
  rig.server(own("BEGIN") + guarded() + done("CALL") + parse_complete() + bind_complete() + copy_in());
  rig.client(copy_data("1\n") + copy_done() + sync());
  EXPECT_THAT(rig.sent(), ElementsAre("d", "c", "[commit]", "S"));
  rig.server(complete("COPY 1") + own("COMMIT") + ready('I'));
  EXPECT_THAT(rig.told(), ElementsAre("1", "2", "C CALL", "1", "2", "G", "C COPY 1", "Z I"));
}

// … whose own Sync asks for the answers.
TEST(PgGuardedCopy, DataInFrontOfASecondOneThatReadsNoneIsDropped) {
  for (const auto& data : {copy_done(), copy_data("1\n"), wire::encode_pg_message('f', "no\0"s)}) {
    guarded_rig rig;
    rig.client(statement("COPY t TO STDOUT") + data + statement("COPY t TO STDOUT") + sync());
    EXPECT_THAT(rig.sent(), ElementsAre("[guard]", "P COPY t TO STDOUT", "B", "E", "H"));
    rig.server(guarded() + done("COPY 0"));
    EXPECT_THAT(rig.sent(), ElementsAre("P COPY t TO STDOUT", "B", "E", "H"));
    rig.server(done("COPY 0"));
    EXPECT_THAT(rig.sent(), ElementsAre("S"));
    rig.server(ready('I'));
    EXPECT_TRUE(rig.machine.idle());
  }
}

}  // namespace
}  // namespace fencegate
