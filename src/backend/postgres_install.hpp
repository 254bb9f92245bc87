// Brings the fence into a PostgreSQL database: the SQL that does it, and a blocking run of it. For commands, never for a
// serving thread. src/backend/schema/ is the SQL; src/backend/schema/1_roles.sql begins with how it works.
#pragma once

#include "backend/pg_dial.hpp"
#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// The parts of the schema in their order, one script.
[[nodiscard]] std::string_view postgres_schema();

// One database, and as whom.
struct postgres_place {
  pg_target at;
  std::chrono::milliseconds connect_timeout{5'000};
};

// "127.0.0.1:5432/app": without the user, without the password; printable.
[[nodiscard]] std::string to_string(const postgres_place& place);

// The limits that the database itself keeps, whoever calls.
struct postgres_limits {
  std::int64_t max_step = 0;  // 0 = no limit
  std::chrono::milliseconds cut_timeout{5'000};
  std::optional<std::chrono::milliseconds> hold_grace{};  // nullopt = leave what is there
};

struct postgres_installation {
  std::optional<postgres_limits> limits;  // nullopt = leave what is there; the defaults for a new one
  std::string gate_user;                  // gets the role fencegate_gate; "" = nobody
  std::vector<std::string> protect;       // tables, as SQL names them
  std::vector<std::string> unprotect;
  std::string resource;  // what protected tables ask for; "" = any resource will do
};

// What psql would run. REQUIRES: no NUL in any text.
[[nodiscard]] std::string install_script(const postgres_installation& what);

// Connects and runs it; a login without a user name is granted what its real user needs. Blocks. Errors: what the server
// said, and what to grant where that is known; nothing secret. Then the schema is as it was; where it was a table that
// could not be protected, the schema is in place.
[[nodiscard]] result<void> install(const postgres_place& place, postgres_installation what);

}  // namespace fencegate::backend
