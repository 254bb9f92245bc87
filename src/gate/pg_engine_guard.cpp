// guard: transaction: how the guards that gate/pg_guard.hpp asks for travel, and what becomes of their replies.
#include "base/limits.hpp"
#include "gate/pg_engine.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

// In these encodings a character may hold the byte of a backslash. The server converts the text before it reads it, the
// gate does not: they could differ about where a literal ends, hence about where a statement does.
constexpr std::array<std::string_view, 7> unreadable_encodings{"SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "GB18030",
                                                               "UHC",  "JOHAB"};

constexpr std::string_view guard_reply_types = "3312DC33";

}  // namespace

bool pg_engine::guards() const {
  return gate_.kept_by == settings::guard::transaction && enforces() && !bound_.empty();
}

// What is ASCII only reads the same in all of them. Asked of every statement: one that needs no guard, or has one, could
// hold a COMMIT that only the server sees.
std::string pg_engine::unreadable(std::string_view sql, bool whole) const {
  if (std::find(unreadable_encodings.begin(), unreadable_encodings.end(), client_encoding_) ==
      unreadable_encodings.end())
    return "";
  const bool ascii = std::all_of(sql.begin(), sql.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii && whole) return "";
  return "text beyond ASCII in client_encoding " + client_encoding_ +
         " cannot be read, by which a COMMIT or a tag could hide: use UTF8";
}

// true: the message in front may go on.
bool pg_engine::take(const pg_guard::advice& advice, const wire::pg_head& head, std::string_view command) {
  using kind = pg_guard::advice::kind;
  if (advice.what == kind::wait) {
    waits_for_boundary_ = true;
    return false;
  }
  if (advice.what == kind::refuse) {
    refuse_statement(head, {reason::refused, {}, {}, {}, std::string(advice.why)}, command);
    return false;
  }
  if (advice.what == kind::ask) {
    ask_isolation(head.type);
    return false;
  }
  if (advice.what == kind::guard) send_guard(head.type);
  return true;
}

bool pg_engine::step_execute(const wire::pg_head& head) {
  const auto body = from_client.view().substr(wire::pg_head_bytes);
  const auto end = body.substr(0, head.body_bytes).find('\0');
  if (end == std::string_view::npos) {
    if (body.size() >= std::min(head.body_bytes, limits::pg_inspected_bytes_max))
      protocol_error(metrics::side::client, "Execute without the name of its portal");
    return false;
  }
  if (!take(guard_.on_execute(body.substr(0, end), flight_), head, "EXECUTE")) return !waits_for_boundary_;
  figures_.requests(metrics::request_class::other).add();
  forward(head);
  return true;
}

void pg_engine::send_guard(char in_front_of) {
  to_backend += guard_messages(guard_statement(bound_));
  flight_.on_injected_guard();
  guards_query_ = in_front_of == 'Q';
}

// Flush and not a simple Query, behind which the server would say that it is ready.
void pg_engine::ask_isolation(char in_front_of) {
  to_backend += guard_messages("SHOW transaction_isolation") + wire::encode_pg_message('H', {});
  flight_.on_injected_guard();
  guards_query_ = in_front_of == 'Q';
  asks_isolation_ = true;
}

// Behind the Query that the server skips: not in the middle of it, nor before it was sent.
void pg_engine::send_owed_sync() {
  if (!sync_owed_ || asks_isolation_ || client_passing_ != 0 || large_ != nullptr) return;
  sync_owed_ = false;
  to_backend += wire::encode_pg_message('S', {});
}

// The replies of a guard, of which the first has come; they are the gate's. An error is the client's: the server takes it
// for the error of the statement behind the guard, and so may the client.
pg_engine::passage pg_engine::inspect_guard(char type, std::string_view body) {
  if (type == 'N' || type == 'A' || type == 'S') return passage::through;
  if (type == 'E') {
    guard_replies_ = 0;
    if (const auto e = wire::decode_pg_error(body); e && !asks_isolation_) {
      const auto why = rejection_of(*e, bound_);
      host_.report(why, "guard", false);
      if (why.why == reason::stale && why.mark && fence::is_resource_name(why.resource))
        host_.saw(database_, why.resource, *why.mark);
    }
    if (std::exchange(guards_query_, false)) {
      sync_owed_ = true;
      send_owed_sync();
    }
    return passage::through;
  }
  if (type != guard_reply_types[guard_replies_]) {
    protocol_error(metrics::side::backend, "an unexpected reply to a guard");
    return passage::stopped;
  }
  if (type != 'D' && type != 'C') static_cast<void>(flight_.on_statement_reply(type));
  if (type == 'D' && asks_isolation_) {
    const auto row = wire::decode_pg_row(body);
    guard_.on_isolation(row && row->size() == 1 ? (*row)[0].value_or("") : "");
  }
  if (++guard_replies_ == guard_reply_types.size()) {
    guard_replies_ = 0;
    guards_query_ = false;
    if (!std::exchange(asks_isolation_, false)) figures_.checks(metrics::check_outcome::admitted).add();
  }
  return passage::dropped;
}

}  // namespace fencegate::gate
