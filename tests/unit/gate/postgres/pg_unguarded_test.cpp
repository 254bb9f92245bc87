// What monitor mode says of a session with guard: transaction is what the guard would refuse there.
#include "gate/postgres/pg_unguarded.hpp"

#include "unit/gate/postgres/guarded_rig.hpp"
#include "unit/gate/postgres/pg_rig.hpp"

namespace fencegate {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

class unguarded_rig {
 public:
  explicit unguarded_rig(gate::pg_session_kind at = pooled) : machine(at) {}

  gate::pg_unguarded machine;

  // Why messages of these would be refused.
  words client(std::string_view messages) {
    words out;
    while (!messages.empty()) {
      const auto head = wire::decode_pg_head(messages).value().value();
      const auto body = messages.substr(wire::pg_head_bytes, head.body_bytes);
      messages.remove_prefix(wire::pg_head_bytes + head.body_bytes);
      const auto there = body.substr(0, limits::pg_statement_buffered_bytes_max);
      if (const auto why = machine.on_message(head.type, there, body.size()); !why.empty()) out.emplace_back(why);
    }
    return out;
  }
};

std::string large_script() { return query("SELECT 1;INSERT" + std::string(limits::pg_gathered_bytes_max, ' ')); }

// Each is one segment, or begins with one that is harmless.
const std::vector<std::string> refused_by_both{
    query("PREPARE TRANSACTION 'x'"),
    query("INSERT; /**/ prepare transaction 'x'; PREPARE TRANSACTION 'y'"),
    parse("", "PREPARE TRANSACTION 'x'") + bind_to("") + execute() + sync(),
    query(large_sql("PREPARE TRANSACTION 'x'", "")),
    parse("s", "COMMIT AND CHAIN") + sync(),
    parse("s", "ROLLBACK TO a") + bind_to("s") + execute() + sync(),
    bind_to("s") + execute() + sync(),
    statement("CALL p()") + statement("COMMIT AND CHAIN") + sync(),
    statement("DO 'x'") + statement("EXECUTE s") + sync(),
    statement("COMMIT AND CHAIN") + statement("CALL p()") + statement("CALL p()") + sync(),
    query("COMMIT AND CHAIN; CALL p()"),
    query("CALL p(); SAVEPOINT a"),
    query("SET standard_conforming_strings = off; INSERT '\\'"),
    query("SET NAMES 'LATIN1'; INSERT '\xE9'"),
    large_script(),
    parse("_fencegate", "SELECT 1") + sync(),
    parse("", "SELECT 1") + bind_to("", "_fencegate_1") + execute("_fencegate_1") + sync()};
const std::vector<std::string> refused_behind_a_pooler{query("PREPARE s AS SELECT 1"),
                                                       parse("", "PREPARE s AS SELECT 1") + sync()};
const std::vector<std::string> refused_by_none{
    query("INSERT"),
    query("BEGIN; CALL p(); SAVEPOINT a; ROLLBACK TO a; COMMIT"),
    query("CALL p(); CALL p()"),
    query("SET standard_conforming_strings = off"),
    query("INSERT '\\'"),
    query(large_sql("INSERT", "")),
    statement("COMMIT AND CHAIN") + sync(),
    statement("BEGIN") + statement("COMMIT AND CHAIN") + sync(),
    parse("s", "CALL p()") + bind_to("s") + describe_portal() + execute() + close_statement("s") + sync(),
    parse("s", "COMMIT") + sync(),
    describe_statement("s") + sync(),
    copy_data("x") + sync() + flush()};

TEST(PgUnguarded, SaysWhatTheGuardRefuses) {
  for (const auto at : {direct, pooled}) {
    const auto agree = [at](const std::string& messages, bool is_refused) {
      guarded_rig enforcing(at);
      enforcing.client(messages);
      const auto says = unguarded_rig(at).client(messages);
      EXPECT_THAT(says, ElementsAreArray(enforcing.refused)) << messages.substr(0, 100);
      EXPECT_EQ(says.size(), is_refused ? 1U : 0U) << messages.substr(0, 100);
    };
    for (const auto& one : refused_by_both) agree(one, true);
    for (const auto& one : refused_behind_a_pooler) agree(one, at == pooled);
    for (const auto& one : refused_by_none) agree(one, false);
  }
}

TEST(PgUnguarded, ANameIsKnownInTheSessionOrBehindAPoolerInItsTransaction) {
  const auto binds = bind_to("s") + execute() + sync();
  unguarded_rig mine(direct), lent;
  for (auto* rig : {&mine, &lent}) {
    EXPECT_THAT(rig->client(parse("s", "SELECT 1") + sync()), IsEmpty());
    rig->machine.on_ready('I');
  }
  EXPECT_THAT(mine.client(binds), IsEmpty());
  EXPECT_THAT(lent.client(binds), ElementsAre(HasSubstr("behind a pooler")));
  EXPECT_THAT(lent.client(query("BEGIN")), IsEmpty());
  lent.machine.on_ready('T');
  EXPECT_THAT(lent.client(binds), ElementsAre(HasSubstr("behind a pooler")));
  EXPECT_THAT(lent.client(parse("s", "SELECT 1") + sync()), IsEmpty());
  lent.machine.on_ready('T');
  EXPECT_THAT(lent.client(binds), IsEmpty());
  EXPECT_THAT(lent.client(query("COMMIT")), IsEmpty());
  lent.machine.on_ready('I');
  EXPECT_THAT(lent.client(binds), ElementsAre(HasSubstr("behind a pooler")));
  EXPECT_THAT(mine.client(close_statement("s") + sync() + binds), ElementsAre(HasSubstr("not known")));
}

TEST(PgUnguarded, AFunctionCallStandsNotBehindWhatMayHaveEndedTheTransaction) {
  unguarded_rig rig;
  EXPECT_THAT(rig.client(statement("EXECUTE s") + call_function()), ElementsAre(HasSubstr("a function call")));
  rig.machine.on_ready('I');
  EXPECT_THAT(rig.client(call_function()), IsEmpty());
}

// … which the server skips.
TEST(PgUnguarded, SaysNothingOfWhatFollowsAnError) {
  unguarded_rig rig;
  EXPECT_THAT(rig.client(statement("SELECT 1/0")), IsEmpty());
  rig.machine.on_error();
  EXPECT_THAT(rig.client(bind_to("s") + query("PREPARE TRANSACTION 'x'")), IsEmpty());
  EXPECT_THAT(rig.client(sync()), IsEmpty());
  rig.machine.on_ready('I');
  EXPECT_THAT(rig.client(query("PREPARE TRANSACTION 'x'")).size(), 1U);
}

TEST(PgUnguarded, KnowsOfAFailedBlockByTheServersWord) {
  unguarded_rig rig;
  EXPECT_THAT(rig.client(query("BEGIN") + query("SELECT 1/0")), IsEmpty());
  rig.machine.on_ready('E');
  EXPECT_THAT(rig.client(statement("ROLLBACK TO a") + statement("CALL p()") + sync()).size(), 1U);
}

// ── in the session

settings::postgres_gate behind_pooler_monitored() {
  auto out = behind_pooler();
  out.policy.mode = fence::enforcement::monitor;
  return out;
}

TEST(PgUnguarded, OfASessionEverythingGoesOnAndIsReported) {
  for (const auto& message : refused_by_both) {
    pg_rig rig(behind_pooler_monitored());
    rig.log_in("orders=34");
    ASSERT_TRUE(rig.engine.relaying());
    rig.forget();
    rig.host.reports.clear();
    rig.host.reported_about.clear();
    rig.client(message);
    EXPECT_EQ(rig.engine.to_backend, message);
    EXPECT_THAT(rig.answers(), IsEmpty());
    EXPECT_THAT(rig.host.reports, ElementsAre("refused statement (monitor)")) << message.substr(0, 100);
    EXPECT_THAT(rig.host.reported_about, ElementsAre("orders 34 null"));
  }
}

TEST(PgUnguarded, OfASessionWithoutATokenNothingIsSaid) {
  auto gate = behind_pooler_monitored();
  gate.policy.missing = fence::missing_token::allow;
  for (const auto& message : refused_by_both) {
    pg_rig rig(gate);
    rig.log_in("");
    rig.client(message);
    EXPECT_THAT(rig.host.reports, IsEmpty()) << message.substr(0, 100);
  }
}

TEST(PgUnguarded, ANameThatAPoolerTellsIsReportedUntilItIsMended) {
  pg_rig rig(behind_pooler_monitored());
  rig.log_in("orders=34");
  rig.host.reports.clear();
  rig.server(parameter("application_name", "fence:orders=35"));
  rig.client(statement("INSERT") + sync() + query("SELECT 1; INSERT") + query("RESET application_name"));
  EXPECT_THAT(rig.host.reports, ElementsAre("malformed statement (monitor)", "malformed statement (monitor)"));
  rig.server(done("INSERT 0 1") + ready('I') + parameter("application_name", "mended"));
  rig.client(query("INSERT"));
  EXPECT_EQ(rig.host.reports.size(), 2U);
}

TEST(PgUnguarded, OfASessionNamesAndErrorsAreFollowed) {
  pg_rig rig(behind_pooler_monitored());
  rig.log_in("orders=34");
  rig.host.reports.clear();
  rig.client(query("BEGIN"));
  rig.server(complete("BEGIN") + ready('T'));
  rig.client(parse("s", "SELECT 1") + sync());
  rig.server(parse_complete() + ready('T'));
  rig.client(bind_to("s") + execute() + sync());
  rig.server(bind_complete() + complete("SELECT 1") + ready('T'));
  rig.client(parse("", "SELECT 1/0"));
  rig.server(fails());
  rig.client(bind_to("t") + execute() + sync());
  rig.server(ready('E'));
  EXPECT_THAT(rig.host.reports, IsEmpty());
  rig.client(bind_to("t") + execute() + sync());
  rig.server(fails() + ready('E'));
  EXPECT_THAT(rig.host.reports, ElementsAre("refused statement (monitor)"));
  rig.client(query("ROLLBACK"));
  rig.server(complete("ROLLBACK") + ready('I'));
  rig.client(bind_to("s") + execute() + sync());
  EXPECT_EQ(rig.host.reports.size(), 2U);
}

}  // namespace
}  // namespace fencegate
