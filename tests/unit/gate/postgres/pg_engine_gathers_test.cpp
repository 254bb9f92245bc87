// guard: transaction: a large Query of several statements, which is held until it is there as a whole.
#include "base/limits.hpp"
#include "unit/gate/postgres/pg_rig.hpp"

#include <list>

namespace fencegate {
namespace {

using namespace test;
using test::operator+;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

const std::string blanks(limits::pg_statement_buffered_bytes_max, ' ');

// Wherever it is cut, and whatever else the server says meanwhile.
TEST(PgEngineGathers, ALargeQueryOfSeveralStatementsIsSentWhenAllOfItIsThere) {
  const auto message = query("SELECT 1;UPDATE" + blanks + ";" + blanks + "INSERT");
  const std::size_t read = limits::pg_statement_buffered_bytes_max;
  for (const std::size_t at : {std::size_t{1}, wire::pg_head_bytes, read - 1, read, read + 1, read + 17, 2 * read,
                               message.size() - 2, message.size() - 1}) {
    pg_rig rig(behind_pooler());
    rig.log_in("orders=34");
    rig.forget();
    rig.client(message.substr(0, at));
    rig.server(parameter("TimeZone", "UTC") + wire::encode_pg_message('N', "SNOTICE\0C01000\0Mm\0\0"s));
    EXPECT_EQ(rig.engine.to_backend, "") << at;
    EXPECT_EQ(rig.engine.gathers(), at < read ? 0U : message.size());
    EXPECT_FALSE(rig.engine.blocked()) << "the rest is read";
    rig.client(message.substr(at));
    EXPECT_THAT(rig.sent(), ElementsAreArray(own_words("GUARD orders 34") + words{"P SELECT 1", "B", "D", "E"} +
                                             words{"P " + std::to_string(blanks.size() + 6) + " bytes", "B", "D", "E"} +
                                             words{"H"}));
    EXPECT_EQ(rig.engine.gathers(), 0U);
    EXPECT_EQ(rig.engine.from_client.capacity(), 0U);
    rig.forget();
    rig.server(own("SELECT 1", {"t"}) + parse_complete() + bind_complete() + no_data() + complete("SELECT 1") +
               parse_complete() + bind_complete() + no_data() + complete("UPDATE 1"));
    EXPECT_THAT(rig.sent(), ElementsAre("P " + std::to_string(blanks.size() + 6) + " bytes", "B", "D", "E", "C", "S"));
    rig.server(parse_complete() + bind_complete() + no_data() + complete("INSERT 0 1") + close_complete() + ready('I'));
    EXPECT_THAT(rig.answers(), ElementsAre("C SELECT 1", "C UPDATE 1", "C INSERT 0 1", "Z I"));
    EXPECT_TRUE(rig.engine.at_rest());
  }
}

TEST(PgEngineGathers, WhatComesBehindALargeQueryKeepsNoMemoryOfIt) {
  pg_rig rig(behind_pooler());
  rig.log_in("orders=34");
  rig.client(query("SELECT 1;UPDATE" + blanks) + query("SHOW a"));
  EXPECT_LT(rig.engine.from_client.capacity(), 100U);
}

TEST(PgEngineGathers, ASessionThatEndsMeanwhileIsToldBehindTheMessage) {
  pg_rig rig(behind_pooler());
  rig.log_in("orders=34");
  rig.forget();
  const auto message = query("SELECT 1;UPDATE" + blanks);
  rig.client(message.substr(0, message.size() - 5));
  EXPECT_EQ(rig.engine.gathers(), message.size());
  rig.server_ends_for_good();
  EXPECT_TRUE(rig.engine.parting());
  EXPECT_EQ(rig.engine.gathers(), 0U);
  EXPECT_TRUE(rig.engine.from_client.empty());
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.client(message.substr(message.size() - 5));
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08006", "Z I"));
}

// All sessions together hold no more: one that would is refused, whose first byte has reached nobody, and goes on.
TEST(PgEngineGathers, ALargeQueryThatFindsNoRoomIsRefused) {
  const auto message = query("SELECT 1;UPDATE" + std::string(limits::pg_gathered_bytes_max - 30, ' '));
  ASSERT_LE(message.size(), limits::pg_gathered_bytes_max);
  std::list<pg_rig> others;
  for (std::size_t held = 0; held + message.size() <= limits::pg_gathered_of_process_bytes_max + message.size();
       held += message.size() - 1) {
    auto& one = others.emplace_back(behind_pooler());
    one.log_in("orders=34");
    one.forget();
    one.client(message.substr(0, message.size() - 1));
  }
  EXPECT_EQ(others.front().engine.to_backend, "") << "it has found room";
  pg_rig late(behind_pooler());
  late.log_in("orders=34");
  late.forget();
  late.client(message.substr(0, message.size() / 2));
  EXPECT_THAT(late.sent(), ElementsAreArray(own_words("FAIL ZF007") + words{"S"}));
  late.client(message.substr(message.size() / 2) + query("SHOW a"));
  EXPECT_THAT(late.sent(), IsEmpty());
  late.server(error_of("ERROR", "ZF007") + ready('I'));
  EXPECT_THAT(late.sent(), ElementsAre("Q SHOW a"));
  EXPECT_THAT(late.answers(), ElementsAre("E ERROR ZF007", "Z I"));
  others.clear();
  pg_rig again(behind_pooler());
  again.log_in("orders=34");
  again.forget();
  again.client(message.substr(0, message.size() / 2));
  EXPECT_EQ(again.engine.to_backend, "") << "there is room again";
}

}  // namespace
}  // namespace fencegate
