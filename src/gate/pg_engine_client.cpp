// What the client sends once it is served: messages are framed and moved; of statements, the text is read.
#include "base/limits.hpp"
#include "gate/pg_engine.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

constexpr std::string_view client_message_types = "QPBEDCHSFdcfX";
constexpr std::string_view empty_message_types = "HScX";

std::string_view command_of(const wire::sql_scanner::findings& found) {
  if (found.statements.empty() || found.statements.front().empty()) return "statement";
  return found.statements.front().front();
}

// The two strings at the start of Bind's body; nullopt: they are not there yet.
std::optional<std::pair<std::string_view, std::string_view>> bind_names(std::string_view body) {
  const auto portal = body.find('\0');
  if (portal == std::string_view::npos) return std::nullopt;
  const auto statement = body.find('\0', portal + 1);
  if (statement == std::string_view::npos) return std::nullopt;
  return std::pair{body.substr(0, portal), body.substr(portal + 1, statement - portal - 1)};
}

// The server tells prepared statements apart by so many bytes of their names (NAMEDATALEN - 1).
std::string statement_key(std::string_view name) { return std::string(name.substr(0, 63)); }

}  // namespace

bool pg_engine::step_client() {
  waits_for_boundary_ = false;
  if (asks_isolation_) return false;
  if (from_client.empty() || flight_.size() > limits::replies_awaited_max) return false;
  if (swallowed_ != 0 || client_passing_ != 0) return step_passing();
  if (large_ != nullptr) return step_large_statement();
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
  if (type == 'Q' || type == 'P') return step_statement(**head);
  if (type == 'B') return step_bind(**head);
  if (type == 'F' && !obey(judge_name(), **head, "FUNCTION CALL")) return !waits_for_boundary_;
  if (type == 'C') forget_statement(**head);
  if (type == 'E' && guards()) return step_execute(**head);
  if (guards() && !take(guard_.on_other(type, flight_), **head, "message")) return !waits_for_boundary_;
  if (type == 'E' || type == 'F') figures_.requests(metrics::request_class::other).add();
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
  send_owed_sync();
  return true;
}

void pg_engine::forward(const wire::pg_head& head) {
  flight_.on_sent(head.type);
  client_passing_ = wire::pg_head_bytes + head.body_bytes;
  step_passing();
}

// ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_engine::step_statement(const wire::pg_head& head) {
  const std::size_t bytes = wire::pg_head_bytes + head.body_bytes;
  const bool whole = bytes <= limits::pg_statement_buffered_bytes_max;
  if (from_client.size() < std::min(bytes, limits::pg_statement_buffered_bytes_max)) return false;
  auto body = from_client.view().substr(wire::pg_head_bytes);
  wire::sql_scanner::findings found;
  std::string name, doubt;
  std::unique_ptr<large_statement> large;
  if (whole) {
    body = body.substr(0, head.body_bytes);
    const auto statement = head.type == 'Q' ? wire::decode_pg_query(body) : wire::decode_pg_parse(body);
    if (!statement) {
      protocol_error(metrics::side::client, statement.error().message);
      return false;
    }
    name = statement->name;
    found = wire::scan_sql(statement->sql);
    doubt = unreadable(statement->sql, true);
  } else {
    // What is there of it is judged before any of it goes on; the rest as it comes.
    body = body.substr(0, std::min(body.size(), limits::pg_statement_buffered_bytes_max - wire::pg_head_bytes));
    large = std::make_unique<large_statement>();
    large->left = head.body_bytes;
    large->named = head.type == 'P';
    if (head.type == 'P') name = body.substr(0, body.find('\0'));
    large->read(body);
    found = large->text.found();
    doubt = unreadable(body, false);
  }
  const auto key = head.type == 'P' ? std::optional(statement_key(name)) : std::nullopt;
  if (!obey(judge(found, key), head, command_of(found))) return !waits_for_boundary_;
  const bool settled = head.type == 'P' || flight_.idle();  // else the encoding may be about to change
  if (guards() && settled && !doubt.empty()) {
    refuse_statement(head, {reason::refused, {}, {}, {}, doubt}, command_of(found));
    return !waits_for_boundary_;
  }
  if (guards()) {
    const auto advice =
        head.type == 'Q' ? guard_.on_query(found, flight_, whole) : guard_.on_parse(name, found, flight_, whole);
    if (!take(advice, head, command_of(found))) return !waits_for_boundary_;
  }
  figures_.requests(metrics::request_class::other).add();
  if (whole) {
    if (key) remember_statement(*key, found);
    forward(head);
    return true;
  }
  large->key = key;
  large->alone = flight_.idle() && flight_.certain();
  flight_.on_sent(head.type);
  const std::size_t inspected = wire::pg_head_bytes + body.size();
  to_backend += from_client.view().substr(0, inspected);
  from_client.consume(inspected);
  large->left -= body.size();
  large_ = std::move(large);
  return true;
}

// Of a message's body: a Parse's name is passed over, and what comes behind the text is no text.
void pg_engine::large_statement::read(std::string_view body) {
  if (named) {
    const auto end = body.find('\0');
    if (end == std::string_view::npos) return;
    body.remove_prefix(end + 1);
    named = false;
  }
  if (text_over) return;
  const auto end = body.find('\0');
  text_over = end != std::string_view::npos;
  text.feed(body.substr(0, end));
}

// Its beginning was sent on. The server runs nothing of a message that is not whole: so what turns out to be unfit is
// stopped by closing before the last bytes.
bool pg_engine::step_large_statement() {
  const auto piece = from_client.view().substr(0, std::min(large_->left, from_client.size()));
  large_->read(piece);
  const auto found = large_->text.found();
  const auto verdict = large_->reported ? judged{} : judge(found, large_->key);
  const auto unfit = guards() ? pg_guard::unfit(found) : std::string_view{};
  const auto certain = large_->alone ? applied::no : applied::unknown;
  if (!unfit.empty()) {
    reject({reason::refused, {}, {}, {}, std::string(unfit)}, "statement", certain);
    return false;
  }
  if (verdict.what != judged::verdict::forward) {
    fence::rejection why = verdict.why;
    if (verdict.what != judged::verdict::refuse)
      why = {reason::malformed, {}, {}, {}, "the tag of a statement this large must stand at its start"};
    if (enforces()) {
      reject(why, "statement", certain);
      return false;
    }
    host_.report(why, "statement", true);
    large_->reported = true;
  }
  to_backend += piece;
  large_->left -= piece.size();
  from_client.consume(piece.size());
  if (large_->left != 0) return true;
  if (large_->key) remember_statement(*large_->key, found);
  large_.reset();
  send_owed_sync();
  return true;
}

// A prepared statement carries the tag of its text wherever it is bound: else a later holder on the same connection would
// lend its token to an earlier one's statement.
void pg_engine::remember_statement(const std::string& key, const wire::sql_scanner::findings& found) {
  auto claims = claims_of(found.tags);
  if (!claims || claims->empty())
    tagged_statements_.erase(key);
  else
    tagged_statements_.insert_or_assign(key, std::move(*claims));
}

// With something in flight the server may skip the Close behind an error, and keep the statement.
void pg_engine::forget_statement(const wire::pg_head& head) {
  const bool heard = flight_.idle() && flight_.certain();
  if (tagged_statements_.empty() || !heard || head.body_bytes > limits::pg_statement_buffered_bytes_max) return;
  const auto body = from_client.view().substr(wire::pg_head_bytes, head.body_bytes);
  if (body.size() == head.body_bytes && body.starts_with('S') && body.ends_with('\0'))
    tagged_statements_.erase(statement_key(body.substr(1, body.find('\0') - 1)));
}

bool pg_engine::step_bind(const wire::pg_head& head) {
  if (tagged_statements_.empty() && !guards()) {
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
  const auto tagged = tagged_statements_.find(statement_key(names->second));
  const auto verdict = tagged == tagged_statements_.end() ? judge_name() : judge_tagged(tagged->second);
  if (!obey(verdict, head, "BIND")) return !waits_for_boundary_;
  if (guards() && !take(guard_.on_bind(names->first, names->second, flight_), head, "BIND"))
    return !waits_for_boundary_;
  forward(head);
  return true;
}

// ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────────────

pg_engine::judged pg_engine::judge(const wire::sql_scanner::findings& found, const std::optional<std::string>& key) {
  using verdict = judged::verdict;
  const auto refuse = [](reason why, std::string detail) {
    return judged{verdict::refuse, {}, {why, {}, {}, {}, std::move(detail)}};
  };
  if (statement_refused_) return judge_claims({});
  if (found.too_many_tags) return refuse(reason::malformed, "too many fence comments in one message");
  auto claims = claims_of(found.tags);
  if (!claims) return refuse(reason::malformed, claims.error().message);
  const bool fenced = !bound_.empty() || !claims->empty();
  if (fenced && found.begins_with("PREPARE", "TRANSACTION"))
    return refuse(reason::refused, "PREPARE TRANSACTION outlives the session and its fence");
  if (fenced && found.more_statements)
    return refuse(reason::refused, "so many statements in one message cannot be inspected; send them in several");
  if (!claims->empty() && found.statements.size() > 1 && found.names("FENCEGATE"))
    return refuse(reason::malformed, "functions of the fence cannot stand in one message with a tag");
  if (!claims->empty() && found.begins_with("PREPARE"))
    return refuse(reason::malformed, "a tag in PREPARE would not travel with EXECUTE; give it there");
  if (key) {
    const auto known = tagged_statements_.find(*key);
    const bool one_more = known == tagged_statements_.end() && !claims->empty();
    if (one_more && tagged_statements_.size() >= limits::pg_tagged_statements_max)
      return refuse(reason::refused, "too many prepared statements with tags; close some, or tag the connection");
    // The server refuses a name that is in use, and keeps what it meant. The statement without a name is replaced.
    if (known != tagged_statements_.end() && !key->empty() && known->second != *claims)
      return refuse(reason::malformed, "a prepared statement of this name carries another tag: close it first");
  }
  if (lends_token(found, *claims))
    return refuse(reason::malformed, "EXECUTE could run a prepared statement that carries another tag: close it first");
  const auto j = judge_tagged(*claims);
  if (j.what == verdict::forward && found.names("FENCEGATE") && !guards()) {
    arms_itself_ = true;
    proven_.clear();
  }
  return j;
}

// EXECUTE runs statements of the protocol's Parse, too; which one is not read.
bool pg_engine::lends_token(const wire::sql_scanner::findings& found, const claims_list& in_comments) const {
  if (tagged_statements_.empty() || !found.names("EXECUTE")) return false;
  claims_list held = proven_;
  bind_claims(held, in_comments);
  return std::any_of(tagged_statements_.begin(), tagged_statements_.end(),
                     [&](const auto& one) { return !claims_beyond(held, one.second).empty(); });
}

// What executes a statement whose text has no tag, or was judged before.
pg_engine::judged pg_engine::judge_name() { return judge_tagged({}); }

// The connection's name may have changed; a comment is the more particular of both. In a session that raises its token by
// itself, a tag is proven anew for each statement.
pg_engine::judged pg_engine::judge_tagged(const claims_list& in_comments) {
  using verdict = judged::verdict;
  if (!statement_refused_ && !wanted_malformed_.empty())
    return {verdict::refuse, {}, {reason::malformed, {}, {}, {}, wanted_malformed_}};
  claims_list wanted = wanted_;
  bind_claims(wanted, in_comments);
  auto j = judge_claims(wanted);
  if (arms_itself_ && j.what == verdict::forward) proven_.clear();
  return j;
}

pg_engine::judged pg_engine::judge_claims(const claims_list& wanted) {
  using verdict = judged::verdict;
  if (statement_refused_) return {verdict::refuse, {}, *std::exchange(statement_refused_, std::nullopt)};
  auto beyond = claims_beyond(proven_, wanted);
  if (beyond.empty()) return {};
  // In the middle of a message that passes, the replies to an arm could not be told from its rest.
  const bool quiet = flight_.at_boundary() && backend_passing_ == 0;
  if (!enforces() || quiet) return {verdict::arm, std::move(beyond), {}};
  if (flight_.at_boundary()) return {verdict::wait, {}, {}};
  if (flight_.certain() && !flight_.idle() && !flight_.unsynced() && !flight_.copying()) return {verdict::wait, {}, {}};
  const char* why = flight_.idle()
                        ? "a tag with another token cannot come inside a transaction"
                        : "a tag with another token cannot come in the middle of a pipeline: send Sync first";
  return {verdict::refuse, {}, {reason::malformed, beyond[0].resource, beyond[0].presented, {}, why}};
}

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
        host_.report(j.why, command, true);
        return true;
      }
      refuse_statement(head, j.why, command);
      return false;
  }
  return false;
}

// The server itself fails in place of the statement: so the client sees what it would see of any failing statement, and the
// transaction around it fails with it.
void pg_engine::refuse_statement(const wire::pg_head& head, const fence::rejection& why, std::string_view command) {
  const bool simple = head.type == 'Q' || head.type == 'F';
  // Who reads data fails at the first of the three messages that would be sent, and may run the other two.
  if (!simple && (flight_.copying() || !flight_.certain())) return reject(why, command, applied::unknown);
  if (!simple && guards() && !guard_.on_refused(flight_)) {
    waits_for_boundary_ = true;
    return;
  }
  swallowed_ = wire::pg_head_bytes + head.body_bytes;
  if (!simple && !guards() && flight_.failing()) return;  // the server skips what comes up to the next Sync
  host_.report(why, command, false);
  const std::string sql = failing_statement(pg_error_of(why, "ERROR"));
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

void pg_engine::reject(const fence::rejection& why, std::string_view command, applied certain) {
  host_.report(why, command, !enforces());
  close_with(pg_error_of(why, "FATAL", certain));
}

}  // namespace fencegate::gate
