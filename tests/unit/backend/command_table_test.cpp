// What the gate makes of redis-server 7.0's own answer to COMMAND.
#include "backend/command_roles.hpp"
#include "unit/backend/recorded_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::shared_ptr<const command_table>& table() {
  static const auto built = test::commands_of_redis_7();
  return built;
}

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> out;
  while (!words.empty()) {
    const auto end = std::min(words.find(' '), words.size());
    out.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

const command_spec& spec_of(std::string_view line) {
  const auto words = split(line);
  return table()->find(words[0], words.size() > 1 ? words[1] : std::string_view{});
}

// The keys as text; "?" = the server has to be asked, "invalid" = does not fit.
std::vector<std::string> keys_of(std::string_view line) {
  const auto words = split(line);
  std::vector<std::size_t> keys;
  const auto found = find_keys(spec_of(line), words, keys);
  std::vector<std::string> out;
  for (const auto at : keys) out.emplace_back(words.at(at));
  if (found == key_search::ask_server) out.emplace_back("?");
  if (found == key_search::invalid) out.emplace_back("invalid");
  return out;
}

// Every command and subcommand of the recording, with its flags.
void for_each_command(const wire::reply_value& list,
                      const std::function<void(std::string_view, const std::vector<std::string_view>&)>& visit) {
  for (const auto& entry : list.elements) {
    std::vector<std::string_view> flags;
    for (const auto& flag : entry.elements[2].elements) flags.push_back(flag.text);
    visit(entry.elements[0].text, flags);
    if (entry.elements.size() >= 10) for_each_command(entry.elements[9], visit);
  }
}

bool has(const std::vector<std::string_view>& flags, std::string_view flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

struct recording {
  int version;
  std::size_t writes, all;
};

// All that a real server knows.
class Recorded : public testing::TestWithParam<recording> {
 protected:
  const command_spec& by_full_name(std::string_view name) const {
    const auto bar = name.find('|');
    if (bar == std::string_view::npos) return table_->find(name, {});
    return table_->find(name.substr(0, bar), name.substr(bar + 1));
  }

  const std::string bytes_ = test::command_reply(GetParam().version);
  const wire::reply_value list_ = (*wire::parse_value(bytes_))->first;
  const std::shared_ptr<const command_table> table_ = command_table::build(list_, {}, {}).value();
};

INSTANTIATE_TEST_SUITE_P(Redis, Recorded, testing::Values(recording{7, 108, 366}, recording{8, 119, 394}),
                         [](const auto& of) { return std::to_string(of.param.version); });

TEST_P(Recorded, EveryCommandFlaggedWriteIsFencedOrRefused) {
  std::size_t writes = 0, all = 0;
  for_each_command(list_, [&](std::string_view name, const auto& flags) {
    ++all;
    if (!has(flags, "write")) return;
    ++writes;
    const auto role = by_full_name(name).role;
    EXPECT_TRUE(role == command_role::write || role == command_role::blocking_write || role == command_role::refused)
        << name;
    if (has(flags, "blocking")) {
      EXPECT_NE(role, command_role::write) << name;
    }
  });
  EXPECT_EQ(writes, GetParam().writes);
  EXPECT_EQ(all, GetParam().all);
}

// What is neither readonly nor named in the table of harmless ones is a write: these, and no others.
TEST_P(Recorded, OfTheUnflaggedOnlyScriptsAndPublishWrite) {
  std::vector<std::string> writes;
  for_each_command(list_, [&](std::string_view name, const auto& flags) {
    if (has(flags, "write") || has(flags, "readonly")) return;
    if (by_full_name(name).role == command_role::write) writes.emplace_back(name);
  });
  EXPECT_THAT(writes, testing::UnorderedElementsAre("eval", "evalsha", "fcall", "publish", "spublish"));
}

// Of those without subcommands, which are nobody's to run.
TEST_P(Recorded, WhatNoScriptRunsIsKnownWithoutTheServer) {
  for_each_command(list_, [&](std::string_view name, const auto&) {
    if (name.find('|') == std::string_view::npos && role_by_name(std::string(name) + "|help")) return;
    const auto& spec = by_full_name(name);
    const bool runs = (spec.role == command_role::read || spec.role == command_role::write) && !spec.noscript;
    EXPECT_EQ(never_in_script(name), !runs) << name;
  });
}

// What Redis 8 has more, and no flag tells what it is.
TEST(CommandTable, WhatRedis8AddsWithoutAFlagIsKnownByItsName) {
  const auto of_8 = test::commands_in(test::command_reply(8));
  EXPECT_EQ(of_8->find("waitaof", {}).role, command_role::blocking_read);
  EXPECT_EQ(of_8->find("client", "no-touch").role, command_role::other);
  EXPECT_EQ(of_8->find("client", "setinfo").role, command_role::other);
  EXPECT_EQ(of_8->find("cluster", "myshardid").role, command_role::other);
}

// Before 7.0 COMMAND tells neither of subcommands nor which commands block.
TEST(CommandTable, WhatRedis6DoesNotTellIsKnownByItsName) {
  const auto bytes = test::command_reply(6);
  const auto list = (*wire::parse_value(bytes))->first;
  const auto of_6 = command_table::build(list, {}, {}).value();
  std::size_t writes = 0, all = 0;
  for_each_command(list, [&](std::string_view name, const auto& flags) {
    ++all;
    if (!has(flags, "write")) return;
    ++writes;
    for (const auto* subcommand : {"", "create", "usage", "help"})
      EXPECT_TRUE(backend::writes(of_6->find(name, subcommand).role) ||
                  of_6->find(name, subcommand).role == command_role::refused)
          << name << ' ' << subcommand;
  });
  EXPECT_EQ(writes, 87U);
  EXPECT_EQ(all, 205U);
  for (const auto* name : {"blpop", "brpop", "brpoplpush", "bzpopmin", "bzpopmax", "xreadgroup"})
    EXPECT_EQ(of_6->find(name, {}).role, command_role::blocking_write) << name;
  EXPECT_EQ(of_6->find("xread", {}).role, command_role::blocking_read);
  EXPECT_EQ(of_6->find("xgroup", "create").role, command_role::write);
  for (const auto* name : {"object", "xinfo", "memory"})
    EXPECT_EQ(of_6->find(name, "usage").role, command_role::read) << name;
  EXPECT_EQ(of_6->find("client", "getname").role, command_role::other);
  EXPECT_EQ(of_6->find("client", "setname").role, command_role::client_setname);
  EXPECT_EQ(of_6->find("client", "kill").role, command_role::refused);
  EXPECT_EQ(of_6->find("config", "get").role, command_role::other);
  EXPECT_EQ(of_6->find("config", "set").role, command_role::refused);
  EXPECT_EQ(of_6->find("script", "load").role, command_role::other);
  EXPECT_EQ(of_6->find("role", {}).role, command_role::other);
  EXPECT_TRUE(of_6->find("client", "tracking").stays_with_connection);
  EXPECT_FALSE(of_6->find("client", "getname").stays_with_connection);
}

// 6.2 has it, too.
TEST(CommandTable, AWriteThatBlocksIsKnownWithoutTheFlag) {
  const auto list =
      *wire::parse_value("*1\r\n*6\r\n$6\r\nblmove\r\n:6\r\n*2\r\n+write\r\n+noscript\r\n:1\r\n:2\r\n:1\r\n");
  EXPECT_EQ(command_table::build(list->first, {}, {}).value()->find("blmove", {}).role, command_role::blocking_write);
}

TEST(CommandTable, UnknownCommandsAndSubcommandsAreWrites) {
  for (const auto* line : {"NOSUCH", "CLIENT NOSUCH", "CONFIG NOSUCH x", "client|kill", "CLIENT|LIST", "XGROUP NOSUCH"})
    EXPECT_EQ(spec_of(line).role, command_role::write) << line;
  EXPECT_EQ(table()->find(std::string(65, 'a'), {}).role, command_role::write);
  EXPECT_EQ(table()->find("CLIENT", std::string(65, 'a')).role, command_role::write);
}

TEST(CommandTable, BeforeTheServerHasAnsweredEverythingIsAWrite) {
  for (const auto* name : {"GET", "SET", "INFO", "EVAL_RO"})
    EXPECT_EQ(command_table::empty()->find(name, {}).role, command_role::write) << name;
  EXPECT_EQ(command_table::empty()->find("EXEC", {}).role, command_role::exec);
}

TEST(CommandTable, NamesAreCaseInsensitive) {
  EXPECT_EQ(spec_of("set k v").role, command_role::write);
  EXPECT_EQ(spec_of("SeT k v").role, command_role::write);
  EXPECT_EQ(spec_of("cOnFiG sEt a b").role, command_role::refused);
}

TEST(CommandTable, WhatCouldDamageMarksOrEscapeIsRefused) {
  for (const auto* line : {"FLUSHALL",           "FLUSHDB",
                           "SWAPDB 0 1",         "DEBUG SLEEP 1",
                           "CONFIG SET a b",     "REPLICAOF a 1",
                           "SLAVEOF a 1",        "REPLCONF x",
                           "FAILOVER",           "SYNC",
                           "PSYNC ? -1",         "SHUTDOWN",
                           "SCRIPT FLUSH",       "SCRIPT KILL",
                           "FUNCTION FLUSH",     "FUNCTION DELETE x",
                           "FUNCTION RESTORE x", "ACL SETUSER a",
                           "ACL DELUSER a",      "MODULE LOAD x",
                           "MIGRATE a 1 k 0 1",  "RESTORE-ASKING k 0 v",
                           "PFDEBUG x k",        "CLIENT KILL x",
                           "CLIENT PAUSE 1",     "CLIENT UNBLOCK 1",
                           "CLUSTER RESET"})
    EXPECT_EQ(spec_of(line).role, command_role::refused) << line;
}

TEST(CommandTable, AnOperatorMayLiftARefusal) {
  const auto lifted = test::commands_of_redis_7({"flushall", "config|set"});
  EXPECT_EQ(lifted->find("FLUSHALL", {}).role, command_role::write);
  EXPECT_EQ(lifted->find("CONFIG", "SET").role, command_role::other);
  EXPECT_EQ(lifted->find("FLUSHDB", {}).role, command_role::refused);
}

// As with `rename-command FLUSHALL x`: COMMAND lists flushall, COMMAND INFO flushall finds nothing.
TEST(CommandTable, WhereCommandsWereRenamedUnknownOnesAreRefused) {
  const auto role_of = [&](std::string_view name, const std::vector<std::string_view>& not_found,
                           const std::vector<std::string>& allowed) {
    return test::commands_of_redis_7(allowed, not_found)->find(name, {}).role;
  };
  const std::string very_long(100, 'x');
  for (const std::string_view renamed : {"flushall", "reset", "config", "multi", "wait"}) {
    EXPECT_EQ(role_of("x", {renamed}, {}), command_role::refused) << renamed;
    EXPECT_EQ(role_of(very_long, {renamed}, {}), command_role::refused) << renamed;
    EXPECT_EQ(role_of("get", {renamed}, {}), command_role::read) << renamed;
  }
  EXPECT_EQ(role_of("x", {"flushall"}, {"flushall"}), command_role::write);  // it may be called, by any name
  EXPECT_EQ(role_of("x", {"waitaof"}, {}), command_role::write);             // it is not there at all
  EXPECT_EQ(role_of("x", {}, {}), command_role::write);
}

TEST(CommandTable, SetsMayGoAsMsetWhereItIsKnownByItsName) {
  EXPECT_TRUE(test::commands_of_redis_7()->has_mset());
  EXPECT_FALSE(command_table::empty()->has_mset());
  const auto renamed = test::commands_of_redis_7({}, {"mset"});
  EXPECT_FALSE(renamed->has_mset());
  EXPECT_EQ(renamed->find("x", {}).role, command_role::write);  // it is none of those that could hurt
}

TEST(CommandTable, CriticalIsWhatIsRefusedOrChangesTheConnection) {
  EXPECT_THAT(critical_commands(),
              testing::IsSupersetOf({"acl", "client", "config", "exec", "flushall", "multi", "reset", "script",
                                     "select", "subscribe", "swapdb", "wait", "watch"}));
  EXPECT_THAT(critical_commands(), testing::Not(testing::Contains(testing::AnyOf("fence", "get", "ping", "info"))));
}

TEST(CommandTable, BlockingWritesAreKnownAsSuch) {
  for (const auto* line : {"BLPOP k 0", "BRPOP k 0", "BLMOVE a b LEFT LEFT 0", "BRPOPLPUSH a b 0", "BLMPOP 0 1 k LEFT",
                           "BZPOPMIN k 0", "BZPOPMAX k 0", "BZMPOP 0 1 k MIN", "XREADGROUP GROUP g c STREAMS k >"})
    EXPECT_EQ(spec_of(line).role, command_role::blocking_write) << line;
  EXPECT_EQ(spec_of("XREAD STREAMS k 0").role, command_role::blocking_read);
  EXPECT_EQ(spec_of("WAIT 1 0").role, command_role::blocking_read);
}

TEST(CommandTable, AReplyThatIsNoListIsAnError) {
  for (const std::string bytes : {"-ERR no\r\n", "+OK\r\n", "*0\r\n", "$-1\r\n"}) {
    const auto parsed = wire::parse_value(bytes);
    EXPECT_TRUE(command_table::build((*parsed)->first, {}).has_error()) << bytes;
  }
}

TEST(CommandTable, EntriesThatMakeNoSenseDoNoHarm) {
  for (const std::string bytes :
       {"*1\r\n+x\r\n", "*1\r\n*0\r\n", "*1\r\n*6\r\n$3\r\nget\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n",
        "*1\r\n*6\r\n$3\r\nget\r\n:99999999999999999999\r\n*0\r\n:-7\r\n:-7\r\n:0\r\n"}) {
    const auto parsed = wire::parse_value(bytes);
    if (parsed.has_error()) continue;  // the scanner's to refuse
    const auto built = command_table::build((*parsed)->first, {});
    ASSERT_TRUE(built.has_value());
    EXPECT_EQ((*built)->find("GET", {}).role, command_role::write) << bytes;
  }
}

// ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEST(CommandTable, FindsPlainKeys) {
  EXPECT_THAT(keys_of("SET k v"), ElementsAre("k"));
  EXPECT_THAT(keys_of("MSET a 1 b 2"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("DEL a b c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(keys_of("RENAME a b"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("BITOP AND d a b"), ElementsAre("d", "a", "b"));
  EXPECT_THAT(keys_of("BLPOP a b 0"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("XGROUP CREATE k g $"), ElementsAre("k"));
  EXPECT_THAT(keys_of("PING"), IsEmpty());
  EXPECT_THAT(keys_of("PUBLISH c m"), IsEmpty());
}

TEST(CommandTable, FindsKeysBehindANumber) {
  EXPECT_THAT(keys_of("ZUNIONSTORE d 2 a b WEIGHTS 1 2"), ElementsAre("d", "a", "b"));
  EXPECT_THAT(keys_of("EVAL s 2 a b c"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("EVAL s 0 a"), IsEmpty());
  EXPECT_THAT(keys_of("FCALL f 1 a b"), ElementsAre("a"));
  EXPECT_THAT(keys_of("LMPOP 2 a b LEFT"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("BLMPOP 0 2 a b LEFT"), ElementsAre("a", "b"));
}

TEST(CommandTable, FindsKeysBehindAWord) {
  EXPECT_THAT(keys_of("XREADGROUP GROUP g c STREAMS a b > >"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of("XREAD COUNT 2 STREAMS a 0"), ElementsAre("a"));
  EXPECT_THAT(keys_of("SORT k BY x STORE d"), ElementsAre("k", "d"));
  EXPECT_THAT(keys_of("sort k store d"), ElementsAre("k", "d"));
  EXPECT_THAT(keys_of("SORT k STORE a STORE b"), ElementsAre("k", "a", "b"));
  EXPECT_THAT(keys_of("GEORADIUS k 1 2 3 m STORE d"), ElementsAre("k", "d"));
  EXPECT_THAT(keys_of("GEORADIUS k 1 2 3 m STOREDIST d"), ElementsAre("k", "d"));
  EXPECT_THAT(keys_of("GEORADIUSBYMEMBER k x 3 m STORE d"), ElementsAre("k", "d"));
}

TEST(CommandTable, NumbersThatDoNotFitAreNotBelieved) {
  for (const auto* line : {"ZUNIONSTORE d 9 a", "EVAL s -1 a", "EVAL s x a", "EVAL s 2147483647 a",
                           "EVAL s 99999999999 a", "EVAL s", "EVAL s +1 a", "EVAL s 01x a", "SET", "LMPOP 5 a LEFT"})
    EXPECT_THAT(keys_of(line), testing::Contains("invalid")) << line;
}

// No specification may lead outside of the arguments, whatever they are.
TEST_P(Recorded, KeysAlwaysStandAmongTheArguments) {
  for_each_command(list_, [&](std::string_view name, const auto&) {
    const auto& spec = by_full_name(name);
    for (const auto* tail :
         {"", "a", "1", "2 a", "STORE", "STREAMS", "KEYS", "a 9999999999 b", "a -3 b", "x 2 STREAMS y"}) {
      std::vector<std::string_view> words{name};
      for (const auto word : split(tail)) words.push_back(word);
      std::vector<std::size_t> keys;
      (void)find_keys(spec, words, keys);
      for (const auto at : keys) EXPECT_TRUE(at > 0 && at < words.size()) << name << " " << tail;
    }
  });
}

TEST(CommandTable, TheReservedPrefixIsExact) {
  EXPECT_TRUE(is_reserved("fencegate:epoch"));
  EXPECT_TRUE(is_reserved("fencegate:"));
  EXPECT_FALSE(is_reserved("fencegate"));
  EXPECT_FALSE(is_reserved("Fencegate:epoch"));  // another key
  EXPECT_FALSE(is_reserved("x fencegate:epoch"));
}

}  // namespace
}  // namespace fencegate::backend
