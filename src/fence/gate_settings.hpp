// Settings of the gates, as validated structs.
#pragma once

#include "base/settings.hpp"
#include "fence/policy.hpp"
#include "fence/resource_rules.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fencegate::settings {

// The gate's own user on the backend; clients authenticate for themselves.
struct credentials {
  std::string user;      // "" = the default user
  std::string password;  // "" = do not authenticate
};

struct timeouts {
  std::chrono::milliseconds connect{5'000};  // to the backend; never 0
  std::chrono::milliseconds head{10'000};    // from accept, or from its first byte, to a whole command's head; 0 = none
  std::chrono::milliseconds idle{0};         // a client that sends nothing and waits for nothing; 0 = none
  std::chrono::milliseconds write{60'000};   // a peer that takes no byte of what waits for it; 0 = none
};

struct redis_gate {
  std::string name;
  address listen;
  address upstream;
  credentials control;  // from the upstream URL
  fence::policy policy;
  std::vector<fence::key_rule> resources;
  fence::unmatched unmatched = fence::unmatched::tag;
  std::vector<std::string> allow_commands;  // lower case, "flushall" or "config|set": not refused
  timeouts limits_time;
  std::size_t connections_max = 10'000;  // clients at the same time; what comes on top is closed at once
};

// How a PostgreSQL gate keeps the rule.
enum class guard : std::uint8_t {
  session,     // a session is bound to its token, and ended by the server when the mark rises above it
  transaction  // every transaction begins with a check that holds until its end: for servers behind a transaction pooler
};

struct postgres_gate {
  std::string name;
  address listen;
  address upstream;              // a unix socket's path is that of the socket itself, "/…/.s.PGSQL.5432"
  credentials control;           // from the upstream URL: for the gate's own connections
  std::string control_database;  // where the gate's own connection looks after the server; marks live in each database
  fence::policy policy;          // equal is always `accept`, read always `pass`
  guard kept_by = guard::session;
  std::chrono::milliseconds cut_timeout{5'000};  // how long a raise waits for older sessions to end
  timeouts limits_time;
  std::size_t connections_max = 10'000;  // clients at the same time; what comes on top is closed at once
};

struct process {
  unsigned threads = 0;  // 0 = one per core
  address admin{"127.0.0.1", 9180, {}};
  bool admin_enabled = false;  // the configuration has a section `admin`
  log_level level = log_level::info;
  log_format format = log_format::json;
  std::chrono::milliseconds drain_timeout{25'000};  // from SIGTERM to the hard stop; 0 = stop at once
  std::vector<store> stores;                        // validated; no gate of this version uses one
  std::vector<redis_gate> redis_gates;
  std::vector<postgres_gate> postgres_gates;
};

}  // namespace fencegate::settings
