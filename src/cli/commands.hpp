// The subcommands of fencegate that need no gate: they say what they found and return the exit code of the process.
#pragma once

#include "cli/config.hpp"

#include <chrono>
#include <iosfwd>
#include <string>

namespace fencegate::cli {

inline constexpr int exit_ok = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_bad_configuration = 2;  // also for arguments that make no sense

// Prints each error on a line of its own.
void print_errors(const config_errors& errors, std::ostream& err);

// `fencegate check`: "FILE: OK, 2 gates" on `out`, and warnings on `err`; or the errors on `err`.
[[nodiscard]] int check(const std::string& path, const environment& from, std::ostream& out, std::ostream& err);

// `fencegate healthcheck`: GET `path` ("/livez") from the admin listener at `admin`. Blocks, for `patience` at most, however
// slowly the other side answers. Exit code 0 for status 200, 2 for an address that is none, otherwise 1.
[[nodiscard]] int healthcheck(const std::string& admin, const std::string& path, std::chrono::milliseconds patience,
                              std::ostream& err);

// `fencegate wait`: as healthcheck of /readyz, asked again until it is 200 or `patience` is over (and a second
// more, where there is no answer).
[[nodiscard]] int wait_until_ready(const std::string& admin, std::chrono::milliseconds patience, std::ostream& err);

// `fencegate reload`: POST /reload, and what came of it; 0: applied, or nothing has changed.
[[nodiscard]] int reload(const std::string& admin, std::chrono::milliseconds patience, std::ostream& out,
                         std::ostream& err);

// `fencegate quit`: POST /quit, which begins the drain. Does not wait for its end.
[[nodiscard]] int quit(const std::string& admin, std::chrono::milliseconds patience, std::ostream& err);

}  // namespace fencegate::cli
