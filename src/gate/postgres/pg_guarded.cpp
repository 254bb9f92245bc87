// guard: transaction: the client's messages, and what goes in front of them.
#include "gate/postgres/pg_guarded.hpp"

#include "wire/pg_message.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using namespace std::string_literals;
using kind = pg_statement_kind;

}  // namespace

pg_guarded::pg_guarded(const std::string& guard, pg_session_kind at,
                       std::function<std::string(std::string_view)> refusal)
    : pg_guard_rules(at),
      guard_(own_messages(guard)),
      guard_parsed_(unnamed_messages(guard)),
      guard_kept_(unnamed_messages({})),
      refusal_(std::move(refusal)) {}

bool pg_guarded::owes_ready() const {
  return query_ || calls_ || sync_held_ || std::any_of(expected_.begin(), expected_.end(), [](const entry& e) {
           return e.what == asked::sync || e.what == asked::query || e.what == asked::call;
         });
}

void pg_guarded::on_parameter(std::string_view name, std::string_view value) {
  if (name == "standard_conforming_strings") backslashes_ = value == "off";
  if (name == "client_encoding") utf8_ = value == "UTF8";
}

// ── segments ────────────────────────────────────────────────────────────────────────────────────────────────────────

// false: not before what is in flight was answered.
bool pg_guarded::begin_segment() {
  if (segment_.open) return true;
  if (!expected_.empty()) return false;
  open_segment(status_, status_ == 'T' && guard_holds_);
  flushed_ = false;
  return true;
}

void pg_guarded::end_segment(bool of_query) {
  if (std::exchange(segment_.own, false)) send_own("COMMIT", task::commit);
  send('S', {}, {.what = asked::sync, .of_query = of_query});
  segment_.open = false;
}

// What the server has to have in front of what may run code is sent. nullopt: the message may go on.
std::optional<pg_guarded::verdict> pg_guarded::in_its_way(kind what) {
  const bool several = query_ && query_->several;
  if (const auto why = refusal_of(what, several); !why.empty()) return refused(why);
  if (goes_bare(what)) return std::nullopt;
  if (needs_block(what, several)) {
    // In a block that is open already it is a warning, and harmless.
    send_own("BEGIN", task::begin);
    begin_own_block();
  }
  if (segment_.guarded) return std::nullopt;
  // One who pauses behind LOCK is ended by a raise only if it holds a guard's lock, too. But a guard takes a snapshot, and
  // where the transaction keeps it, would not see what it waited for in LOCK, nor in the next one.
  if (what == kind::locks && in_known_block() && !segment_.failed) {
    if (!read_committed_) return ask_isolation();
    if (!*read_committed_) return std::nullopt;
  }
  segment_.guarded = true;
  send_guard();
  return std::nullopt;
}

pg_guarded::verdict pg_guarded::ask_isolation() {
  const bool asked_already = !expected_.empty() && expected_.back().does == task::isolation;
  if (!asked_already) {
    send_own("SHOW transaction_isolation", task::isolation);
    behind += wire::encode_pg_message('H', {});
  }
  return verdict::wait;
}

void pg_guarded::executed(kind what) {
  if (what != kind::locks) read_committed_.reset();  // SET TRANSACTION may have changed it
  if (run(what)) segment_.guarded = false;
}

// The server itself fails in place of what is refused: so its state stays what it says.
void pg_guarded::refuse(std::string_view why) { send_own(refusal_(why), task::refusal); }

void pg_guarded::send(char type, std::string_view body, entry e) {
  behind += wire::encode_pg_message(type, body);
  expect(std::move(e));
}

// A Flush that was sent asks for no answer to what comes later.
void pg_guarded::expect(entry e) {
  expected_.push_back(std::move(e));
  flushed_ = false;
}

// ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────────

// What is written to `behind` while a message is judged goes in front of it, but for what on_query() and on_call() say.
pg_guarded::verdict pg_guarded::on_message(char type, std::string_view body, std::size_t body_bytes) {
  const bool whole = body.size() == body_bytes;
  if (type == 'H') return verdict::pass;
  // The server would end in front of what the machine still has to send.
  if (type == 'X') return expected_.empty() || copy_in_ ? verdict::pass : verdict::wait;
  if (type == 'd' || type == 'c' || type == 'f') return on_data(type);
  if (copy_in_) return on_unexpected_in_copy(type);
  if (query_ || calls_) return verdict::wait;
  if (type == 'S') return on_sync();
  if (skipping_) return verdict::drop;
  if (type == 'Q') return on_query(body, body_bytes);
  if (type == 'F') return on_call();
  if (!begin_segment()) return verdict::wait;
  const auto out = type == 'P'   ? on_parse(body, whole)
                   : type == 'B' ? on_bind(body)
                   : type == 'D' ? on_describe(body)
                   : type == 'E' ? on_execute(body)
                                 : on_close(body);
  in_front += std::exchange(behind, {});
  return out;
}

pg_guarded::verdict pg_guarded::on_refused(char type, const std::function<std::string()>& refusal) {
  if (copy_in_) return on_unexpected_in_copy(type);
  if (query_ || calls_) return verdict::wait;
  if (skipping_ || (type == 'F' && std::exchange(call_is_answered_, false))) return verdict::drop;
  if (type == 'Q' || type == 'F') {
    if (const auto early = not_yet()) return *early;
    return refuse_alone(refusal());
  }
  if (!begin_segment()) return verdict::wait;
  send_own(refusal(), task::refusal);
  return skip();
}

// Everything that is sent will be answered without a Sync. true: it was.
bool pg_guarded::all_answered() {
  if (expected_.empty()) {
    flushed_ = false;
    return true;
  }
  if (!std::exchange(flushed_, true)) behind += wire::encode_pg_message('H', {});
  return false;
}

// Behind what is refused the server skips everything up to a Sync.
pg_guarded::verdict pg_guarded::skip() {
  skipping_ = true;
  return verdict::drop;
}

// Of a Query its end follows.
pg_guarded::verdict pg_guarded::refused(std::string_view why) {
  refuse(why);
  return query_ ? verdict::drop : skip();
}

pg_guarded::verdict pg_guarded::on_sync() {
  if (!segment_.open && !expected_.empty()) return verdict::wait;
  // While it reads data the server takes no notice of a Sync, and fails by what may stand in front of one.
  const bool may_copy = std::any_of(expected_.begin(), expected_.end(), [](const entry& e) { return may_turn(e); });
  if (may_copy && !all_answered()) return verdict::wait;
  skipping_ = false;
  segment_.open = true;
  end_segment(false);
  return verdict::drop;
}

pg_guarded::verdict pg_guarded::on_parse(std::string_view body, bool whole) {
  const auto name = take_string(body);
  if (!name) return verdict::malformed;
  const auto end = body.find('\0');
  const kind what = kind_of_statement(body.substr(0, end), end != std::string_view::npos || whole);
  const auto key = wire::pg_name_key(*name);
  if (const auto why = refusal_to_parse(key, what); !why.empty()) return refused(why);
  if (const auto early = in_its_way(what)) return *early;
  note_parse(key, what);
  if (name->empty()) changes_unnamed(true);
  expect({.what = asked::parse, .runs = what, .name = key, .unnamed = change_of(name->empty())});
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_bind(std::string_view body) {
  const auto portal = take_string(body);
  const auto name = portal ? take_string(body) : std::nullopt;
  if (!name) return verdict::malformed;
  const auto key = wire::pg_name_key(*name), portal_key = wire::pg_name_key(*portal);
  if (const auto why = refusal_to_bind(portal_key, key); !why.empty()) return refused(why);
  if (is_kept_guard(*name)) return refused(unknown_statement);
  const kind what = kind_of_name(key).value_or(kind::unknown);
  if (const auto early = in_its_way(what)) return *early;
  note_bind(portal_key, what);
  expect({.what = asked::bind});
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_describe(std::string_view body) {
  const auto target = take_target(body);
  if (!target) return verdict::malformed;
  const auto what = note_describe(target->first, target->second);
  if (target->first == 'S' && is_kept_guard(target->second)) return refused(unknown_statement);
  if (const auto early = in_its_way(what)) return *early;
  expect({.what = asked::describe});
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_execute(std::string_view body) {
  const auto name = take_string(body);
  if (!name) return verdict::malformed;
  const auto what = kind_of_portal(wire::pg_name_key(*name));
  if (const auto early = in_its_way(what)) return *early;
  fresh_.clear();
  expect({.what = asked::execute, .runs = what});
  executed(what);
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_close(std::string_view body) {
  const auto target = take_target(body);
  if (!target) return verdict::malformed;
  note_close(target->first, target->second);
  const bool statement = target->first == 'S', unnamed = statement && target->second.empty();
  if (unnamed) changes_unnamed(false);
  const auto key = statement ? wire::pg_name_key(target->second) : std::string(wire::pg_unsure_name);
  expect({.what = asked::close, .name = key, .unnamed = change_of(unnamed)});
  return verdict::pass;
}

}  // namespace fencegate::gate
