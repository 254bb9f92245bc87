// How a session ends when the server ends it: what the client is told, and what is claimed about its last statements.
#include "unit/gate/postgres/pg_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using backend::ended_registration;
using testing::ElementsAre;
using testing::IsEmpty;

enum class way : std::uint8_t { fatal, warning, bare };

void end(pg_rig& rig, way how) {
  if (how == way::fatal) rig.server(shut_down());
  if (how == way::warning) rig.server(warning_of("57P01", "canceling the wait for synchronous replication"));
  rig.server_ends();
}

std::optional<std::vector<ended_registration>> superseded() {
  return {{{{"orders", fence::token(34)}, fence::token(35), false}}};
}
std::optional<std::vector<ended_registration>> raising() {
  return {{{{"orders", fence::token(34)}, fence::token(34), true}}};
}
std::optional<std::vector<ended_registration>> still_holds() {
  return {{{{"orders", fence::token(34)}, fence::token(34), false}}};
}

// What the client hears when it speaks again.
words heard(pg_rig& rig) {
  EXPECT_TRUE(rig.engine.parting());
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.client(query("SELECT 1"));
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.sent(), IsEmpty());
  return rig.answers();
}

// What is in flight when the end comes.
struct moment {
  const char* name;
  std::string next;  // what the client says next; "": it waits for an answer
  void (*arrange)(pg_rig&);
  bool certain_with_error;     // a FATAL error proves that nothing was applied
  bool certain_without_error;  // … and so does any end
};

const moment moments[] = {
    {"idle", query("SELECT"), [](pg_rig&) {}, true, true},
    {"idle in a transaction", query("COMMIT"), [](pg_rig& rig) { rig.run("BEGIN", "BEGIN", 'T'); }, true, true},
    {"autocommit", "", [](pg_rig& rig) { rig.client(query("INSERT")); }, false, false},
    {"in a transaction", "",
     [](pg_rig& rig) {
       rig.run("BEGIN", "BEGIN", 'T');
       rig.client(query("INSERT"));
     },
     true, false},
    {"COMMIT that was not answered", "",
     [](pg_rig& rig) {
       rig.run("BEGIN", "BEGIN", 'T');
       rig.client(query("COMMIT"));
     },
     true, false},
    {"COMMIT that was answered, without ReadyForQuery", "",
     [](pg_rig& rig) {
       rig.run("BEGIN", "BEGIN", 'T');
       rig.client(query("COMMIT"));
       rig.server(complete("COMMIT"));
     },
     false, false},
    {"ROLLBACK, and a statement behind it that commits by itself", "",
     [](pg_rig& rig) {
       rig.run("BEGIN", "BEGIN", 'T');
       rig.client(query("ROLLBACK; INSERT"));
       rig.server(complete("ROLLBACK") + complete("INSERT 0 1"));
     },
     false, false},
    {"extended, without Sync", bind_to("") + execute() + sync(),
     [](pg_rig& rig) { rig.client(parse("", "INSERT") + bind_to("") + execute()); }, false, false},
    {"data of a COPY", copy_data("1\n").substr(6),
     [](pg_rig& rig) {
       rig.client(query("COPY"));
       rig.server(copy_in());
       rig.client(copy_data("1\n").substr(0, 6));
     },
     false, false},
};

TEST(PgEngineEnd, SaysNotAppliedOnlyWhereThatIsCertain) {
  for (const auto& at : moments)
    for (const way how : {way::fatal, way::warning, way::bare}) {
      pg_rig rig;
      rig.serve();
      at.arrange(rig);
      rig.forget();
      rig.host.registrations = superseded();
      end(rig, how);
      const bool certain = at.certain_without_error || (how == way::fatal && at.certain_with_error);
      EXPECT_EQ(rig.engine.parting(), !at.next.empty()) << at.name;
      EXPECT_EQ(rig.engine.to_backend, "");
      rig.client(at.next);
      EXPECT_THAT(rig.answers(),
                  ElementsAre(std::string("E FATAL ZF001 applied ") + (certain ? "no" : "unknown"), "Z I"))
          << at.name << ", " << static_cast<int>(how);
      EXPECT_THAT(rig.host.cuts, ElementsAre(std::string("orders 34 35 ") + (certain ? "no" : "unknown"))) << at.name;
      EXPECT_TRUE(rig.engine.closing());
    }
}

TEST(PgEngineEnd, WaitsForARaiseThatIsUnderWay) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = raising();
  end(rig, way::fatal);
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.fire_timer();
  EXPECT_THAT(rig.answers(), IsEmpty());
  rig.host.registrations = superseded();
  rig.fire_timer();
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL ZF001 applied no", "Z I"));
}

// Behind a pooler nobody says that a raise is under way: its mark is waited for.
TEST(PgEngineEnd, BehindAPoolerAMarkThatRisesSoonIsTheReason) {
  const auto pooled = behind_pooler();
  for (const bool rises : {true, false}) {
    pg_rig rig(pooled);
    rig.log_in("orders=34");
    rig.forget();
    rig.host.marks = *fence::parse_tag("orders=34");
    end(rig, way::fatal);
    const auto ended = rig.host.clock;
    EXPECT_THAT(rig.answers(), IsEmpty());
    rig.fire_timer();
    EXPECT_THAT(rig.answers(), IsEmpty());
    if (rises) rig.host.marks = *fence::parse_tag("orders=35");
    while (rig.host.timer) rig.fire_timer();
    EXPECT_LT(rig.host.clock - ended, std::chrono::seconds(4));
    EXPECT_THAT(heard(rig), ElementsAre(rises ? "E FATAL ZF001 applied no" : "E FATAL 57P01 applied no", "Z I"));
  }
}

// The server's rows are gone, but the marks say it.
TEST(PgEngineEnd, MarksTellWhatRegistrationsForgot) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations.emplace();
  rig.host.marks = *fence::parse_tag("orders=35");
  end(rig, way::fatal);
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL ZF001 applied no", "Z I"));
}

TEST(PgEngineEnd, ARaiseThatFailedIsNamed) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = raising();
  end(rig, way::fatal);
  rig.host.registrations = still_holds();
  rig.fire_timer();
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL ZF006 applied no", "Z I"));
  EXPECT_THAT(rig.host.cuts, IsEmpty());
}

TEST(PgEngineEnd, AnAdministratorsEndIsTheServersOwnWords) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = still_holds();
  end(rig, way::fatal);
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL 57P01 applied no", "Z I"));
  EXPECT_THAT(rig.host.cuts, IsEmpty());
}

TEST(PgEngineEnd, ABareEndWithSomethingInFlightIsUnknown) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = still_holds();
  rig.client(query("INSERT"));
  end(rig, way::bare);
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 08006", "Z I"));
}

TEST(PgEngineEnd, AServerThatCannotBeAskedIsGivenUpInTime) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = std::nullopt;
  end(rig, way::fatal);
  const auto ended = rig.host.clock;
  while (!rig.engine.parting()) rig.fire_timer();
  EXPECT_LT(rig.host.clock - ended, std::chrono::seconds(3));
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL 57P01 applied no", "Z I"));
}

TEST(PgEngineEnd, NothingIsSaidInsideAMessageThatIsHalfSent) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = superseded();
  rig.client(query("SELECT"));
  const auto half = row({std::string(100, 'x')}).substr(0, 50);
  rig.server(half);
  rig.server_ends();
  EXPECT_EQ(rig.engine.to_client, half);
  EXPECT_TRUE(rig.engine.closing());
}

// A function may raise what it likes: only an error that ends the session is the server's.
TEST(PgEngineEnd, ErrorsOfStatementsPassWhateverTheirState) {
  pg_rig rig;
  rig.serve();
  rig.client(query("SELECT f()"));
  rig.forget();
  rig.server(error_of("ERROR", "57P01") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("E ERROR 57P01", "Z I"));
  EXPECT_TRUE(rig.engine.at_rest());
}

TEST(PgEngineEnd, WarningsThatAreNotTheLastWordPassInTheirOrder) {
  pg_rig rig;
  rig.serve();
  rig.client(query("SELECT f()"));
  rig.forget();
  rig.server(warning_of("57P01"));
  rig.server(warning_of("57P01") + error_of("ERROR", "22000") + ready('I'));
  EXPECT_THAT(rig.answers(), ElementsAre("N WARNING 57P01", "N WARNING 57P01", "E ERROR 22000", "Z I"));
  rig.server(warning_of("57P01"));
  rig.server(error_of("ERROR", "22000"));
  EXPECT_THAT(rig.answers(), ElementsAre("N WARNING 57P01", "E ERROR 22000"));
}

TEST(PgEngineEnd, OtherFatalErrorsPass) {
  pg_rig rig;
  rig.serve();
  rig.server(error_of("FATAL", "57P05"));
  rig.server_ends();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P05"));
  EXPECT_EQ(rig.host.asked, 0);
}

// No raise ends a session by them: nothing is asked.
TEST(PgEngineEnd, TimeoutsOfTheServerPassWithGuardedTransactionsToo) {
  for (const std::string state : {"25P03", "25P04", "57P05"}) {
    const auto pooled = behind_pooler();
    pg_rig rig(pooled);
    rig.log_in("orders=34");
    rig.forget();
    rig.host.marks = *fence::parse_tag("orders=34");
    rig.server(error_of("FATAL", state));
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL " + state));
    rig.server_ends();
    EXPECT_TRUE(rig.engine.closing());
    EXPECT_FALSE(rig.host.timer);
  }
}

TEST(PgEngineEnd, AsksSeldomerTheLongerARaiseTakes) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = raising();
  end(rig, way::fatal);
  const auto ended = rig.host.clock;
  int looks = 0;
  for (; rig.host.clock - ended < std::chrono::seconds(3); ++looks) rig.fire_timer();
  EXPECT_LT(looks, 30);
}

// Who sends no Sync may wait for the end of the connection.
TEST(PgEngineEnd, WhoWasToldAndSaysNothingMoreIsNotKept) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("", "INSERT") + bind_to("") + execute());
  rig.host.registrations = superseded();
  end(rig, way::fatal);
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied unknown"));
  EXPECT_TRUE(rig.engine.parting());
  rig.fire_timer();
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_THAT(rig.answers(), IsEmpty());
}

TEST(PgEngineEnd, TheSyncThatACopyIgnoredIsAnswered) {
  pg_rig rig;
  rig.serve();
  rig.client(parse("", "COPY t FROM STDIN") + bind_to("") + execute() + sync());
  rig.server(parse_complete() + bind_complete() + copy_in());
  rig.forget();
  rig.host.registrations = superseded();
  end(rig, way::fatal);
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied unknown", "Z I"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineEnd, AClientThatSaidTerminateIsToldNothing) {
  pg_rig rig;
  rig.serve();
  rig.client(wire::encode_pg_message('X', ""));
  rig.server_ends();
  EXPECT_THAT(rig.answers(), IsEmpty());
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineEnd, AnAnswerThatComesLateIsNobodys) {
  pg_rig rig;
  rig.serve();
  rig.host.hold_answers = true;
  rig.host.registrations = superseded();
  end(rig, way::fatal);
  rig.engine.on_timer();  // asks a second time
  rig.host.answer_next();
  rig.host.answer_next();
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL ZF001 applied no", "Z I"));
  EXPECT_THAT(rig.host.cuts, ElementsAre("orders 34 35 no"));
}

TEST(PgEngineEnd, ABareEndAtRestIsToldWhenTheClientSpeaks) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = still_holds();
  end(rig, way::bare);
  EXPECT_THAT(heard(rig), ElementsAre("E FATAL 08006", "Z I"));
}

TEST(PgEngineEnd, WhateverTheClientSaysNextIsAnsweredOnce) {
  const auto flushed = parse("", "SELECT") + flush();
  for (const auto& [next, told] : std::vector<std::pair<std::string, words>>{
           {parse("", "SELECT") + bind_to("") + execute() + sync() + query("SELECT"),
            {"E FATAL ZF001 applied no", "Z I"}},
           {flushed, {"E FATAL ZF001 applied no"}},
           {flushed + sync(), {"E FATAL ZF001 applied no", "Z I"}},
           {wire::encode_pg_message('F', "x"), {"E FATAL ZF001 applied no", "Z I"}},
           {query(std::string(1'000'000, ' ')), {"E FATAL ZF001 applied no", "Z I"}},
           {query("SELECT").substr(0, 8), {}},
           {parse("", "SELECT") + copy_data("x"), {}},
           {wire::encode_pg_message('X', ""), {}},
           {"Q\0\0\0\0"s, {}}}) {
    pg_rig rig;
    rig.serve();
    rig.host.registrations = superseded();
    end(rig, way::fatal);
    for (std::size_t at = 0; at < next.size(); at += 1000) rig.client(next.substr(at, 1000));
    EXPECT_THAT(rig.answers(), testing::ElementsAreArray(told));
    EXPECT_EQ(rig.engine.closing(), told.size() == 2 || next[0] == 'X' || next.size() == 5) << next.substr(0, 9);
  }
}

TEST(PgEngineEnd, WhoWaitsIsToldWhenItsPlaceIsNeeded) {
  for (const bool drains : {false, true}) {
    pg_rig rig;
    rig.serve();
    rig.host.registrations = superseded();
    end(rig, way::fatal);
    if (drains)
      rig.engine.drain();
    else
      rig.engine.give_up();
    EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied no"));
    EXPECT_TRUE(rig.engine.closing());
  }
}

TEST(PgEngineEnd, ALostLeaseEndsItLikeAHigherMark) {
  for (const auto& at : moments) {
    pg_rig rig;
    rig.serve();
    at.arrange(rig);
    rig.forget();
    rig.engine.lose_lease();
    EXPECT_EQ(rig.engine.parting(), !at.next.empty()) << at.name;
    EXPECT_EQ(rig.engine.to_backend, "");
    rig.client(at.next);
    EXPECT_THAT(
        rig.answers(),
        ElementsAre(std::string("E FATAL 57P03 applied ") + (at.certain_without_error ? "no" : "unknown"), "Z I"))
        << at.name;
    EXPECT_TRUE(rig.engine.closing());
  }
}

TEST(PgEngineEnd, ALostLeaseEndsWhatHasNotBegun) {
  pg_rig rig;
  rig.engine.lose_lease();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P03"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineEnd, AnArmThatARaiseEndsIsStale) {
  for (const bool rises : {true, false})
    for (const bool at_start : {true, false}) {
      pg_rig rig;
      if (at_start) {
        rig.log_in("orders=34");
      } else {
        rig.serve("33");
        rig.client(query("/*fence:orders=34*/ INSERT"));
      }
      rig.forget();
      rig.host.registrations.emplace();
      end(rig, way::fatal);
      EXPECT_THAT(rig.answers(), IsEmpty());
      if (rises) rig.host.marks = *fence::parse_tag("orders=35");
      while (rig.host.timer && !rig.engine.closing()) rig.fire_timer();
      const std::string said = rises ? "E FATAL ZF001 applied no" : "E FATAL ZF006 applied no";
      EXPECT_THAT(rig.answers(), at_start ? words{said} : words({said, "Z I"})) << rises << at_start;
      EXPECT_TRUE(rig.engine.closing());
    }
}

TEST(PgEngineEnd, AClientThatIsIdleForTooLongIsTold) {
  pg_rig rig;
  EXPECT_FALSE(rig.engine.idles()) << "it has not begun";
  rig.serve();
  EXPECT_TRUE(rig.engine.idles());
  rig.client(query("SELECT 1"));
  EXPECT_FALSE(rig.engine.idles()) << "the server is at work";
  rig.server(complete("SELECT 1") + ready('I'));
  rig.forget();
  rig.engine.end_idle();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P05"));
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_FALSE(rig.engine.idles());
}

TEST(PgEngineEnd, AClientThatIsIdleInTheMiddleOfAGatheredMessageIsTold) {
  pg_rig rig(behind_pooler());
  rig.log_in("orders=34");
  rig.forget();
  const auto message = query("SELECT 1;" + large_sql("UPDATE", ";INSERT"));
  rig.client(message.substr(0, message.size() - 1));
  ASSERT_NE(rig.engine.gathers(), 0U);
  EXPECT_TRUE(rig.engine.idles());
  rig.engine.end_idle();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P05"));
  EXPECT_TRUE(rig.engine.closing());
  EXPECT_FALSE(rig.engine.idles());
  EXPECT_THAT(rig.sent(), IsEmpty());
}

TEST(PgEngineEnd, AClientThatIsIdleBehindTheEndOfItsSessionIsToldWhy) {
  pg_rig rig;
  rig.serve();
  rig.host.registrations = superseded();
  end(rig, way::fatal);
  ASSERT_TRUE(rig.engine.parting());
  EXPECT_TRUE(rig.engine.idles());
  rig.engine.end_idle();
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL ZF001 applied no"));
  EXPECT_TRUE(rig.engine.closing());
}

TEST(PgEngineEnd, MonitorPassesTheServersWordsOn) {
  pg_rig rig(monitoring());
  rig.log_in("orders=34");
  rig.forget();
  end(rig, way::fatal);
  EXPECT_THAT(rig.answers(), ElementsAre("E FATAL 57P01"));
  EXPECT_TRUE(rig.engine.closing());
}

}  // namespace
}  // namespace fencegate
