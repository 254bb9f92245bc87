// guard: transaction: the client's messages, and what goes in front of them.
#include "gate/pg_guarded.hpp"

#include "wire/pg_message.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace fencegate::gate {
namespace {

using namespace std::string_literals;
using kind = pg_statement_kind;

constexpr std::string_view outlives = "a transaction that is prepared outlives its session and its fence";
constexpr std::string_view stays_in_pool =
    "behind a pooler SQL's PREPARE stays in a session that others use, too: prepare by the protocol";
constexpr std::string_view behind_unsure =
    "what may commit inside cannot stand here: it is not known whether a transaction is open; send a Sync first";
constexpr std::string_view behind_own =
    "behind CALL, DO and the like this cannot stand in the same transaction: send a Sync first, or BEGIN in front";
constexpr std::string_view unknown_statement = "the statement bound here is not known: send its Parse with it";
constexpr std::string_view unknown_in_pool =
    "behind a pooler a prepared statement is known in the transaction of its Parse only: send its Parse with it, or "
    "set "
    "pooled: false where there is no pooler";
constexpr std::string_view named_end =
    "COMMIT AND CHAIN, ROLLBACK TO, SAVEPOINT, RELEASE and the like cannot be prepared under a name: send them without "
    "one";
constexpr std::string_view taken_name = "names that begin with _fencegate are the gate's";

// The string at the start of a body, which is taken off; nullopt: it does not end there.
std::optional<std::string_view> take_string(std::string_view& body) {
  const auto end = body.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  const auto out = body.substr(0, end);
  body.remove_prefix(end + 1);
  return out;
}

// SQL can put another statement under a name (DEALLOCATE, PREPARE), though only one that `plain` fits. So what goes
// without a guard must stand right behind its Parse.
kind aged(kind what) {
  if (what == kind::locks) return kind::plain;
  const bool bare = what == kind::begins || what == kind::bare || what == kind::ends_surely || what == kind::ends;
  return bare ? kind::reused : what;
}

std::string_view unfit(kind what, pg_session_kind at) {
  if (what == kind::hands_over) return outlives;
  return what == kind::prepares && at == pg_session_kind::pooled ? stays_in_pool : std::string_view{};
}

bool may_end(kind what) { return what == kind::named || what == kind::reused; }

// What Describe and Close are about: 'S' for a statement, 'P' for a portal, and its name; nullopt: it does not end there.
std::optional<std::pair<char, std::string_view>> take_target(std::string_view body) {
  const char of = body.empty() ? '\0' : body.front();
  if (!body.empty()) body.remove_prefix(1);
  const auto name = take_string(body);
  if (!name) return std::nullopt;
  return std::pair{of, *name};
}

bool is_sure(const std::string& key) { return key != wire::pg_unsure_name; }

}  // namespace

pg_guarded::pg_guarded(const std::string& guard, pg_session_kind at,
                       std::function<std::string(std::string_view)> refusal)
    : guard_(own_messages(guard)),
      guard_parsed_(unnamed_messages(guard)),
      guard_kept_(unnamed_messages({})),
      at_(at),
      refusal_(std::move(refusal)) {}

// A program that is built for the tests takes a part of the mechanism away, which they have to notice.
bool pg_guarded::lacks([[maybe_unused]] std::string_view part) {
#ifdef FENCEGATE_BROKEN_GUARD
  const char* const broken = std::getenv("FENCEGATE_BREAK");
  return broken != nullptr && part == broken;
#else
  return false;
#endif
}

bool pg_guarded::owes_ready() const {
  return query_ || calls_ || std::any_of(expected_.begin(), expected_.end(), [](const entry& e) {
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
  segment_ = {
      .open = true, .guarded = status_ == 'T' && guard_holds_, .block = status_ != 'I', .failed = status_ == 'E'};
  new_statements_.clear();
  portals_.clear();
  fresh_.clear();
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
  // In a failed block a guard fails as the statement would. What may end the block must get through; so the belief that the
  // block has failed is needed for nothing else.
  if (segment_.own && (may_end(what) || what == kind::ends)) return refused(behind_own);
  if (segment_.failed && (may_end(what) || what == kind::ends)) return std::nullopt;
  if (what == kind::begins || what == kind::bare || what == kind::ends_surely) return std::nullopt;
  if (what == kind::ends && in_known_block()) return std::nullopt;
  if (const auto why = unfit(what, at_); !why.empty()) return refused(why);
  const bool several = query_ && query_->several;
  const bool wants_block = what == kind::unsure || what == kind::unknown || what == kind::may_commit ||
                           (several && (what == kind::wants_block || what == kind::locks));
  if (wants_block && !in_known_block() && !lacks("block")) {
    if (segment_.unsure && !segment_.own) return refused(behind_unsure);
    // In a block that is open already it is a warning, and harmless.
    send_own("BEGIN", task::begin);
    segment_.own = segment_.block = true;
    segment_.unsure = false;
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
  switch (what) {
    case kind::plain:
    case kind::copy:
    case kind::wants_block:
    case kind::locks:
    case kind::prepares:
    case kind::hands_over:
    case kind::may_commit:  // not in a block
    case kind::bare: return;
    case kind::begins:
      segment_.block = true;
      segment_.own = segment_.failed = false;
      return;
    case kind::ends_surely: segment_ = {.open = true, .guarded = lacks("again")}; return;
    case kind::ends:
    case kind::named:
    case kind::reused:
    case kind::unsure:
    case kind::unknown:
      segment_.guarded = lacks("again");
      segment_.failed = false;
      segment_.unsure = true;
      return;
  }
}

// The server itself fails in place of what is refused: so its state stays what it says.
void pg_guarded::refuse(std::string_view why) { send_own(refusal_(why), task::refusal); }

void pg_guarded::send(char type, std::string_view body, entry e) {
  behind += wire::encode_pg_message(type, body);
  expected_.push_back(std::move(e));
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
  if (skipping_) return verdict::drop;
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
  if (key.starts_with(pg_own_name)) return refused(taken_name);
  // SQL's EXECUTE inside of a function would run it behind the tag SELECT.
  if (!name->empty() && what == kind::ends && !lacks("refusal")) return refused(named_end);
  if (const auto early = lacks("parse") ? std::nullopt : in_its_way(what)) return *early;
  if (is_sure(key)) new_statements_[key] = what;
  fresh_ = "S" + key;
  if (name->empty()) changes_unnamed(true);
  expected_.push_back({.what = asked::parse, .runs = what, .name = key});
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_bind(std::string_view body) {
  const auto portal = take_string(body);
  const auto name = portal ? take_string(body) : std::nullopt;
  if (!name) return verdict::malformed;
  const auto key = wire::pg_name_key(*name), portal_key = wire::pg_name_key(*portal);
  if (key.starts_with(pg_own_name) || portal_key.starts_with(pg_own_name)) return refused(taken_name);
  const auto known = kind_of_name(key);
  if (is_kept_guard(*name)) return refused(unknown_statement);
  if (!known && !(at_ == pg_session_kind::direct && in_known_block()))
    return refused(at_ == pg_session_kind::direct ? unknown_statement : unknown_in_pool);
  const kind what = known.value_or(kind::unknown);
  if (const auto early = lacks("parse") ? std::nullopt : in_its_way(what)) return *early;
  if (is_sure(portal_key)) portals_[portal_key] = what;
  fresh_ = "P" + portal_key;
  expected_.push_back({.what = asked::bind});
  return verdict::pass;
}

// It may have the statement analysed again, which runs code, but none of it.
pg_guarded::verdict pg_guarded::on_describe(std::string_view body) {
  const auto target = take_target(body);
  if (!target) return verdict::malformed;
  const auto [of, name] = *target;
  const auto key = wire::pg_name_key(name);
  // A Describe of another one may run code, which may replace what is fresh.
  if (fresh_ != (of == 'S' ? "S" : "P") + key) fresh_.clear();
  if (of == 'S' && is_kept_guard(name)) return refused(unknown_statement);
  auto what = of == 'S' ? kind_of_name(key).value_or(kind::unknown) : kind_of_portal(key);
  if (what == kind::unsure || what == kind::unknown || what == kind::may_commit) what = kind::plain;
  if (const auto early = in_its_way(what)) return *early;
  expected_.push_back({.what = asked::describe});
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_execute(std::string_view body) {
  const auto name = take_string(body);
  if (!name) return verdict::malformed;
  const auto what = kind_of_portal(wire::pg_name_key(*name));
  if (const auto early = in_its_way(what)) return *early;
  fresh_.clear();
  expected_.push_back({.what = asked::execute, .runs = what});
  executed(what);
  return verdict::pass;
}

pg_guarded::verdict pg_guarded::on_close(std::string_view body) {
  const auto target = take_target(body);
  if (!target) return verdict::malformed;
  const auto [of, name] = *target;
  fresh_.clear();
  if (of == 'S') {
    const auto key = wire::pg_name_key(name);
    new_statements_.erase(key);
    statements_.erase(key);
    if (name.empty()) changes_unnamed(false);
  }
  expected_.push_back({.what = asked::close});
  return verdict::pass;
}

// nullopt: it was not prepared here; or in another transaction of a pooler's, whose sessions others use, too.
std::optional<kind> pg_guarded::kind_of_name(const std::string& key) const {
  if (const auto here = new_statements_.find(key); here != new_statements_.end())
    return fresh_ == "S" + key ? here->second : aged(here->second);
  const auto known = statements_.find(key);
  if (known == statements_.end()) return std::nullopt;
  if (at_ == pg_session_kind::pooled && known->second.transaction != transaction_) return std::nullopt;
  return aged(known->second.what);
}

kind pg_guarded::kind_of_portal(const std::string& key) const {
  const auto known = portals_.find(key);
  if (known == portals_.end()) return kind::unknown;
  return fresh_ == "P" + key ? known->second : aged(known->second);
}

}  // namespace fencegate::gate
