#include "hold/exit_status.hpp"

#include "base/json_text.hpp"

#include <iterator>

namespace fencegate::hold {

namespace {

struct row {
  outcome what;
  std::string_view name;
  int status;  // -1: CMD's
};

constexpr row table[] = {
    {outcome::exited, "exited", -1},
    {outcome::signaled, "signaled", -1},
    {outcome::busy, "busy", 75},                // EX_TEMPFAIL: try again
    {outcome::unreachable, "unreachable", 69},  // EX_UNAVAILABLE
    {outcome::lost, "lost", 79},                // none of sysexits.h
    {outcome::max_run, "max_run", 124},         // as timeout(1)
    {outcome::error, "error", 125},             // as env(1) and timeout(1), with the next two
};
constexpr int not_executable_status = 126;
constexpr int not_found_status = 127;
constexpr int signal_base = 128;

const row& row_of(outcome what) {
  static_assert(static_cast<std::size_t>(outcome::error) + 1 == std::size(table));
  return table[static_cast<std::size_t>(what)];
}

}  // namespace

ending ending_of(outcome what) { return {.what = what, .status = row_of(what).status}; }

ending ending_of(const job_end& end) {
  using kind = job_end::kind;
  switch (end.what) {
    case kind::exited: return {.what = outcome::exited, .status = end.status};
    case kind::signaled: return {.what = outcome::signaled, .status = signal_base + end.status};
    case kind::not_found: return {.what = outcome::error, .status = not_found_status};
    case kind::not_executable: return {.what = outcome::error, .status = not_executable_status};
    case kind::overdue: return ending_of(outcome::lost);
    case kind::guard_died: break;
  }
  return ending_of(outcome::error);
}

std::string_view name_of(outcome what) { return row_of(what).name; }

std::string result_text(const ending& end) {
  std::string out;
  json_object object(out);
  object.add("outcome", name_of(end.what));
  object.add("status", static_cast<std::int64_t>(end.status));
  object.end();
  return out += '\n';
}

}  // namespace fencegate::hold
