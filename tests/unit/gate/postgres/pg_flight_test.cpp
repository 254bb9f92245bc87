#include "gate/postgres/pg_flight.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using gate::pg_flight;

void send(pg_flight& flight, std::string_view types) {
  for (const char type : types) flight.on_sent(type);
}

TEST(PgFlight, CountsReadyForQuery) {
  pg_flight flight;
  EXPECT_TRUE(flight.at_boundary());
  send(flight, "QQ");
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_FALSE(flight.idle());
  EXPECT_TRUE(flight.on_ready('T'));
  EXPECT_TRUE(flight.idle());
  EXPECT_FALSE(flight.at_boundary());
  EXPECT_FALSE(flight.on_ready('I'));
}

TEST(PgFlight, ExtendedMessagesWaitForSync) {
  pg_flight flight;
  send(flight, "PBE");
  EXPECT_FALSE(flight.idle());
  EXPECT_TRUE(flight.unsynced());
  EXPECT_FALSE(flight.on_ready('I'));
  send(flight, "S");
  EXPECT_FALSE(flight.unsynced());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());
}

TEST(PgFlight, SimpleCopy) {
  pg_flight flight;
  send(flight, "Q");
  flight.on_copy_in();
  EXPECT_TRUE(flight.copying());
  send(flight, "ddSSHc");
  EXPECT_FALSE(flight.copying());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());
}

TEST(PgFlight, CopyWhoseDataWasSentAhead) {
  pg_flight flight;
  send(flight, "QdcQ");
  flight.on_copy_in();
  EXPECT_FALSE(flight.copying());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_FALSE(flight.idle());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());
}

// The Sync behind Execute is read while the server waits for data, and means nothing.
TEST(PgFlight, ExtendedCopyIgnoresSync) {
  pg_flight flight;
  send(flight, "PBES");
  flight.on_copy_in();
  EXPECT_FALSE(flight.idle());
  send(flight, "ddcS");
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());
  EXPECT_FALSE(flight.on_ready('I'));
}

TEST(PgFlight, ExtendedCopyWhoseDataWasSentAheadLacksASync) {
  pg_flight flight;
  send(flight, "PBESdc");
  flight.on_copy_in();
  EXPECT_FALSE(flight.copying());
  flight.on_complete("COPY 1");
  EXPECT_TRUE(flight.unsynced()) << "its transaction is open";
  EXPECT_FALSE(flight.idle());
  send(flight, "S");
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());

  send(flight, "PBESdcS");
  flight.on_copy_in();
  EXPECT_FALSE(flight.unsynced());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.at_boundary());
}

TEST(PgFlight, CopyThatFailsBeforeTheServerReadTheSync) {
  pg_flight flight;
  send(flight, "PBES");
  flight.on_copy_in();
  flight.on_error();
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.idle());
}

TEST(PgFlight, CopyThatFailsWhileDataIsSent) {
  pg_flight flight;
  send(flight, "PBES");
  flight.on_copy_in();
  send(flight, "dd");
  flight.on_error();
  send(flight, "dcS");
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.idle());
}

// The server skips it: nothing is awaited for it.
TEST(PgFlight, AnEndOfDataBehindTheSyncOfACopyThatFails) {
  pg_flight flight;
  send(flight, "PBESc");
  flight.on_error();
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.idle());
}

TEST(PgFlight, SyncsAmidDataOfACopyThatFailsCannotBeCounted) {
  pg_flight flight;
  send(flight, "PBES");
  flight.on_copy_in();
  send(flight, "dS");
  flight.on_error();
  send(flight, "cS");
  EXPECT_FALSE(flight.certain());
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_FALSE(flight.at_boundary());
}

TEST(PgFlight, AQueryBehindUnsyncedMessagesMayBeSkippedBehindAnError) {
  pg_flight flight;
  send(flight, "PBEQ");
  EXPECT_TRUE(flight.certain());
  flight.on_error();
  EXPECT_FALSE(flight.certain());
  send(flight, "S");
  EXPECT_TRUE(flight.on_ready('I'));
  EXPECT_FALSE(flight.at_boundary());
}

TEST(PgFlight, DropsTheRepliesToInjectedStatementsOnly) {
  pg_flight flight;
  send(flight, "PBPB");
  flight.on_injected_statement();
  send(flight, "ES");
  EXPECT_FALSE(flight.on_statement_reply('1'));
  EXPECT_FALSE(flight.on_statement_reply('2'));
  EXPECT_TRUE(flight.on_statement_reply('1'));
  EXPECT_TRUE(flight.on_statement_reply('2'));
}

// Replies that an error kept from coming do not shift the count of those behind the next Sync.
TEST(PgFlight, SkippedRepliesDoNotShiftTheCount) {
  pg_flight flight;
  send(flight, "PBPB");
  flight.on_injected_statement();
  send(flight, "ES");
  flight.on_error();
  EXPECT_TRUE(flight.on_ready('I'));
  send(flight, "PBES");
  EXPECT_FALSE(flight.on_statement_reply('1'));
  EXPECT_FALSE(flight.on_statement_reply('2'));
}

TEST(PgFlight, RepliesSkippedByACopyDoNotShiftTheCount) {
  pg_flight flight;
  send(flight, "PBEPBS");
  flight.on_copy_in();
  flight.on_error();
  EXPECT_TRUE(flight.on_ready('I'));
  send(flight, "PB");
  flight.on_injected_statement();
  EXPECT_TRUE(flight.on_statement_reply('1'));
  EXPECT_TRUE(flight.on_statement_reply('2'));
}

TEST(PgFlight, KnowsWhatCannotHaveBeenCommitted) {
  pg_flight flight;
  send(flight, "Q");
  EXPECT_FALSE(flight.uncommitted()) << "a statement outside a transaction commits by itself";
  EXPECT_TRUE(flight.on_ready('T'));
  send(flight, "Q");
  EXPECT_TRUE(flight.uncommitted());
  for (const char* tag : {"COMMIT", "ROLLBACK", "PREPARE TRANSACTION", "CALL", "DO"}) {
    flight.on_complete(tag);
    EXPECT_FALSE(flight.uncommitted()) << tag;
    EXPECT_TRUE(flight.on_ready('T'));
    EXPECT_TRUE(flight.uncommitted());
    send(flight, "Q");
  }
}

}  // namespace
}  // namespace fencegate
