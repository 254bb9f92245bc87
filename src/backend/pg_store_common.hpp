// What the two halves of pg_store have in common, and what raises prove, for pg_control, too.
#pragma once

#include "backend/lost_marks.hpp"
#include "backend/pg_claims.hpp"
#include "backend/pg_link.hpp"
#include "backend/store.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// Whatever the role or the database have as defaults.
inline constexpr const char* begin_reading = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
inline constexpr const char* begin_transaction = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
inline constexpr std::size_t any_rows = std::numeric_limits<std::size_t>::max();
// SQLSTATEs with which the server ends a session; the transaction was rolled back then.
inline constexpr std::string_view admin_shutdown = "57P01", idle_in_transaction = "25P03";
// A raise gets at least this, behind its grace, to end what holds the mark.
inline constexpr std::chrono::milliseconds cut_least{500};

// At least 1 ms.
[[nodiscard]] inline std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

// What is left of a request's time. A server that keeps its own limit says what became of it, so that limit is a little
// in front of the request's; a connection that says nothing is given up with the request.
struct time_budget {
  std::chrono::milliseconds server, link;
};
[[nodiscard]] inline time_budget budget_until(std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::milliseconds ahead_most{500}, link_least{500};
  const auto left = time_left(deadline);
  const auto server = std::max(left - std::min(left / 8, ahead_most), std::chrono::milliseconds(1));
  return {server, std::max(left, link_least)};
}

// Raises the marks of all claims to their tokens, or none; each must be lower before where the tokens are spent.
[[nodiscard]] inline pg_statement raise_statement(const presented_claims& wanted, std::chrono::milliseconds cut,
                                                  std::chrono::milliseconds grace) {
  return in_text(std::string("SELECT resource, mark, raised, lowering FROM ") +
                     (wanted.spends ? "fencegate.spend" : "fencegate.raise_all") +
                     "($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.int4, $4::pg_catalog.int8, "
                     "$5::pg_catalog.int4)",
                 {resources_of(wanted.claims), tokens_of(wanted.claims), std::to_string(cut.count()),
                  std::to_string(wanted.max_step), std::to_string(grace.count())});
}

// Puts a mark back, which went back.
[[nodiscard]] inline pg_statement put_back_statement(const lost_marks::loss& lost, std::chrono::milliseconds cut,
                                                     std::chrono::milliseconds grace) {
  return in_text(
      "SELECT resource, mark, raised, cut, lowering FROM fencegate.put_back($1::pg_catalog.text, "
      "$2::pg_catalog.int8, $3::pg_catalog.int8, $4::pg_catalog.int4, $5::pg_catalog.int4)",
      {lost.to.resource, lost.to.presented.to_string(), std::to_string(lost.lowering), std::to_string(cut.count()),
       std::to_string(grace.count())});
}

// It has risen to what it was: where others were first, that is no news.
[[nodiscard]] inline bool was_put_back(const lost_marks::loss& lost, const pg_rows& rows) {
  return rows.size() == 1 && rows[0].size() == 5 && token_of(rows[0][1]) == lost.to.presented && rows[0][2] == "t";
}

// Names, marks and lowerings of these resources, whether there is a mark or not.
[[nodiscard]] inline pg_statement look_statement(const std::vector<std::string>& names) {
  return in_text(
      "SELECT r.name, l.mark, l.lowering FROM pg_catalog.unnest($1::pg_catalog.text[]) r(name) LEFT JOIN "
      "fencegate.look($1::pg_catalog.text[]) l ON l.resource OPERATOR(pg_catalog.=) r.name",
      {array_of(names)});
}
[[nodiscard]] inline std::vector<looked_mark> looked_marks(const pg_rows& rows) {
  std::vector<looked_mark> found;
  found.reserve(rows.size());
  for (const auto& row : rows)
    if (row.size() == 3 && row[0]) found.push_back({*row[0], token_of(row[1]), lowering_of(row[2]).value_or(0)});
  return found;
}

// What its rows prove, in the order of the claims; nullopt: not all that it takes.
[[nodiscard]] inline std::optional<std::vector<sealed_mark>> raised_marks(const presented_claims& wanted,
                                                                          const pg_rows& rows) {
  std::vector<sealed_mark> marks;
  marks.reserve(wanted.claims.size());
  for (const auto& claim : wanted.claims) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& columns) {
      return columns.size() >= 3 && columns[0] == claim.resource && token_of(columns[1]) == claim.presented;
    });
    if (row == rows.end() || (wanted.spends && (*row)[2] != "t")) return std::nullopt;
    marks.push_back({claim, (*row)[2] == "t", lowering_of(row->back())});
  }
  return marks;
}

// The last step is an error that the server sent: what came before it is rolled back, what comes behind it was skipped.
[[nodiscard]] inline bool failed_at(const pg_outcome& outcome) {
  return !outcome.steps.empty() && outcome.steps.back().has_error() && !outcome.steps.back().error().sqlstate.empty();
}

// The server's last words to a session, whose transaction it has rolled back.
[[nodiscard]] inline bool ends_transaction(const wire::pg_error& e) {
  return e.severity == "FATAL" && (e.sqlstate == admin_shutdown || e.sqlstate == idle_in_transaction);
}

// Of `steps` from BEGIN to COMMIT, sent at once, one of which failed: nothing of it is applied. The words of a pooler say
// nothing of that: it does not know what the server did with the COMMIT that it had passed on. What says it is the state
// that the transaction is in behind it; or an error of the server's own, of BEGIN, of COMMIT, or which ends the session.
[[nodiscard]] inline bool proves_rollback(const pg_outcome& outcome, std::size_t steps) {
  if (!failed_at(outcome)) return false;
  if (outcome.behind == pg_outcome::block::failed) return true;
  const auto& e = outcome.steps.back().error();
  if (!outcome.lost.empty()) return ends_transaction(e);
  return e.severity == "ERROR" && (outcome.steps.size() == 1 || outcome.steps.size() == steps);
}

// The last of `steps` is a COMMIT that did commit. Nothing behind its answer changes that, the session's end neither.
[[nodiscard]] inline bool has_committed(const pg_outcome& outcome, std::size_t steps) {
  return outcome.steps.size() >= steps && outcome.steps[steps - 1].has_value() &&
         outcome.steps[steps - 1]->tag == "COMMIT";
}

// And nothing came behind it.
[[nodiscard]] inline bool is_committed(const pg_outcome& outcome, std::size_t steps) {
  return outcome.lost.empty() && outcome.steps.size() == steps && has_committed(outcome, steps);
}

// Of `steps` without a BEGIN, which are one transaction up to the Sync behind them (protocol, "Pipelining"): it has
// committed.
[[nodiscard]] inline bool has_committed_at_sync(const pg_outcome& outcome, std::size_t steps) {
  return outcome.lost.empty() && outcome.steps.size() == steps && outcome.steps.back().has_value() &&
         outcome.behind == pg_outcome::block::none;
}

// Of such steps one failed, or their commit: nothing of it is applied. An error in place of a step's answer comes before
// the commit. One behind the last answer is of the commit or of what the server does behind it, before it is ready (it
// sends what the session listens for, is interrupted, is short of memory): it proves something only where a commit alone
// says so, by its constraints, its isolation, and RAISE in a deferred trigger, a fence's, too.
[[nodiscard]] inline bool proves_rollback_at_sync(const pg_outcome& outcome, std::size_t steps) {
  if (!failed_at(outcome)) return false;
  const auto& e = outcome.steps.back().error();
  const bool at_commit = outcome.steps.size() > steps;
  if (!outcome.lost.empty()) return !at_commit && ends_transaction(e);
  if (e.severity != "ERROR" || outcome.behind != pg_outcome::block::none) return false;
  static constexpr std::array<std::string_view, 4> of_commits{"23", "40", "P0", "ZF"};
  const auto is_of = [&](std::string_view of) { return e.sqlstate.starts_with(of); };
  return !at_commit || std::any_of(of_commits.begin(), of_commits.end(), is_of);
}

}  // namespace fencegate::backend
