// What is hazardous in a PostgreSQL database.
#include "backend/hazards.hpp"

namespace fencegate::backend {
namespace {

using enum hazard_kind;

template <class T>
bool known(const result<T>& fact, const char* what, findings& out) {
  if (!fact) out.unknown.push_back({what, fact.error().message});
  return fact.has_value();
}

bool loses(const std::string& commit, const pg_facts::server_settings& server) {
  return commit == "off" || (commit == "local" && !server.synchronous_standby_names.empty());
}

void judge_commits(const pg_facts& found, findings& out) {
  if (loses(found.server->synchronous_commit, *found.server))
    out.hazards.push_back({postgres_synchronous_commit, "synchronous_commit is " + found.server->synchronous_commit});
  if (!known(found.commits, "synchronous_commit of roles", out)) return;
  for (const auto& one : *found.commits)
    if (loses(one.value, *found.server))
      out.hazards.push_back(
          {postgres_synchronous_commit, "synchronous_commit is " + one.value + " for " +
                                            (one.role.empty() ? "the sessions of this database" : "role " + one.role)});
}

void judge_standbys(const pg_facts& found, findings& out) {
  if (!known(found.replication, "its standbys", out)) return;
  const auto& now = *found.replication;
  const bool none_is_named = found.server && found.server->synchronous_standby_names.empty();
  const auto asynchronous = now.asynchronous + (none_is_named ? now.unseen : 0);
  if (asynchronous > 0)
    out.hazards.push_back({postgres_asynchronous_standby,
                           std::to_string(asynchronous) +
                               (asynchronous == 1 ? " standby streams" : " standbys stream") + " asynchronously"});
  else if (now.unseen > 0)
    out.unknown.push_back({"whether its standbys are synchronous",
                           "the gate's user may not see that; GRANT pg_read_all_stats or pg_monitor lets it"});
}

void judge_server(const pg_facts& found, findings& out) {
  if (!known(found.server, "its settings", out)) return;
  const auto& server = *found.server;
  if (server.standby) out.hazards.push_back({postgres_standby, "the server is in recovery"});
  if (!server.fsync) out.hazards.push_back({postgres_fsync_off, "fsync is off"});
  judge_commits(found, out);
  if (server.prepared_most > 0)
    out.hazards.push_back(
        {postgres_prepared_transactions,
         "max_prepared_transactions is " + std::to_string(server.prepared_most) +
             (server.prepared_now == 0 ? ""
                                       : ", and the database has " + std::to_string(server.prepared_now) + " now")});
}

void judge_rights(const pg_facts& found, findings& out) {
  if (!known(found.may, "the rights of the gate's user", out)) return;
  const auto& may = *found.may;
  if (!may.is_gate)
    out.hazards.push_back({postgres_gate_rights, (found.server ? found.server->user : std::string("the gate's user")) +
                                                     " is no member of fencegate_gate"});
  if (!may.ends_sessions)
    out.hazards.push_back({postgres_cannot_end_sessions, "fencegate_owner lacks pg_signal_backend"});
  if (!may.sees_sessions)
    out.hazards.push_back({postgres_cannot_end_sessions, "fencegate_owner lacks pg_read_all_stats"});
}

void judge_tables(const pg_facts& found, findings& out) {
  if (!known(found.tables, "its protected tables", out)) return;
  if (!found.tables->uncovered.empty()) out.hazards.push_back({postgres_unprotected, some_of(found.tables->uncovered)});
  std::vector<std::string> owners;
  for (const auto& [table, role] : found.tables->login_owners) owners.push_back(role + " owns " + table);
  if (!owners.empty()) out.hazards.push_back({postgres_protected_owner, some_of(owners)});
}

void judge_schema(const pg_facts& found, findings& out) {
  if (!known(found.version, "the version of the schema", out)) return;
  const auto said = "the schema has version " + std::to_string(*found.version) + ", this fencegate knows version " +
                    std::to_string(found.newest);
  if (*found.version == 0) {
    out.hazards.push_back({postgres_schema_missing, "there is no schema fencegate in this database"});
    return;
  }
  if (*found.version < found.newest) out.hazards.push_back({postgres_schema_older, said});
  if (*found.version > found.newest) out.hazards.push_back({postgres_schema_newer, said});
  judge_rights(found, out);
  if (found.may && !found.may->is_gate)
    out.unknown.push_back({"whether it is a restored copy", "the gate's user may not ask that (fencegate_gate)"});
  else if (known(found.is_copy, "whether it is a restored copy", out) && *found.is_copy)
    out.hazards.push_back({postgres_restored_copy, "it was restored from a dump, and nobody has accepted its marks"});
  if (known(found.forgers, "which roles may change marks", out) && !found.forgers->empty())
    out.hazards.push_back(
        {postgres_forgeable_marks, some_of(*found.forgers) + " may write tables of schema fencegate"});
  judge_tables(found, out);
  if (known(found.blockers, "what blocks raises now", out) && !found.blockers->empty())
    out.hazards.push_back({postgres_blocked_raises, some_of(*found.blockers)});
}

}  // namespace

findings judge(const pg_facts& found) {
  findings out;
  judge_server(found, out);
  judge_standbys(found, out);
  judge_schema(found, out);
  return out;
}

}  // namespace fencegate::backend
