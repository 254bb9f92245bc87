#include "backend/hazards.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace fencegate::backend {
namespace {

using enum hazard_kind;

constexpr std::array<hazard_words, 26> all_words{{
    {redis_not_persistent, "redis-not-persistent",
     "When Redis starts again, data and marks since its last snapshot are gone, and an older token is good again.",
     "CONFIG SET appendonly yes, and the same in redis.conf."},
    {redis_appendfsync, "redis-appendfsync",
     "A crash of the machine can lose what Redis has answered last, data and marks, and an older token is good again.",
     "appendfsync always, and no-appendfsync-on-rewrite no, in redis.conf and by CONFIG SET."},
    {redis_eviction, "redis-eviction",
     "Redis may evict marks when its memory is full. The gate rejects all fenced writes until that is mended.",
     "maxmemory-policy noeviction, or a volatile-* policy: marks have no expiry."},
    {redis_replica, "redis-replica", "Marks are proven at the primary only: the gate rejects all fenced writes.",
     "Point the gate at the primary."},
    {redis_cluster, "redis-cluster",
     "Marks and data of one batch must be in one slot: the gate rejects all fenced writes.",
     "Use a Redis without cluster mode."},
    {redis_min_replicas, "redis-min-replicas",
     "Replication is asynchronous: a primary that is cut off goes on to accept writes under an older token while a "
     "replica is "
     "promoted, and the replica may lack the last marks.",
     "min-replicas-to-write 1, and a min-replicas-max-lag above 0."},
    {redis_open_default, "redis-open-default",
     "Whoever reaches Redis writes past the gate, without a password and without a token.",
     "Give the gate and each writer a user of its own, then ACL SETUSER default off (docs/redis.md, Users in Redis)."},
    {redis_forgeable_marks, "redis-forgeable-marks",
     "They can change or delete marks, also by a script through the gate: then an older token is good again.",
     "Give them no more of fencegate's keys than %R~fencegate:* (docs/redis.md, Users in Redis). equal_token: reject "
     "cannot "
     "do with less than ~fencegate:mark:*."},
    {postgres_fsync_off, "postgres-fsync-off",
     "A crash of the machine loses what was committed, data and marks, or damages all of it.",
     "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();"},
    {postgres_synchronous_commit, "postgres-synchronous-commit",
     "A crash of the machine, or of a primary with synchronous standbys, can lose what a writer was told is committed, "
     "though "
     "its successor has seen it. Raises of marks wait for the disk in any case.",
     "synchronous_commit = on, for the server and for each role that writes."},
    {postgres_asynchronous_standby, "postgres-asynchronous-standby",
     "When it is promoted, it may lack the last writes and marks, and an older token is good again.",
     "Name it in synchronous_standby_names, or promote only what is named there."},
    {postgres_standby, "postgres-standby", "No mark rises and nobody is armed there: the gate lets nobody in.",
     "Point the gate at the primary."},
    {postgres_schema_missing, "postgres-schema-missing",
     "There are no marks in this database: the gate rejects all tokens.",
     "fencegate install -c FILE (docs/postgresql.md, Install the schema)."},
    {postgres_schema_older, "postgres-schema-older",
     "This fencegate calls functions that an older schema lacks, and counts on what newer ones close.",
     "fencegate install -c FILE: it upgrades the schema in place, with its marks."},
    {postgres_schema_newer, "postgres-schema-newer",
     "This fencegate does not know what the schema of a newer one expects of it.",
     "Upgrade this fencegate to the version that installed the schema."},
    {postgres_gate_rights, "postgres-gate-rights", "The gate can neither read nor raise marks on its own connection.",
     "GRANT fencegate_gate TO the gate's user, or run fencegate install again."},
    {postgres_cannot_end_sessions, "postgres-cannot-end-sessions",
     "No mark rises, since older sessions could be neither seen nor ended: new holders are kept out.",
     "As a superuser: GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner;"},
    {postgres_forgeable_marks, "postgres-forgeable-marks",
     "They can change marks, or what is noted of sessions: then an older token is good again.",
     "REVOKE pg_write_all_data, fencegate_owner, and what was granted on the tables of schema fencegate."},
    {postgres_unprotected, "postgres-unprotected",
     "The table was protected, but sessions without a token can write it.",
     "fencegate install -c FILE --protect TABLE again."},
    {postgres_protected_owner, "postgres-protected-owner",
     "Who owns a table may drop or disable its trigger, and then write without a token.",
     "Let a role without login own it; writers get INSERT, UPDATE and DELETE; who changes the table is a NOINHERIT "
     "member that "
     "sets the role."},
    {postgres_blocked_raises, "postgres-blocked-raises",
     "No mark rises while the lock is held, and fencegate may not end the session.",
     "End the transaction: as a superuser, SELECT pg_terminate_backend(pid)."},
    {postgres_prepared_transactions, "postgres-prepared-transactions",
     "A prepared transaction outlives its session: no mark rises while there is one in the database, whoever has "
     "forgotten it.",
     "max_prepared_transactions = 0 (needs a restart). COMMIT PREPARED or ROLLBACK PREPARED what is left."},
    {postgres_restored_copy, "postgres-restored-copy",
     "Its marks may be older than what was written under them: a token that was rejected before may be good again.",
     "fencegate marks bump, then SELECT fencegate.accept_copy() (docs/operations.md, Backups)."},
    {gate_exposed, "gate-exposed",
     "The gate believes each token that it is given: whoever reaches it raises marks. Without TLS, whoever is on the "
     "way, too.",
     "Listen on 127.0.0.1, [::1] or a unix socket, next to the writers, or require certificates of clients (key tls)."},
    {admin_exposed, "admin-exposed",
     "Whoever reaches it reads status and metrics, names of gates and servers included.",
     "Listen on 127.0.0.1, require certificates (key tls), or let a network policy admit only what scrapes it."},
    {certificate_expires, "certificate-expires",
     "Peers that check it refuse the connection, and every writer behind that gate or store stands still.",
     "Renew the certificate in its file. A running fencegate reads the file by itself."},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < all_words.size(); ++i)
    if (static_cast<std::size_t>(all_words[i].kind) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const hazard_words> all_hazard_words() { return all_words; }

const hazard_words& words_of(hazard_kind kind) { return all_words.at(static_cast<std::size_t>(kind)); }

findings unreached(const std::string& why) { return {{}, {{"anything of it", why}}, true}; }

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown_most = 5;
  std::string out;
  const auto shown = std::min(names.size(), shown_most);
  for (std::size_t i = 0; i < shown; ++i) out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  if (shown < names.size()) out += " and " + std::to_string(names.size() - shown) + " more";
  return out;
}

}  // namespace fencegate::backend
