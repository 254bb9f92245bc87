// What the client sends once it is served: messages are framed and moved; of statements, the text is read.
#include "base/limits.hpp"
#include "gate/postgres/pg_engine.hpp"
#include "gate/postgres/pg_mending.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

constexpr std::string_view client_message_types = "QPBEDCHSFdcfX";
constexpr std::string_view empty_message_types = "HScX";

std::string_view command_of(const wire::sql_lead& lead) {
  return lead.words.empty() ? "statement" : std::string_view(lead.words.front());
}

// A statement as far as it is there.
struct seen_statement {
  std::string_view name, sql;
};

// Of a message that is not whole: what is there of its name and its text.
seen_statement beginning_of(char type, std::string_view body) {
  seen_statement out;
  if (type == 'P') {
    out.name = body.substr(0, body.find('\0'));
    body.remove_prefix(std::min(body.size(), out.name.size() + 1));
  }
  out.sql = body.substr(0, body.find('\0'));
  return out;
}

bool contains(const claims_list& claims, const fence::claim& one) {
  return std::find(claims.begin(), claims.end(), one) != claims.end();
}

}  // namespace

std::optional<std::pair<std::string_view, std::string_view>> pg_engine::bind_names(std::string_view body) {
  const auto portal = body.find('\0');
  if (portal == std::string_view::npos) return std::nullopt;
  const auto statement = body.find('\0', portal + 1);
  if (statement == std::string_view::npos) return std::nullopt;
  return std::pair{body.substr(0, portal), body.substr(portal + 1, statement - portal - 1)};
}

bool pg_engine::step_client() {
  waits_for_boundary_ = false;
  if (from_client.empty() || awaits_too_much()) return false;
  if (swallowed_ != 0 || client_passing_ != 0) return step_passing();
  if (ends_soon_ && at_boundary() && backend_passing_ == 0 && from_backend.empty()) {
    tell_end();
    return false;
  }
  const auto head = wire::decode_pg_head(from_client.view());
  if (!head) {
    protocol_error(metrics::side::client, head.error().message);
    return false;
  }
  if (!*head) return false;
  const char type = (*head)->type;
  if (terminated_) {
    from_client.consume(from_client.size());
    return false;
  }
  if (client_message_types.find(type) == std::string_view::npos) {
    protocol_error(metrics::side::client, "a message of unknown type");
    return false;
  }
  if (empty_message_types.find(type) != std::string_view::npos && (*head)->body_bytes != 0) {
    protocol_error(metrics::side::client, "a message that has no body has one");
    return false;
  }
  if (guarded_) return step_guarded(**head);
  if (unguarded_) return step_unguarded(**head);
  if (type == 'Q' || type == 'P') return step_statement(**head);
  if (type == 'B') return step_bind(**head);
  if (type == 'F') {
    if (!obey(judge_name(), **head, "FUNCTION CALL")) return !waits_for_boundary_;
    note_own_arms();
  }
  if (type == 'C') forget_statement(**head);
  if (type == 'E' || type == 'F') stats_.requests(metrics::request_class::other).add();
  if (type == 'X') terminated_ = true;
  forward(**head);
  return true;
}

bool pg_engine::step_passing() {
  if (swallowed_ != 0) {
    const std::size_t n = std::min(swallowed_, from_client.size());
    from_client.consume(n);
    swallowed_ -= n;
    return true;
  }
  const std::size_t n = std::min(client_passing_, from_client.size());
  to_backend += from_client.view().substr(0, n);
  from_client.consume(n);
  client_passing_ -= n;
  if (guarded_) send_behind();
  return true;
}

void pg_engine::forward(const wire::pg_head& head) {
  if (head.type == 'S' || head.type == 'Q' || head.type == 'F') mending_.clear();
  flight_.on_sent(head.type);
  client_passing_ = wire::pg_head_bytes + head.body_bytes;
  step_passing();
}

// ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_engine::step_statement(const wire::pg_head& head) {
  const std::size_t bytes = wire::pg_head_bytes + head.body_bytes;
  const bool whole = bytes <= limits::pg_statement_buffered_bytes_max;
  if (from_client.size() < std::min(bytes, limits::pg_statement_buffered_bytes_max)) return false;
  const auto body = from_client.view().substr(
      wire::pg_head_bytes, std::min(bytes, limits::pg_statement_buffered_bytes_max) - wire::pg_head_bytes);
  auto there = beginning_of(head.type, body);
  if (whole) {
    const auto statement = head.type == 'Q' ? wire::decode_pg_query(body) : wire::decode_pg_parse(body);
    if (!statement) {
      protocol_error(metrics::side::client, statement.error().message);
      return false;
    }
    there = {statement->name, statement->sql};
  }
  const auto lead = wire::read_sql_lead(there.sql);
  const auto key = head.type == 'P' ? std::optional(wire::pg_name_key(there.name)) : std::nullopt;
  const auto claims = claims_in(lead, whole);
  const bool mends = whole && claims && claims->empty() && only_mends(there.sql);
  if (!obey(judge(lead, claims, key, mends), head, command_of(lead))) return !waits_for_boundary_;
  stats_.requests(metrics::request_class::other).add();
  if (key && claims) remember_statement(*key, *claims, begins_transaction(lead));
  if (key && mends && *key != wire::pg_unsure_name)
    mending_.insert(*key);
  else if (key)
    mending_.erase(*key);
  forward(head);
  return true;
}

// A prepared statement carries the tag of its text wherever it is bound: else a later holder on the same connection would
// lend its token to an earlier one's statement.
void pg_engine::remember_statement(const std::string& key, claims_list claims, bool begins) {
  prepared_statement now{std::move(claims), begins, {}};
  const auto known = prepared_.find(key);
  // One with a name is kept by the server where it has it already, one without where it skips this behind an error.
  if (known != prepared_.end() && (!key.empty() || !flight_.idle() || !flight_.certain())) {
    const auto& old = known->second;
    now.begins = now.begins || old.begins;
    now.before = old.before;
    for (const auto& one : old.claims)
      if (!contains(now.before, one) && !contains(now.claims, one)) now.before.push_back(one);
  }
  if (now.claims.empty() && now.before.empty())
    prepared_.erase(key);
  else
    prepared_.insert_or_assign(key, std::move(now));
}

// With something in flight the server may skip the Close behind an error, and keep the statement.
void pg_engine::forget_statement(const wire::pg_head& head) {
  const bool heard = flight_.idle() && flight_.certain();
  if (prepared_.empty() || !heard || head.body_bytes > limits::pg_statement_buffered_bytes_max) return;
  const auto body = from_client.view().substr(wire::pg_head_bytes, head.body_bytes);
  if (body.size() != head.body_bytes || !body.starts_with('S') || body.find('\0') != body.size() - 1) return;
  // Whose name is not sure, may be another one.
  if (const auto key = wire::pg_name_key(body.substr(1, body.size() - 2)); key != wire::pg_unsure_name)
    prepared_.erase(key);
}

bool pg_engine::step_bind(const wire::pg_head& head) {
  if (prepared_.empty() && mending_.empty()) {
    if (!obey(judge_name(), head, "BIND")) return !waits_for_boundary_;
    forward(head);
    return true;
  }
  const auto names = bind_names(from_client.view().substr(
      wire::pg_head_bytes, std::min(head.body_bytes, limits::pg_statement_buffered_bytes_max)));
  if (!names) {
    const std::size_t there = from_client.size() - wire::pg_head_bytes;
    if (there >= head.body_bytes || there >= limits::pg_statement_buffered_bytes_max)
      protocol_error(metrics::side::client, "Bind without the names it needs");
    return false;
  }
  if (!obey(judge_bind(names->second), head, "BIND")) return !waits_for_boundary_;
  forward(head);
  return true;
}

// ── what becomes of them ─────────────────────────────────────────────────────────────────────────────────────────────────

// true: the message in front may go on.
bool pg_engine::obey(const judged& j, const wire::pg_head& head, std::string_view command) {
  using verdict = judged::verdict;
  switch (j.what) {
    case verdict::forward: return true;
    case verdict::wait: waits_for_boundary_ = true; return false;
    case verdict::arm:
      if (enforces())
        begin_arming(j.claims);
      else
        watch_only(j.claims);
      return false;
    case verdict::refuse:
      if (!enforces()) {
        host_.report(about_session(j.why), command, true);
        return true;
      }
      if (j.begins && !(flight_.idle() && flight_.status() != 'I')) {
        refuse_to_begin(head, j.why, command);
        return false;
      }
      refuse_statement(head, j.why, command);
      return false;
  }
  return false;
}

// A client that does not look would send the statements of the transaction all the same, and each would run by itself.
void pg_engine::refuse_to_begin(const wire::pg_head& head, const fence::rejection& why, std::string_view command) {
  const bool answered_soon = head.type == 'Q' && flight_.certain() && !flight_.unsynced() && !flight_.copying();
  if (!flight_.idle() && answered_soon)
    waits_for_boundary_ = true;
  else
    reject(why, command, flight_.at_boundary() ? applied::no : applied::unknown);
}

fence::rejection pg_engine::about_session(fence::rejection why) const {
  return why.why == reason::refused ? about_single(std::move(why), bound_) : why;
}

std::string pg_engine::refusal_of(fence::rejection why, std::string_view command) {
  why = about_session(std::move(why));
  host_.report(why, command, false);
  return failing_statement(pg_error_of(why, "ERROR"));
}

// The server itself fails in place of the statement: so the client sees what it would see of any failing statement, and the
// transaction around it fails with it.
void pg_engine::refuse_statement(const wire::pg_head& head, const fence::rejection& why, std::string_view command) {
  const bool simple = head.type == 'Q' || head.type == 'F';
  // Who reads data fails at the first of the three messages that would be sent, and may run the other two.
  if (!simple && (flight_.copying() || !flight_.certain())) return reject(why, command, applied::unknown);
  swallowed_ = wire::pg_head_bytes + head.body_bytes;
  if (!simple && flight_.failing()) return;  // the server skips what comes up to the next Sync
  const std::string sql = refusal_of(why, command);
  if (simple) {
    to_backend += wire::encode_pg_query(sql);
    flight_.on_sent('Q');
  } else {
    using std::string_literals::operator""s;
    to_backend += wire::encode_pg_message('P', "\0"s + sql + "\0\0\0"s);
    to_backend += wire::encode_pg_message('B', "\0\0\0\0\0\0\0\0"s);
    to_backend += wire::encode_pg_message('E', "\0\0\0\0\0"s);
    flight_.on_sent('P');
    flight_.on_sent('B');
    flight_.on_injected_statement();
    flight_.on_sent('E');
  }
}

void pg_engine::reject(fence::rejection why, std::string_view command, applied certain) {
  why = about_session(std::move(why));
  host_.report(why, command, !enforces());
  if (!enforces()) return;
  part(pg_error_of(why, "FATAL", certain));
}

}  // namespace fencegate::gate
