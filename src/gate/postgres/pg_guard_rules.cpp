#include "gate/postgres/pg_guard_rules.hpp"

#include "base/limits.hpp"
#include "wire/pg_message.hpp"
#include "wire/sql_bytes.hpp"

#include <algorithm>

namespace fencegate::gate {
namespace {

using kind = pg_statement_kind;

constexpr std::string_view outlives = "a transaction that is prepared outlives its session and its fence";
constexpr std::string_view stays_in_pool =
    "behind a pooler SQL's PREPARE stays in a session that others use, too: prepare by the protocol";
constexpr std::string_view behind_unsure =
    "what may commit inside cannot stand here: it is not known whether a transaction is open; send a Sync first";
constexpr std::string_view behind_own =
    "behind CALL, DO and the like this cannot stand in the same transaction: send a Sync first, or BEGIN in front";
constexpr std::string_view unknown_in_pool =
    "behind a pooler a prepared statement is known in the transaction of its Parse only: send its Parse with it, or "
    "set "
    "pooled: false where there is no pooler";
constexpr std::string_view named_end =
    "COMMIT AND CHAIN, ROLLBACK TO, SAVEPOINT, RELEASE and the like cannot be prepared under a name: send them without "
    "one";
constexpr std::string_view taken_name = "names that begin with _fencegate are the gate's";
constexpr std::string_view changes_its_reading =
    "a message that changes how the rest of it is read: send its statements one by one";
constexpr std::string_view call_behind_unsure =
    "a function call cannot stand here: it is not known whether a transaction is open; send a Sync first";
static_assert(limits::pg_gathered_bytes_max == 16 * 1024 * 1024);  // too_large_to_split says so

// SQL can put another statement under a name (DEALLOCATE, PREPARE), though only one that `plain` fits. So what goes
// without a guard must stand right behind its Parse.
kind aged(kind what) {
  if (what == kind::locks) return kind::plain;
  const bool bare = what == kind::begins || what == kind::bare || what == kind::ends_surely || what == kind::ends;
  return bare ? kind::reused : what;
}

bool may_end(kind what) { return what == kind::named || what == kind::reused || what == kind::ends; }

bool mentions(std::string_view sql, std::string_view what) {
  const auto same = [](char a, char b) { return wire::upper(a) == b; };
  return std::search(sql.begin(), sql.end(), what.begin(), what.end(), same) != sql.end();
}

}  // namespace

// ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────

std::string_view pg_guard_rules::refusal_of(kind what, bool several) const {
  if (segment_.own && may_end(what)) return behind_own;
  if (goes_bare(what)) return {};
  if (what == kind::hands_over) return outlives;
  if (what == kind::prepares && at_ == pg_session_kind::pooled) return stays_in_pool;
  return needs_block(what, several) && segment_.unsure && !segment_.own ? behind_unsure : std::string_view{};
}

// SQL's EXECUTE inside of a function would run what ends a transaction behind the tag SELECT.
std::string_view pg_guard_rules::refusal_to_parse(const std::string& key, kind what) {
  if (key.starts_with(pg_own_name)) return taken_name;
  return !key.empty() && what == kind::ends ? named_end : std::string_view{};
}

std::string_view pg_guard_rules::refusal_to_bind(const std::string& portal_key, const std::string& key) const {
  if (key.starts_with(pg_own_name) || portal_key.starts_with(pg_own_name)) return taken_name;
  const bool direct = at_ == pg_session_kind::direct;
  if (kind_of_name(key) || (direct && in_known_block())) return {};
  return direct ? unknown_statement : unknown_in_pool;
}

// The server reads a whole message before it runs any of it; piece by piece, the rest would be read otherwise.
std::string_view pg_guard_rules::refusal_of_several(std::string_view sql) {
  const bool beyond_ascii = std::any_of(sql.begin(), sql.end(), [](char c) { return (c & 0x80) != 0; });
  const bool changes = (sql.find('\\') != std::string_view::npos && mentions(sql, "STANDARD_CONFORMING_STRINGS")) ||
                       (beyond_ascii && (mentions(sql, "CLIENT_ENCODING") || mentions(sql, "NAMES")));
  return changes ? changes_its_reading : std::string_view{};
}

std::string_view pg_guard_rules::refusal_to_call() const {
  return segment_.unsure ? call_behind_unsure : std::string_view{};
}

// ── the segment ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_guard_rules::open_segment(char status, bool guarded) {
  segment_ = {.open = true, .guarded = guarded, .block = status != 'I', .failed = status == 'E'};
  new_statements_.clear();
  portals_.clear();
  fresh_.clear();
}

// In a failed block a guard fails as the statement would. What may end the block must get through; so the belief that the
// block has failed is needed for nothing else.
bool pg_guard_rules::goes_bare(kind what) const {
  if (segment_.failed && may_end(what)) return true;
  if (what == kind::begins || what == kind::bare || what == kind::ends_surely) return true;
  return what == kind::ends && in_known_block();
}

bool pg_guard_rules::needs_block(kind what, bool several) const {
  const bool wants = what == kind::unsure || what == kind::unknown || what == kind::may_commit ||
                     (several && (what == kind::wants_block || what == kind::locks));
  return wants && !in_known_block();
}

void pg_guard_rules::begin_own_block() {
  segment_.own = segment_.block = true;
  segment_.unsure = false;
}

bool pg_guard_rules::run(kind what) {
  switch (what) {
    case kind::plain:
    case kind::copy:
    case kind::wants_block:
    case kind::locks:
    case kind::prepares:
    case kind::hands_over:
    case kind::may_commit:  // not in a block
    case kind::bare: return false;
    case kind::begins:
      segment_.block = true;
      segment_.own = segment_.failed = false;
      return false;
    case kind::ends_surely: segment_ = {.open = true}; return true;
    case kind::ends:
    case kind::named:
    case kind::reused:
    case kind::unsure:
    case kind::unknown:
      segment_.failed = false;
      segment_.unsure = true;
      return true;
  }
  return true;
}

// ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

std::optional<std::string_view> pg_guard_rules::take_string(std::string_view& body) {
  const auto end = body.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  const auto out = body.substr(0, end);
  body.remove_prefix(end + 1);
  return out;
}

std::optional<std::pair<char, std::string_view>> pg_guard_rules::take_target(std::string_view body) {
  const char of = body.empty() ? '\0' : body.front();
  if (!body.empty()) body.remove_prefix(1);
  const auto name = take_string(body);
  if (!name) return std::nullopt;
  return std::pair{of, *name};
}

void pg_guard_rules::note_parse(const std::string& key, kind what) {
  if (key != wire::pg_unsure_name) new_statements_[key] = what;
  fresh_ = "S" + key;
}

void pg_guard_rules::note_bind(const std::string& portal_key, kind what) {
  if (portal_key != wire::pg_unsure_name) portals_[portal_key] = what;
  fresh_ = "P" + portal_key;
}

void pg_guard_rules::note_close(char of, std::string_view name) {
  fresh_.clear();
  if (of != 'S') return;
  const auto key = wire::pg_name_key(name);
  if (new_statements_.contains(key) || statements_.contains(key)) new_statements_[key].reset();
}

// The server may analyse the statement again, which runs code, but none of the statement.
kind pg_guard_rules::note_describe(char of, std::string_view name) {
  const auto key = wire::pg_name_key(name);
  // A Describe of another one may run code, which may replace what is fresh.
  if (fresh_ != (of == 'S' ? "S" : "P") + key) fresh_.clear();
  const auto what = of == 'S' ? kind_of_name(key).value_or(kind::unknown) : kind_of_portal(key);
  const bool runs_nothing = what == kind::unsure || what == kind::unknown || what == kind::may_commit;
  return runs_nothing ? kind::plain : what;
}

std::optional<kind> pg_guard_rules::kind_of_name(const std::string& key) const {
  if (const auto here = new_statements_.find(key); here != new_statements_.end()) {
    if (!here->second) return std::nullopt;
    return fresh_ == "S" + key ? *here->second : aged(*here->second);
  }
  const auto known = statements_.find(key);
  if (known == statements_.end()) return std::nullopt;
  if (at_ == pg_session_kind::pooled && known->second.transaction != transaction_) return std::nullopt;
  return aged(known->second.what);
}

kind pg_guard_rules::kind_of_portal(const std::string& key) const {
  const auto known = portals_.find(key);
  if (known == portals_.end()) return kind::unknown;
  return fresh_ == "P" + key ? known->second : aged(known->second);
}

}  // namespace fencegate::gate
