#include "gate/pg_guard.hpp"

#include "wire/pg_message.hpp"

#include <algorithm>
#include <array>

namespace fencegate::gate {
namespace {

// Prepared statements and portals that one client may have: what is beyond is treated as unknown.
constexpr std::size_t names_max = 10'000;

constexpr std::string_view uncovered =
    "behind the end of a transaction the same message cannot go on: it would not be fenced; send it by itself";
constexpr std::string_view inner_commits =
    "CALL and DO may commit inside, and what follows would not be fenced: run them between BEGIN and COMMIT";
constexpr std::string_view unknown_statement =
    "the statement bound here may be any, also one that commits inside: send its Parse with it, without a Sync in "
    "between, "
    "or run it between BEGIN and COMMIT";
constexpr std::string_view prepared = "a transaction that was prepared elsewhere is not fenced";
constexpr std::string_view late_begin = "BEGIN must be the first statement of a message";
constexpr std::string_view begin_with_options =
    "BEGIN with options must be a message of its own: the fence goes behind it";
constexpr std::string_view function_call = "the function call message cannot be fenced with guard: transaction";

bool is(const std::vector<std::string>& words, std::size_t at, std::string_view word) {
  return words.size() > at && words[at] == word;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

pg_guard::effect pg_guard::effect_of(const std::vector<std::string>& words) {
  if (is(words, 0, "BEGIN") || (is(words, 0, "START") && is(words, 1, "TRANSACTION"))) return {.begins = true};
  constexpr std::array<std::string_view, 4> enders{"COMMIT", "END", "ROLLBACK", "ABORT"};
  // ROLLBACK TO a savepoint ends nothing; the guard is older than any savepoint.
  if (!words.empty() && std::find(enders.begin(), enders.end(), words[0]) != enders.end() && !has(words, "TO"))
    return {.ends = true};
  if (is(words, 0, "SET") && is(words, 1, "TRANSACTION")) return {};  // must come before any query, hence the guard
  // They write nothing, and the server takes no snapshot for them. With a guard in front SET TRANSACTION would come too
  // late behind them, and a transaction that is not READ COMMITTED would not see what it waited for in LOCK; nor with a
  // guard behind it, what it waits for in the next LOCK.
  if (is(words, 0, "LOCK")) return {.works = true, .quiet = true, .locks = true};
  constexpr std::array<std::string_view, 5> quiet{"SET", "RESET", "SHOW", "LISTEN", "UNLISTEN"};
  if (!words.empty() && std::find(quiet.begin(), quiet.end(), words[0]) != quiet.end() && !is(words, 1, "CONSTRAINTS"))
    return {.works = true, .quiet = true};
  if (is(words, 0, "CALL") || is(words, 0, "DO")) return {.commits_inside = true, .works = true};
  return {.works = true};
}

pg_guard::effect pg_guard::effect_of(const wire::sql_scanner::findings& text) {
  if (text.statements.empty()) return {};
  if (text.statements.size() == 1) return effect_of(text.statements[0]);
  // A transaction block of its own, or part of one: it may begin first, and end last (unfit()).
  return {.ends = effect_of(text.statements.back()).ends, .works = true};
}

std::string_view pg_guard::unfit(const wire::sql_scanner::findings& text) {
  if (const auto why = unfit(text.statements); !why.empty()) return why;
  if (const auto why = unfit(text.other_way); !why.empty()) return why;
  return text.more_statements ? uncovered : std::string_view{};
}

std::string_view pg_guard::unfit(const std::vector<std::vector<std::string>>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto e = effect_of(all[i]);
    if (is(all[i], 1, "PREPARED") && e.ends) return prepared;
    if (all.size() == 1) break;
    if (e.ends && i + 1 < all.size()) return uncovered;
    if (e.begins && i != 0) return late_begin;
    if (e.commits_inside) return inner_commits;
    if (e.begins && all[i].size() > 1 && !(all[i].size() == 2 && (all[i][1] == "TRANSACTION" || all[i][1] == "WORK")))
      return begin_with_options;
  }
  return {};
}

// The server may refuse a name that is in use, and keep what it meant.
pg_guard::effect pg_guard::either(const effect& one, const effect& other) {
  return {one.begins && other.begins, one.ends || other.ends,   one.commits_inside || other.commits_inside,
          one.works || other.works,   one.quiet && other.quiet, one.locks || other.locks};
}

// The state that was seen last is only true when nothing is in flight.
bool pg_guard::begin_stretch(const pg_flight& flight) {
  if (in_stretch_ && flight.unsynced()) return true;
  if (!flight.idle()) return false;
  in_stretch_ = true;
  begun_ = ended_ = unnamed_parsed_ = false;
  return true;
}

bool pg_guard::in_block(const pg_flight& flight) const { return begun_ || (flight.status() != 'I' && !ended_); }

pg_guard::advice pg_guard::before(const effect& e, const pg_flight& flight) {
  if (e.commits_inside && !in_block(flight)) return {advice::kind::refuse, inner_commits};
  if (!e.locks) read_committed_.reset();
  if (!e.works || guarded_) return {};
  // In a failed transaction nothing works but its end, which a guard would keep from being reached.
  if (flight.status() == 'E' && !ended_) return {};
  if (e.quiet && in_block(flight)) {
    // What is skipped locks nothing, and nobody would answer.
    if (!e.locks || failed_ || !flight.certain()) return {};
    if (!read_committed_) return {advice::kind::ask};
    if (!*read_committed_) return {};
  }
  guarded_ = true;
  return {advice::kind::guard};
}

pg_guard::advice pg_guard::on_query(const wire::sql_scanner::findings& text, const pg_flight& flight, bool whole) {
  if (const auto why = unfit(text); !why.empty()) return {advice::kind::refuse, why};
  if (!flight.certain()) return {advice::kind::refuse, uncovered};
  if (!flight.idle()) return {flight.unsynced() ? advice::kind::refuse : advice::kind::wait, uncovered};
  in_stretch_ = begun_ = ended_ = false;
  effect e = effect_of(text);
  if (!whole) {
    e.works = true;
    e.quiet = false;
  }
  const auto out = before(e, flight);
  if (e.ends) guarded_ = false;  // whatever the server says of it
  return out;
}

// What has no name is replaced. What is not remembered is not known.
void pg_guard::remember(effects& all, std::string_view name, const effect& e) {
  const std::string key = wire::pg_name_key(name);
  if (key == wire::pg_unsure_name) return;
  const auto known = all.find(key);
  if (known != all.end())
    known->second = key.empty() ? e : either(known->second, e);
  else if (all.size() < names_max)
    all.emplace(key, e);
}

pg_guard::advice pg_guard::on_parse(std::string_view name, const wire::sql_scanner::findings& text,
                                    const pg_flight& flight, bool whole) {
  if (const auto why = unfit(text); !why.empty()) return {advice::kind::refuse, why};
  if (!begin_stretch(flight)) return {advice::kind::wait};
  effect e = effect_of(text);
  if (!whole) {
    e.works = true;
    e.quiet = false;
  }
  if (name.empty()) unnamed_parsed_ = true;
  remember(statements_, name, e);
  return {};
}

pg_guard::advice pg_guard::on_bind(std::string_view portal, std::string_view statement, const pg_flight& flight) {
  if (!begin_stretch(flight)) return {advice::kind::wait};
  const auto known = statements_.find(wire::pg_name_key(statement));
  const bool sure = known != statements_.end() && (!statement.empty() || unnamed_parsed_);
  if (!sure && !in_block(flight)) return {advice::kind::refuse, unknown_statement};
  const effect e = sure ? known->second : effect{.ends = true, .works = true};
  const auto out = before(e, flight);
  if (out.what == advice::kind::refuse) return out;
  remember(portals_, portal, e);
  return out;
}

pg_guard::advice pg_guard::on_execute(std::string_view portal, const pg_flight& flight) {
  if (!begin_stretch(flight)) return {advice::kind::wait};
  effect e{.ends = true, .works = true};
  if (const auto known = portals_.find(wire::pg_name_key(portal)); known != portals_.end()) e = known->second;
  const auto out = before(e, flight);
  if (out.what == advice::kind::refuse) return out;
  if (e.begins) begun_ = true;
  if (e.ends) {
    ended_ = true;
    begun_ = guarded_ = false;
  }
  return out;
}

pg_guard::advice pg_guard::on_other(char type, const pg_flight& flight) {
  if (type == 'F') return {advice::kind::refuse, function_call};
  if (type == 'S') {
    in_stretch_ = false;
    return {};
  }
  const bool of_a_stretch = type == 'D' || type == 'C' || type == 'H';
  if (of_a_stretch && !begin_stretch(flight)) return {advice::kind::wait};
  return {};
}

bool pg_guard::on_refused(const pg_flight& flight) { return begin_stretch(flight); }

// In a failed transaction the guard itself may be among what the server skipped.
void pg_guard::on_ready(char status) {
  if (status != 'T') guarded_ = false;
  read_committed_.reset();
  if (status == 'I')
    portals_.clear();
  else if (failed_)
    portals_.erase("");  // the server may have skipped what bound it
  failed_ = false;
}

void pg_guard::on_complete(std::string_view tag) {
  if (tag == "COMMIT" || tag == "ROLLBACK") guarded_ = false;
}

void pg_guard::on_error() { failed_ = true; }

void pg_guard::on_isolation(std::string_view level) { read_committed_ = level == "read committed"; }

// A portal that stayed open would keep its snapshot to the end of the transaction: vacuum would wait for it, COPY FREEZE
// would fail. What is closed in front was left by a guard that failed, or by a client that took the name.
std::string guard_messages(std::string_view sql) {
  using std::string_literals::operator""s;
  const std::string name = "_fencegate\0"s;
  const std::string closed = wire::encode_pg_message('C', "P" + name) + wire::encode_pg_message('C', "S" + name);
  return closed + wire::encode_pg_message('P', name + std::string(sql) + "\0\0\0"s) +
         wire::encode_pg_message('B', name + name + "\0\0\0\0\0\0"s) +
         wire::encode_pg_message('E', name + "\0\0\0\0"s) + closed;
}

}  // namespace fencegate::gate
