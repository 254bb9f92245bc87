// What the server sends to a client that is served: messages are framed and moved; a few are read.
#include "base/limits.hpp"
#include "gate/postgres/pg_engine.hpp"
#include "gate/relay/hidden_tag.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

constexpr std::string_view server_message_types = "123ACDEGHIKNRSTVWZcdnst v";
constexpr std::string_view inspected_types = "12CEGNSWZ";

// application_name is cut to NAMEDATALEN - 1 bytes.
constexpr std::size_t name_bytes_max = 63;

}  // namespace

// Rows and COPY data pass, unless they are the gate's.
bool pg_engine::is_read(char type) const {
  if (!guarded_) return inspected_types.find(type) != std::string_view::npos;
  return (type != 'D' && type != 'd') || guarded_->own_turn();
}

// A raise ends sessions as an administrator does. A pooler says in words of its own that its server's session has gone, but
// passes the server's on.
bool pg_engine::speaks_for_itself(std::string_view sqlstate) const {
  constexpr std::array<std::string_view, 3> timeouts{"25P03", "25P04", "57P05"};
  if (std::find(timeouts.begin(), timeouts.end(), sqlstate) != timeouts.end()) return true;
  return !gate_.pooled && sqlstate != admin_shutdown;
}

// Moves whole stretches: up to the next message that has to be read.
bool pg_engine::step_backend() {
  const std::string_view input = from_backend.view();
  // It goes on behind what looked like the announcement of its end.
  if (!input.empty()) to_client += std::exchange(last_words_, {});
  std::size_t at = 0;
  const auto move = [&] {
    to_client += input.substr(0, at);
    from_backend.consume(at);
  };
  while (at < input.size()) {
    if (backend_passing_ != 0) {
      const std::size_t n = std::min(backend_passing_, input.size() - at);
      at += n;
      backend_passing_ -= n;
      continue;
    }
    const auto head = wire::decode_pg_head(input.substr(at));
    if (!head || (*head && server_message_types.find((*head)->type) == std::string_view::npos)) {
      move();
      protocol_error(metrics::side::backend, head ? "a message of unknown type" : head.error().message);
      return false;
    }
    if (!*head) break;
    const std::size_t bytes = wire::pg_head_bytes + (*head)->body_bytes;
    const bool large = (*head)->body_bytes > limits::pg_inspected_bytes_max;
    if (!is_read((*head)->type) || large) {
      if (guarded_ && is_read((*head)->type)) {
        // Of what is large and matters, the type says all.
        if (inspect_guarded((*head)->type, {}) != passage::through) {
          move();
          protocol_error(metrics::side::backend, "a message is too long");
          return false;
        }
        if (const auto held = guarded_->take_held((*head)->type); !held.empty()) {
          move();
          to_client += held;
          backend_passing_ = bytes;
          return true;
        }
      } else if ((*head)->type == 'E') {
        flight_.on_error();
      }
      backend_passing_ = bytes;
      continue;
    }
    if (input.size() - at < bytes) break;
    // What may end the session stands behind all that was said before.
    if (at != 0 && ((*head)->type == 'E' || (*head)->type == 'N')) break;
    // Those that stay in the stretch are read where they lie.
    const auto message = input.substr(at, bytes);
    const auto verdict = inspect(**head, message);
    const auto held = verdict == passage::through && guarded_ ? guarded_->take_held((*head)->type) : std::string();
    if (verdict == passage::through && held.empty()) {
      at += bytes;
      continue;
    }
    move();
    if (verdict == passage::through) {
      to_client += held;
      backend_passing_ = bytes;
      return true;
    }
    if (verdict == passage::stopped) {
      protocol_error(metrics::side::backend, wrong_);
      return false;
    }
    from_backend.consume(bytes);
    if (verdict == passage::replaced) to_client += guarded_->reply;
    if (verdict == passage::held_back) return phase_ == phase::relaying;
    return true;
  }
  const bool moved = at != 0;
  move();
  return moved;
}

pg_engine::passage pg_engine::inspect(const wire::pg_head& head, std::string_view message) {
  const auto body = message.substr(wire::pg_head_bytes);
  const auto wrong = [this](std::string what) {
    wrong_ = std::move(what);
    return passage::stopped;
  };
  if (head.type == 'S') {
    on_parameter(body);
    return passage::through;
  }
  if (head.type == 'E' || head.type == 'N') {
    const auto e = wire::decode_pg_error(body);
    if (!e) return wrong(e.error().message);
    const bool ends = e->severity == "FATAL" || e->severity == "PANIC";
    // Behind a pooler it is the pooler that ends the session, in its own words. A client's own RAISE may carry the server's
    // SQLSTATE, too; but it ends no session.
    const bool announced = e->sqlstate == admin_shutdown && enforces() && (ends || e->severity == "WARNING");
    if (announced || (ends && guarded_ && !speaks_for_itself(e->sqlstate))) {
      last_words_ += message;
      fatal_held_ = head.type == 'E' && ends;
      // A pooler's own words say nothing of what the server did.
      if (head.type == 'E' && ends) on_terminated(e->sqlstate == admin_shutdown);
      return passage::held_back;
    }
    fatal_seen_ = fatal_seen_ || (head.type == 'E' && ends);
    if (ends && guarded_) {
      static_cast<void>(guarded_->take_held('E'));  // it was not committed
      return passage::through;
    }
  }
  if (guarded_) return inspect_guarded(head.type, body);
  switch (head.type) {
    case '1':
    case '2': return flight_.on_statement_reply(head.type) ? passage::dropped : passage::through;
    case 'Z': {
      const auto status = wire::decode_pg_ready(body);
      if (!status) return wrong(status.error().message);
      if (!flight_.on_ready(*status)) return wrong("ReadyForQuery that nobody asked for");
      if (unguarded_ && flight_.idle()) unguarded_->on_ready(*status);
      return passage::through;
    }
    case 'C':
      if (const auto tag = wire::decode_pg_strings(body, 1)) {
        flight_.on_complete((*tag)[0]);
        const bool drops_all = (*tag)[0] == "DEALLOCATE ALL" || (*tag)[0] == "DISCARD ALL";
        if (drops_all && flight_.parses_answered()) prepared_.clear();
      }
      return passage::through;
    case 'G':
    case 'W': flight_.on_copy_in(); return passage::through;
    case 'E':
      flight_.on_error();
      if (unguarded_ && flight_.size() == 0 && flight_.unsynced()) unguarded_->on_error();
      return passage::through;
    default: return passage::through;
  }
}

// A changed application_name that carries a tag binds from the next statement on, where no pooler is between.
void pg_engine::on_parameter(std::string_view body) {
  const auto both = wire::decode_pg_strings(body, 2);
  if (both && guarded_) guarded_->on_parameter((*both)[0], (*both)[1]);
  if (both && unguarded_) unguarded_->on_parameter((*both)[0], (*both)[1]);
  if (!both || (*both)[0] != "application_name" || (*both)[1] == application_name_) return;
  application_name_ = (*both)[1];
  take_tag_of_name();
  if (gate_.kept_by == settings::guard::session) return;
  // A pooler may tell the name of another client, whose token must not be lent; if it is this client's own, it must not be
  // passed over either.
  const auto beyond = claims_beyond(bound_, std::exchange(wanted_, {}));
  if (beyond.empty()) return;
  name_refused_ = {reason::malformed,
                   beyond[0].resource,
                   beyond[0].presented,
                   {},
                   "application_name: behind a pooler a changed name is not taken for a tag; bring it at the start"};
}

void pg_engine::take_tag_of_name() {
  wanted_.clear();
  name_refused_.reset();
  const auto tag = fence::find_tag(application_name_);
  if (!tag) return warn_of_hidden_tag(gate_.name, application_name_);
  if (!*tag)
    name_refused_ = {reason::malformed, {}, {}, {}, "application_name: " + tag->error().message};
  else if (application_name_.size() >= name_bytes_max && fence::is_resource_byte(application_name_.back()))
    name_refused_ = {
        reason::malformed, {}, {}, {}, "the server cut application_name at 63 bytes, perhaps inside the tag"};
  else
    wanted_ = **tag;
}

}  // namespace fencegate::gate
