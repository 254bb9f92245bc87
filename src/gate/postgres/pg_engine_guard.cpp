// guard: transaction: the session's messages pass through gate/postgres/pg_guarded.hpp.
#include "backend/pg_claims.hpp"
#include "base/limits.hpp"
#include "gate/postgres/pg_engine.hpp"
#include "gate/postgres/pg_mending.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

constexpr std::string_view no_room_to_gather =
    "too many large messages of several statements at once: send it later, or its statements one by one";

// Those that are judged by what their bodies begin with.
constexpr std::string_view read_types = "QPBDEC";

}  // namespace

bool pg_engine::guards() const { return gate_.kept_by == settings::guard::transaction && !bound_.empty(); }

void pg_engine::begin_guarding() {
  const auto at = gate_.pooled ? pg_session_kind::pooled : pg_session_kind::direct;
  if (!enforces()) {
    unguarded_ = std::make_unique<pg_unguarded>(at);
    return unguarded_->on_parameter("standard_conforming_strings", conforming_strings_);
  }
  guarded_claims_ = bound_;
  guarded_ = std::make_unique<pg_guarded>(guard_statement(guarded_claims_), at, [this](std::string_view why) {
    return refusal_of({reason::refused, {}, {}, {}, std::string(why)}, "statement");
  });
  guarded_->on_parameter("client_encoding", client_encoding_);
  guarded_->on_parameter("standard_conforming_strings", conforming_strings_);
}

// Rule kept: of a message that is gathered nothing is sent before all of it is there. One that is refused meanwhile has
// reached nobody.
bool pg_engine::step_guarded(const wire::pg_head& head) {
  using verdict = pg_guarded::verdict;
  const std::size_t bytes = wire::pg_head_bytes + head.body_bytes;
  const std::size_t there = std::min(bytes, std::max(gathers_, limits::pg_statement_buffered_bytes_max));
  const bool reads = read_types.find(head.type) != std::string_view::npos;
  const bool lacks_some = reads && from_client.size() < there;
  note_gathered();
  const bool has_no_room = lacks_some && gathers_ != 0 && gathered_bytes::too_many();
  if (lacks_some && !has_no_room) return false;
  const auto body = reads ? from_client.view().substr(wire::pg_head_bytes, there - wire::pg_head_bytes) : "";
  const auto did = is_malformed(head, body) ? verdict::malformed
                   : has_no_room            ? refuse_to_gather()
                                            : judge_guarded(head.type, body, head.body_bytes);
  to_backend += std::exchange(guarded_->in_front, {});
  if (did == verdict::gather) {
    gathers_ = bytes;
    return true;
  }
  const bool gathered = did != verdict::wait && std::exchange(gathers_, 0) != 0;
  switch (did) {
    case verdict::pass: client_passing_ = bytes; break;
    case verdict::body_only:
      from_client.consume(wire::pg_head_bytes);
      client_passing_ = head.body_bytes;
      break;
    case verdict::drop: swallowed_ = bytes; break;
    case verdict::wait: waits_for_boundary_ = true; break;
    case verdict::gather: break;
    case verdict::malformed:
      protocol_error(metrics::side::client, "a message whose body is not what its type asks for");
      return false;
  }
  send_behind();
  if (did == verdict::wait) return false;
  if (head.type == 'S' || head.type == 'Q' || head.type == 'F') mending_.clear();
  if (std::string_view("QPEF").find(head.type) != std::string_view::npos)
    stats_.requests(metrics::request_class::other).add();
  terminated_ = head.type == 'X';
  const bool moved = step_passing();
  if (gathered) from_client.fit();
  note_gathered();
  return moved;
}

// What enforcing would refuse is said, and goes on.
bool pg_engine::step_unguarded(const wire::pg_head& head) {
  const std::size_t there = std::min(head.body_bytes, limits::pg_statement_buffered_bytes_max - wire::pg_head_bytes);
  const bool reads = read_types.find(head.type) != std::string_view::npos;
  if (reads && from_client.size() < wire::pg_head_bytes + there) return false;
  const auto body = reads ? from_client.view().substr(wire::pg_head_bytes, there) : "";
  if (is_malformed(head, body)) {
    protocol_error(metrics::side::client, "a message whose body is not what its type asks for");
    return false;
  }
  if (is_refused_by_name(head.type, body, head.body_bytes)) {
    if (unguarded_->on_refused(head.type)) host_.report(*name_refused_, "statement", true);
  } else if (const auto why = unguarded_->on_message(head.type, body, head.body_bytes); !why.empty()) {
    host_.report(about_session({reason::refused, {}, {}, {}, std::string(why)}), "statement", true);
  }
  if (std::string_view("QPEF").find(head.type) != std::string_view::npos)
    stats_.requests(metrics::request_class::other).add();
  terminated_ = head.type == 'X';
  forward(head);
  return true;
}

pg_guarded::verdict pg_engine::refuse_to_gather() {
  return guarded_->on_refused('Q', [this] {
    return refusal_of({reason::refused, {}, {}, {}, std::string(no_room_to_gather)}, "statement");
  });
}

// The message, and later its text and what was made of it.
void pg_engine::note_gathered() {
  const std::size_t runs = guarded_->translates();
  const bool large = runs > limits::pg_statement_buffered_bytes_max;
  gathered_.note(gathers_ != 0 ? from_client.size() : large ? runs + to_backend.size() : 0);
}

// So that nobody reads a text behind the one that was judged. What is not whole here, the server finds.
bool pg_engine::is_malformed(const wire::pg_head& head, std::string_view body) {
  const bool whole = body.size() == head.body_bytes;
  if (head.type == 'Q') return whole ? !wire::decode_pg_query(body) : body.find('\0') != std::string_view::npos;
  return head.type == 'P' && whole && !wire::decode_pg_parse(body);
}

// A pooler may tell another client's name, whose tag is refused until the client mends it.
bool pg_engine::is_refused_by_name(char type, std::string_view body, std::size_t body_bytes) {
  const bool begins_something = std::string_view("QPBF").find(type) != std::string_view::npos;
  if (!name_refused_ || !begins_something) return false;
  bool mends = false;
  if (body.size() == body_bytes && type == 'Q') mends = only_mends(wire::decode_pg_query(body).value().sql);
  if (body.size() == body_bytes && type == 'P') {
    const auto parsed = wire::decode_pg_parse(body).value();
    mends = only_mends(parsed.sql);
    if (mends) mending_.insert(wire::pg_name_key(parsed.name));
  }
  if (type == 'B') {
    const auto names = bind_names(body);
    mends = names && mending_.contains(wire::pg_name_key(names->second));
  }
  return !mends;
}

pg_guarded::verdict pg_engine::judge_guarded(char type, std::string_view body, std::size_t body_bytes) {
  if (!is_refused_by_name(type, body, body_bytes)) return guarded_->on_message(type, body, body_bytes);
  return guarded_->on_refused(type, [this] { return refusal_of(*name_refused_, "statement"); });
}

// Between two of the client's messages.
void pg_engine::send_behind() {
  if (client_passing_ == 0) to_backend += std::exchange(guarded_->behind, {});
}

// A guard answers which lowerings its marks stand under. What it has answered before was seen then.
void pg_engine::on_guard_answer(std::string_view body) {
  if (body == guard_answer_) return;
  const auto row = wire::decode_pg_row(body);
  if (!row || row->size() != 1 || !(*row)[0]) return;
  guard_answer_ = body;
  const auto lowerings = backend::lowerings_of(std::string(*(*row)[0]));
  for (std::size_t i = 0; i < lowerings.size() && i < guarded_claims_.size(); ++i)
    if (lowerings[i]) host_.saw(database_, {guarded_claims_[i].resource, guarded_claims_[i].presented, *lowerings[i]});
}

// The error of a guard is the client's: the server takes it for the error of the statement behind the guard.
pg_engine::passage pg_engine::inspect_guarded(char type, std::string_view body) {
  using from = pg_guarded::passage;
  if (guarded_->guard_turn() && type == 'D') on_guard_answer(body);
  if (guarded_->guard_turn() && type == 'C') stats_.checks(metrics::check_outcome::admitted).add();
  if (guarded_->guard_turn() && type == 'E')
    if (const auto e = wire::decode_pg_error(body)) {
      const auto why = rejection_of(*e, bound_);
      host_.report(why, "guard", false);
      saw_mark_of(why);
    }
  const auto did = guarded_->on_reply(type, body);
  send_behind();
  note_gathered();
  switch (did) {
    case from::pass: return passage::through;
    case from::drop: return passage::dropped;
    case from::replace: return passage::replaced;
    case from::broken: break;
  }
  wrong_ = "a reply to nothing that was asked";
  return passage::stopped;
}

}  // namespace fencegate::gate
