// guard: transaction: the machine's own statements.
#include "gate/postgres/pg_guarded.hpp"
#include "wire/pg_message.hpp"

namespace fencegate::gate {
namespace {

using namespace std::string_literals;

std::string own_close(char of) { return wire::encode_pg_message('C', of + std::string(pg_own_name) + '\0'); }

// Empty: it is there already.
std::string own_parse(std::string_view name, std::string_view sql) {
  return sql.empty() ? "" : wire::encode_pg_message('P', std::string(name) + '\0' + std::string(sql) + "\0\0\0"s);
}

std::string own_run(std::string_view name) {
  const std::string portal = std::string(pg_own_name) + '\0';
  return wire::encode_pg_message('B', portal + std::string(name) + '\0' + "\0\0\0\0\0\0"s) +
         wire::encode_pg_message('E', portal + "\0\0\0\0"s);
}

}  // namespace

// A statement of the machine's own. What is closed in front was left by one that failed, or by a client that took the name.
// A portal that stayed open would keep its snapshot to the end of the transaction: vacuum would wait for it, COPY FREEZE
// would fail.
pg_guarded::own_statement pg_guarded::own_messages(std::string_view sql) {
  const std::string closed = own_close('P') + own_close('S');
  return {closed + own_parse(pg_own_name, sql) + own_run(pg_own_name) + closed, "3312C33"};
}

// The same, in the statement without a name; or, of no `sql`, what was parsed there before.
pg_guarded::own_statement pg_guarded::unnamed_messages(std::string_view sql) {
  return {own_close('P') + own_parse({}, sql) + own_run({}) + own_close('P'), sql.empty() ? "32C3" : "312C3"};
}

void pg_guarded::send_own(std::string_view sql, task does) {
  const auto own = own_messages(sql);
  behind += own.messages;
  expect({.what = asked::own, .does = does, .replies = own.replies});
}

// Rule kept: what is run is the guard. Under the machine's name it is parsed here; without one it is what was parsed last, and
// nothing that was sent since has put something else there.
void pg_guarded::send_guard() {
  const bool unnamed = is_kept_guard({});
  const bool kept = unnamed && kept_ == unnamed_;
  const auto& guard = kept ? guard_kept_ : unnamed ? guard_parsed_ : guard_;
  behind += guard.messages;
  expect({.what = asked::own, .does = task::guard, .replies = guard.replies});
  if (!unnamed || kept) return;
  changes_unnamed(false);
  expected_.back().unnamed = unnamed_;
}

// Where the client has none without a name, the server may have a guard there.
bool pg_guarded::is_kept_guard(std::string_view name) const {
  return name.empty() && at_ == pg_session_kind::direct && !unnamed_is_clients_;
}

// `clients`: what is there now may be the client's, which it may bind later.
void pg_guarded::changes_unnamed(bool clients) {
  ++unnamed_;
  unnamed_is_clients_ = clients;
}

// The server has done it.
void pg_guarded::unnamed_changed(const entry& by) {
  if (!by.unnamed) return;
  unnamed_seen_ = *by.unnamed;
  clients_seen_ = by.what == asked::parse && !by.of_query;
}

// Everything behind what failed was skipped. What failed may have emptied it before.
void pg_guarded::undo_unnamed(const entry& failed) {
  if (failed.unnamed) kept_.reset();
  unnamed_ = unnamed_seen_;
  unnamed_is_clients_ = clients_seen_;
}

}  // namespace fencegate::gate
