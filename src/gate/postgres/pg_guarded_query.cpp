// guard: transaction: a simple Query and a function call. Each is a transaction of its own where none is open, and so cannot
// share one with a guard: the Query goes in the form of extended messages, the call inside of a block.
#include "base/limits.hpp"
#include "gate/postgres/pg_guarded.hpp"
#include "wire/pg_bytes.hpp"
#include "wire/pg_message.hpp"
#include "wire/sql_bytes.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using namespace std::string_literals;
using kind = pg_statement_kind;

// Of one Query that are sent ahead of their answers.
constexpr std::size_t in_flight_max = 1024;
constexpr std::size_t bytes_in_flight_max = limits::output_high_water_bytes;

// Nothing but semicolons and blanks behind the first semicolon: wherever that stands, in a literal that does not end or
// between statements, there is no second one.
bool is_single(std::string_view sql) {
  const auto end = sql.find(';');
  return end == std::string_view::npos || sql.find_first_not_of("; \t\n\r\f\v", end) == std::string_view::npos;
}

// Of a statement without a name: up to its text, which is this long with the byte that ends it. Two more bytes follow.
void begin_parse(std::string& out, std::size_t text_bytes) {
  out += 'P';
  wire::append_u32(out, static_cast<std::uint32_t>(4 + 1 + text_bytes + 2));
  out += '\0';
}

}  // namespace

// The server would run it in the transaction of what is not synced, or skip it behind an error there: which, is known when
// all of that was answered.
std::optional<pg_guarded::verdict> pg_guarded::not_yet() {
  if (segment_.open ? !all_answered() : !expected_.empty()) return verdict::wait;
  if (skipping_) return verdict::drop;
  return std::nullopt;
}

pg_guarded::verdict pg_guarded::refuse_alone(const std::string& sql) {
  static_cast<void>(begin_segment());
  send_own(sql, task::refusal);
  end_segment(false);
  return verdict::drop;
}

// Behind a guard that is not synced a Query never goes: PostgreSQL 18 would keep the transaction open behind it.
pg_guarded::verdict pg_guarded::on_query(std::string_view body, std::size_t body_bytes) {
  if (const auto early = not_yet()) return *early;
  const bool whole = body.size() == body_bytes;
  const auto sql = body.substr(0, body.size() - (whole ? 1 : 0));
  statements_.erase("");
  unnamed_is_clients_ = clients_seen_ = false;
  if (!segment_.open && whole && is_single(sql)) {
    const kind what = kind_of_statement(sql);
    if (passes_as_it_is(what)) {
      read_committed_.reset();
      changes_unnamed(false);
      unnamed_seen_ = unnamed_;  // whether it fails or not
      expect({.what = asked::query, .runs = what});
      return verdict::pass;
    }
  }
  if (!whole) {
    wire::sql_pieces begun(sql, backslashes_);
    const kind first = kind_of_statement(begun.next()->text, false);
    if (!begun.next()) return on_large_query(first, body_bytes);
    return body_bytes <= limits::pg_gathered_bytes_max ? verdict::gather : refuse_alone(refusal_(too_large_to_split));
  }
  static_cast<void>(begin_segment());
  return translate(sql);
}

pg_guarded::verdict pg_guarded::translate(std::string_view sql) {
  auto& q = query_.emplace();
  q.text = sql;
  q.rest.emplace(q.text, backslashes_);
  q.next = q.rest->next();
  q.after = q.rest->next();
  q.several = q.after.has_value();
  if (const auto why = q.several ? refusal_of_several(sql) : std::string_view{}; !why.empty()) {
    refuse(why);
    q.next.reset();
  }
  send_pieces();
  return verdict::drop;
}

// A Query of this one statement. Nothing is in flight, so the status is the server's.
bool pg_guarded::passes_as_it_is(kind what) const {
  if (what == kind::hands_over || what == kind::prepares) return false;
  if (what == kind::begins || what == kind::bare || what == kind::ends_surely) return true;
  if (status_ == 'E') return what == kind::ends || what == kind::named;
  return status_ == 'T' && (guard_holds_ || what == kind::ends);
}

// Its text goes on as it comes: so it has to be one statement.
pg_guarded::verdict pg_guarded::on_large_query(kind what, std::size_t body_bytes) {
  static_cast<void>(begin_segment());
  if (const auto early = in_its_way(what)) {
    if (*early == verdict::wait) return verdict::wait;
    skipping_ = false;
    end_segment(false);
    return verdict::drop;
  }
  in_front = std::exchange(behind, {});
  begin_parse(in_front, body_bytes);
  behind = "\0\0"s;
  changes_unnamed(false);
  expect({.what = asked::parse, .of_query = true, .unnamed = unnamed_});
  query_.emplace();
  send_piece(what, 0);
  send_pieces();
  return verdict::body_only;
}

// Behind its Parse.
void pg_guarded::send_piece(kind what, std::size_t at) {
  send('B', "\0\0\0\0\0\0\0\0"s, {.what = asked::bind, .of_query = true, .at = at});
  send('D', "P\0"s, {.what = asked::describe, .of_query = true, .at = at});
  send('E', "\0\0\0\0\0"s, {.what = asked::execute, .of_query = true, .runs = what, .at = at});
  executed(what);
  query_->waits = may_turn(expected_.back());
  if (query_->waits) behind += wire::encode_pg_message('H', {});
}

void pg_guarded::send_pieces() {
  auto& q = *query_;
  while (q.next && !q.waits) {
    if (expected_.size() > in_flight_max || behind.size() > bytes_in_flight_max) {
      behind += wire::encode_pg_message('H', {});
      q.waits = true;
      break;
    }
    const auto piece = *q.next;
    const kind what = kind_of_statement(piece.text);
    if (const auto early = in_its_way(what)) {
      q.waits = *early == verdict::wait;
      if (!q.waits) q.next.reset();
      break;
    }
    q.next = std::exchange(q.after, q.after ? q.rest->next() : std::nullopt);
    begin_parse(behind, piece.text.size() + 1);
    behind += piece.text;
    behind += "\0\0\0"s;
    changes_unnamed(false);
    expect({.what = asked::parse, .of_query = true, .at = piece.at, .unnamed = unnamed_});
    send_piece(what, piece.at);
  }
  if (q.waits || std::exchange(q.synced, true)) return;
  send('C', "S\0"s, {.what = asked::close, .of_query = true});  // as the server does
  end_segment(true);
}

// What stands for itself ends a transaction that is not a block: so it gets one, which ends behind it.
// Rule kept: it leaves once the server has said that the block is open and the guard's lock is held there. Behind the Sync of a
// block that could not be begun it would be a transaction of its own.
pg_guarded::verdict pg_guarded::on_call() {
  if (std::exchange(call_is_answered_, false)) return verdict::drop;
  if (const auto early = not_yet()) return *early;
  if (!segment_.open && (status_ == 'E' || (status_ == 'T' && guard_holds_))) {
    calls_ = own_open_;
    expect({.what = asked::call, .quiet = own_open_});
    if (own_open_) {
      send_own("COMMIT", task::commit);
      send('S', {}, {.what = asked::sync});
    }
    return verdict::pass;
  }
  static_cast<void>(begin_segment());
  if (const auto why = refusal_to_call(); !why.empty()) return refuse_alone(refusal_(why));
  if (!segment_.block) send_own("BEGIN", task::begin);
  if (!segment_.guarded) send_guard();
  send('S', {}, {.what = asked::sync, .opens = true});
  segment_ = {};
  calls_ = true;
  return verdict::wait;
}

}  // namespace fencegate::gate
