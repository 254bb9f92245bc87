// From what was found of a server to what is hazardous in it.
#include "backend/hazards.hpp"

#include "backend/redis_info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

namespace fencegate::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> ids_of(const findings& found) {
  std::vector<std::string> out;
  for (const auto& one : found.hazards) out.emplace_back(words_of(one.kind).id);
  return out;
}

std::vector<std::string> unknown_of(const findings& found) {
  std::vector<std::string> out;
  for (const auto& one : found.unknown) out.push_back(one.what + ": " + one.why);
  return out;
}

result<std::string> said(const char* text) { return {boost::system::in_place_value, text}; }

redis_facts safe_redis() {
  redis_facts out;
  redis_info info;
  info.primary = info.append_only = true;
  info.eviction = "noeviction";
  out.info = info;
  out.appendfsync = said("always");
  out.no_fsync_on_rewrite = said("no");
  out.strangers = redis_facts::stranger::nothing;
  out.forgers = std::vector<std::string>{};
  return out;
}

pg_facts safe_postgres() {
  pg_facts out;
  out.server = pg_facts::server_settings{true, false, "gate", "on", "", 0, 0};
  out.commits = std::vector<pg_facts::role_setting>{};
  out.replication = pg_facts::standbys{};
  out.version = out.newest = 7;
  out.is_copy = false;
  out.may = pg_facts::rights{true, true, true};
  out.forgers = std::vector<std::string>{};
  out.tables = pg_facts::protection{};
  out.blockers = std::vector<std::string>{};
  return out;
}

TEST(Hazards, TheirIdsAreDistinctAndOnTheirPage) {
  std::ifstream in("docs/doctor.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  std::set<std::string_view> ids;
  for (const auto& one : all_hazard_words()) {
    EXPECT_TRUE(ids.insert(one.id).second) << one.id;
    EXPECT_THAT(page, HasSubstr("\n| `" + std::string(one.id) + "` |"));
    EXPECT_FALSE(one.why.empty() || one.mend.empty()) << one.id;
  }
}

TEST(Hazards, OfManyNamesSomeAreSaid) {
  EXPECT_EQ(some_of({}), "");
  EXPECT_EQ(some_of({"a"}), "a");
  EXPECT_EQ(some_of({"a", "b"}), "a and b");
  EXPECT_EQ(some_of({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(some_of({"a", "b", "c", "d", "e", "f", "g"}), "a, b, c, d, e and 2 more");
}

TEST(RedisInfo, IsReadByItsFields) {
  const auto info = read_redis_info(
      "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:0\r\naof_enabled:1\r\n"
      "maxmemory_policy:allkeys-lru\r\ncluster_enabled:1");
  EXPECT_TRUE(info.primary && info.append_only && info.cluster && info.min_replicas);
  EXPECT_EQ(info.replicas, 2U);
  EXPECT_EQ(info.eviction, "allkeys-lru");
  const auto nothing = read_redis_info("");
  EXPECT_FALSE(nothing.primary || nothing.append_only || nothing.cluster || nothing.min_replicas);
}

TEST(RedisHazards, NoneWhereThereIsNone) {
  EXPECT_THAT(ids_of(judge(safe_redis())), IsEmpty());
  EXPECT_THAT(unknown_of(judge(safe_redis())), IsEmpty());
}

TEST(RedisHazards, NothingThatWasNotAnsweredIsHealthy) {
  EXPECT_THAT(ids_of(judge(redis_facts{})), IsEmpty());
  EXPECT_EQ(judge(redis_facts{}).unknown.size(), 4U);
}

TEST(RedisHazards, EachByItself) {
  auto found = safe_redis();
  found.info->append_only = false;
  found.appendfsync = error{"the gate's user lacks +config|get"};  // there is nothing to sync
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-not-persistent"));
  EXPECT_THAT(unknown_of(judge(found)), IsEmpty());

  found = safe_redis();
  found.appendfsync = said("everysec");
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-appendfsync"));
  found.appendfsync = said("always");
  found.no_fsync_on_rewrite = said("yes");
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-appendfsync"));

  found = safe_redis();
  found.info->eviction = "volatile-lru";
  EXPECT_THAT(ids_of(judge(found)), IsEmpty());
  found.info->eviction = "allkeys-random";
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-eviction"));

  found = safe_redis();
  found.info->replicas = 1;
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-min-replicas"));
  found.info->min_replicas = true;
  EXPECT_THAT(ids_of(judge(found)), IsEmpty());

  found = safe_redis();
  found.info->primary = false;
  found.info->cluster = true;
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-replica", "redis-cluster"));
}

TEST(RedisHazards, WhoIsOpenToAllIsNotNamedTwice) {
  auto found = safe_redis();
  found.forgers = std::vector<std::string>{"default"};
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-forgeable-marks"));  // it has a password
  found.strangers = redis_facts::stranger::writes;
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-open-default"));
  found.forgers->push_back("orders");
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("redis-open-default", "redis-forgeable-marks"));
}

TEST(PostgresHazards, NoneWhereThereIsNone) {
  EXPECT_THAT(ids_of(judge(safe_postgres())), IsEmpty());
  EXPECT_THAT(unknown_of(judge(safe_postgres())), IsEmpty());
}

TEST(PostgresHazards, NothingThatWasNotAnsweredIsHealthy) {
  EXPECT_THAT(ids_of(judge(pg_facts{})), IsEmpty());
  EXPECT_THAT(unknown_of(judge(pg_facts{})),
              ElementsAre(HasSubstr("settings"), HasSubstr("standbys"), HasSubstr("version")));
}

TEST(PostgresHazards, OfAMissingSchemaNothingElseIsAsked) {
  auto found = safe_postgres();
  found.version = 0;
  found.may = error{"there is none"};
  found.is_copy = error{"there is none"};
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("postgres-schema-missing"));
  EXPECT_THAT(unknown_of(judge(found)), IsEmpty());
}

TEST(PostgresHazards, SynchronousCommit) {
  auto found = safe_postgres();
  found.server->synchronous_commit = "local";
  EXPECT_THAT(ids_of(judge(found)), IsEmpty());  // nobody else has to have it
  found.server->synchronous_standby_names = "*";
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("postgres-synchronous-commit"));
  found.server->synchronous_commit = "remote_write";
  EXPECT_THAT(ids_of(judge(found)), IsEmpty());
  found.commits->push_back({"alice", "off"});
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("postgres-synchronous-commit"));
}

TEST(PostgresHazards, StandbysThatCannotBeSeen) {
  auto found = safe_postgres();
  found.replication = pg_facts::standbys{0, 2};
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("postgres-asynchronous-standby"));  // since none is named
  found.server->synchronous_standby_names = "a";
  EXPECT_THAT(ids_of(judge(found)), IsEmpty());
  EXPECT_THAT(unknown_of(judge(found)), ElementsAre(HasSubstr("pg_read_all_stats")));
  found.replication = pg_facts::standbys{1, 0};
  EXPECT_THAT(ids_of(judge(found)), ElementsAre("postgres-asynchronous-standby"));
}

TEST(PostgresHazards, RightsAndTables) {
  auto found = safe_postgres();
  found.may = pg_facts::rights{};
  EXPECT_THAT(ids_of(judge(found)),
              ElementsAre("postgres-gate-rights", "postgres-cannot-end-sessions", "postgres-cannot-end-sessions"));
  EXPECT_THAT(unknown_of(judge(found)), ElementsAre(HasSubstr("restored copy")));
  found = safe_postgres();
  found.tables->uncovered = {"items: its trigger is not ENABLE ALWAYS"};
  found.tables->login_owners = {{"items", "alice"}};
  found.is_copy = true;
  found.forgers->push_back("mallory");
  found.blockers->push_back("table fencegate.marks by postgres");
  EXPECT_THAT(ids_of(judge(found)),
              ElementsAre("postgres-restored-copy", "postgres-forgeable-marks", "postgres-unprotected",
                          "postgres-protected-owner", "postgres-blocked-raises"));
}

}  // namespace
}  // namespace fencegate::backend
