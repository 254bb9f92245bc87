// Hazards: what is set up so that the fence may not hold, or no mark may rise. From what was found of a server to the hazards
// in that, each with a name that stays, why it matters and how to mend it. docs/doctor.md lists them.
//
// All of it is pure: who asks servers is redis_facts.hpp and pg_facts.hpp.
#pragma once

#include "backend/redis_info.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

enum class hazard_kind : std::uint8_t {
  redis_not_persistent,
  redis_appendfsync,
  redis_eviction,
  redis_replica,
  redis_cluster,
  redis_min_replicas,
  redis_open_default,
  redis_forgeable_marks,
  postgres_fsync_off,
  postgres_synchronous_commit,
  postgres_asynchronous_standby,
  postgres_standby,
  postgres_schema_missing,
  postgres_schema_older,
  postgres_schema_newer,
  postgres_gate_rights,
  postgres_cannot_end_sessions,
  postgres_forgeable_marks,
  postgres_unprotected,
  postgres_protected_owner,
  postgres_blocked_raises,
  postgres_prepared_transactions,
  postgres_restored_copy,
  gate_exposed,
  admin_exposed,
  certificate_expires
};

struct hazard_words {
  hazard_kind kind;
  std::string_view id;  // never changes: people filter by it
  std::string_view why, mend;
};
// In the order of the kinds.
[[nodiscard]] std::span<const hazard_words> all_hazard_words();
[[nodiscard]] const hazard_words& words_of(hazard_kind kind);

struct hazard {
  hazard_kind kind;
  std::string what;  // was found
};

// What could not be found out, and so is no reason to trust the server.
struct unknown_fact {
  std::string what;
  std::string why;
};

// Until it was found out.
inline const error not_asked{"there was no answer"};

struct findings {
  std::vector<hazard> hazards{};
  std::vector<unknown_fact> unknown{};
  bool unreached = false;  // the server answered nothing: that is all of `unknown`
};
[[nodiscard]] findings unreached(const std::string& why);

// ── Redis ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

struct redis_facts {
  // What a connection may do that has not signed in.
  enum class stranger : std::uint8_t { nothing, no_writes, writes };

  // An error says why it is not known.
  result<redis_info> info = not_asked;
  result<std::string> appendfsync = not_asked;
  result<std::string> no_fsync_on_rewrite = not_asked;  // no-appendfsync-on-rewrite
  result<stranger> strangers = not_asked;
  result<std::vector<std::string>> forgers = not_asked;  // users but the gate's own that may change marks
};
[[nodiscard]] findings judge(const redis_facts& found);

// ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────────────

struct pg_facts {
  struct server_settings {
    bool fsync = true, standby = false;
    std::string user;
    std::string synchronous_commit, synchronous_standby_names;
    std::size_t prepared_most = 0, prepared_now = 0;  // transactions; at most, and in this database
  };
  struct role_setting {
    std::string role;  // "" = all in this database
    std::string value;
  };
  struct standbys {
    std::size_t asynchronous = 0;
    std::size_t unseen = 0;  // of which the gate's user may not see how they are
  };
  struct rights {
    bool is_gate = false;  // the gate's user is a member of fencegate_gate
    bool ends_sessions = false, sees_sessions = false;
  };
  struct protection {
    std::vector<std::string> uncovered{};                             // tables, and what is wrong with each
    std::vector<std::pair<std::string, std::string>> login_owners{};  // table, role
  };
  result<server_settings> server = not_asked;
  result<std::vector<role_setting>> commits = not_asked;  // synchronous_commit of roles
  result<standbys> replication = not_asked;
  result<int> version = not_asked;  // of the schema; 0 = there is none
  int newest = 0;                   // that this fencegate knows
  // Only of a schema that is there.
  result<bool> is_copy = not_asked;
  result<rights> may = not_asked;
  result<std::vector<std::string>> forgers = not_asked;  // roles that may change marks
  result<protection> tables = not_asked;
  result<std::vector<std::string>> blockers = not_asked;  // "table fencegate.marks by postgres"
};
[[nodiscard]] findings judge(const pg_facts& found);

// "a", "a and b", "a, b and 3 more".
[[nodiscard]] std::string some_of(const std::vector<std::string>& names);

}  // namespace fencegate::backend
