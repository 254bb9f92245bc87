// How a session ends: why the server has ended it, and what its client is told.
#include "gate/postgres/pg_engine.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;
using std::chrono::milliseconds;

// A raise that is under way is asked for again after a quarter of the time that it has taken, within these bounds.
constexpr milliseconds ask_again_least{20}, ask_again_most{250};
// A client that was told stays connected this long, so that it can end what it sends, and reads why before the connection ends.
constexpr milliseconds told_before_end{2'000};
// How long the server may take to say why it ended a session, on top of a raise's own time.
constexpr milliseconds ask_allowance{5'000};
// A raise that ended a guarded transaction or an arm has committed within this time, or the client is told what was said.
constexpr milliseconds ask_unsaid{3'000};
// A server that cannot be asked at all has probably gone.
constexpr milliseconds ask_unanswered{2'000};

// `words`, messages of the server's. Where the last of them says without a word more that somebody ended the session: also
// what is certain of its last statements, and who that may have been. A raise that failed leaves nothing by which it could
// be told from an administrator.
std::string with_outcome(std::string words, applied certain) {
  std::size_t last = 0;
  for (;;) {
    const wire::pg_head head =
        wire::decode_pg_head(std::string_view(words).substr(last)).value().value();  // it was framed
    const std::size_t end = last + wire::pg_head_bytes + head.body_bytes;
    if (end < words.size()) {
      last = end;
      continue;
    }
    auto e = wire::decode_pg_error(std::string_view(words).substr(last + wire::pg_head_bytes));
    if (!e || e->sqlstate != admin_shutdown || !e->detail.empty() || !e->hint.empty()) return words;
    e->detail = pg_detail({}, certain);
    e->hint = "An administrator ended this session, or a takeover that failed. Connect again.";
    return words.replace(last, std::string::npos, wire::encode_pg_error(*e));
  }
}

// To a client at rest.
wire::pg_error gate_ends() {
  return {"FATAL", std::string(admin_shutdown), "the gate is shutting down", pg_detail({}, applied::no),
          "Connect again."};
}

}  // namespace

// ── the server has ended the session ────────────────────────────────────────────────────────────────────────────────

// What is certain: a FATAL ErrorResponse inside a transaction that was not committed; or nothing was in flight.
// Everything else may have been applied: a WARNING and end of file while COMMIT waits for a standby, a bare end of file,
// inner commits of CALL and DO, autocommit.
void pg_engine::on_terminated(bool with_error) {
  const bool uncommitted = guarded_ ? guarded_->uncommitted() : flight_.uncommitted();
  certain_ = is_quiet() || (with_error && uncommitted) ? applied::no : applied::unknown;
  if (certain_ == applied::unknown) stats_.unknown_total.add();
  ended_at_ = host_.now();
  phase_ = phase::diagnosing;
  ask_why();
}

void pg_engine::on_backend_end() {
  backend_ended_ = true;
  switch (phase_) {
    case phase::raising:
    case phase::arming: {
      // A raise ends arms of older tokens, too: the mark says whether one did.
      if (!closes_superseded_ && !checks_session_) {
        arm_ended_ = arm_.judge().why;
        bind_claims(bound_, arming_for_);
      }
      on_terminated(false);
      break;
    }
    case phase::relaying: {
      if (terminated_ || fatal_seen_ || backend_passing_ != 0 || !enforces()) {
        phase_ = phase::closing;
        break;
      }
      from_backend.consume(from_backend.size());  // a message that will never be whole
      on_terminated(false);
      break;
    }
    case phase::diagnosing:
    case phase::parting: break;
    case phase::starting:
      if (fatal_seen_)
        phase_ = phase::closing;
      else
        close_with(
            {"FATAL", "08006", "the server closed the connection before the session began", {}, "Try again later."});
      break;
    default: phase_ = phase::closing; break;
  }
}

void pg_engine::ask_why() {
  // A pooler's process ids are its own.
  if (gate_.kept_by == settings::guard::transaction) return on_why(std::vector<backend::ended_registration>{});
  host_.ended(database_, pid_, [this](const auto& answer) {
    if (phase_ == phase::diagnosing) on_why(answer);
  });
}

void pg_engine::ask_again() {
  const auto passed = std::chrono::duration_cast<milliseconds>(host_.now() - ended_at_);
  host_.set_timer(std::clamp(passed / 4, ask_again_least, ask_again_most));
}

// The server's rows may be gone already, or belong to the next session with this process id: what this session was armed
// with is compared with the marks themselves. The rows tell of arms that the client made by itself, and of raises.
void pg_engine::on_why(const std::optional<std::vector<backend::ended_registration>>& answer) {
  if (const auto stale = refused_by_memory(bound_)) return end_as_superseded(*stale);
  bool raising = false;
  if (answer) {
    for (const auto& r : *answer) {
      const auto mine = std::find_if(bound_.begin(), bound_.end(),
                                     [&](const fence::claim& c) { return c.resource == r.held.resource; });
      const auto held = mine == bound_.end() ? r.held.presented : mine->presented;
      if (r.mark && held < *r.mark)
        return end_as_superseded({reason::stale, r.held.resource, held, r.mark, {}, {}, r.lowering});
      raising = raising || r.raising;
      if (r.raising) raise_seen_ = fence::claim{r.held.resource, held};
    }
  }
  const bool patient = host_.now() - ended_at_ < (answer ? gate_.cut_timeout + ask_allowance : ask_unanswered);
  if ((raising || !answer) && patient) return ask_again();
  if (!answer || bound_.empty()) return end_as_told();
  host_.look(database_, bound_, [this](const std::optional<backend::found_marks>& marks) {
    if (phase_ != phase::diagnosing) return;
    for (const auto& m : marks.value_or(backend::found_marks{})) host_.saw(database_, m);
    if (const auto stale = refused_by_memory(bound_)) return end_as_superseded(*stale);
    // Nobody says whether a raise is under way that ended a guarded transaction, or an arm.
    const bool unsaid = gate_.kept_by == settings::guard::transaction || arm_ended_;
    if (unsaid && host_.now() - ended_at_ < ask_unsaid) return ask_again();
    end_as_told();
  });
}

// Nobody superseded it: a raise that failed afterwards (cut_timeout), an administrator, or the server itself.
void pg_engine::end_as_told() {
  if (arm_ended_) {
    host_.report(*arm_ended_, held_ready_.empty() ? "arming" : "startup", false);
    return part(pg_error_of(*arm_ended_, "FATAL"));
  }
  if (raise_seen_)
    return part(pg_error_of({reason::unavailable,
                             raise_seen_->resource,
                             raise_seen_->presented,
                             {},
                             "a takeover ended this session and then failed; connect again"},
                            "FATAL", certain_));
  if (fatal_held_) return part_with(with_outcome(std::exchange(last_words_, {}), certain_));
  const char* last = certain_ == applied::no ? "; what was not committed is not applied"
                                             : "; whether the last statements were applied is not known";
  part_with(std::exchange(last_words_, {}) +
            wire::encode_pg_error({"FATAL", "08006", std::string("the server closed the connection") + last, {}, {}}));
}

void pg_engine::end_as_superseded(const fence::rejection& why) {
  saw_mark_of(why);
  host_.report_cut(why, certain_);
  part(pg_error_of(why, "FATAL", certain_));
}

// ── the client's end of it ──────────────────────────────────────────────────────────────────────────────────────────

// The session at the server ends; its client is told when it can hear it.
void pg_engine::part(const wire::pg_error& e) { part_with(wire::encode_pg_error(e)); }

void pg_engine::part_with(std::string words) {
  // Never inside a message that is half sent. While it is let in, no client waits for anything else.
  if (backend_passing_ != 0 || !held_ready_.empty()) {
    if (backend_passing_ == 0) to_client += words;
    phase_ = phase::closing;
    return;
  }
  const bool owes_ready = guarded_ ? guarded_->owes_ready() : flight_.size() != 0 || flight_.ignores_sync();
  const bool unsynced = guarded_ ? guarded_->unsynced() : flight_.unsynced() || flight_.copying();
  farewell_ = pg_farewell(std::move(words), {owes_ready, unsynced, client_passing_ + swallowed_});
  phase_ = phase::parting;
  gathers_ = 0;
  gathered_.note(0);
  to_backend.clear();
  if (!draining_) return resume();
  step_parting();
  give_up();
}

void pg_engine::step_parting() {
  const bool told_before = farewell_.told();
  if (farewell_.read(from_client, to_client))
    phase_ = phase::closing;
  else if (farewell_.told() && !told_before)
    host_.set_timer(told_before_end);
}

void pg_engine::give_up() {
  if (phase_ != phase::parting) return;
  farewell_.tell(to_client);
  phase_ = phase::closing;
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

// As the server itself does, by idle_session_timeout.
void pg_engine::end_idle() {
  if (parting()) return give_up();
  close_with({"FATAL", "57P05", "terminating connection due to the gate's idle timeout", {}, "Connect again."});
}

// libpq takes what comes while it is at rest for a notice, and then for a server that has died.
void pg_engine::tell_end() { part(gate_ends()); }

void pg_engine::drain() {
  draining_ = true;
  if (phase_ == phase::opening) phase_ = phase::closing;
  give_up();
  if (at_rest()) close_with(gate_ends());
}

// Whatever else it waits for is about its end already.
void pg_engine::lose_lease() {
  if (phase_ == phase::cancelling || phase_ == phase::diagnosing || parting() || closing()) return;
  wire::pg_error why{"FATAL", "57P03", "the lease of this connection was lost", {}, "Connect again."};
  if (phase_ != phase::relaying) return close_with(why);
  why.detail = pg_detail({}, is_quiet() ? applied::no : applied::unknown);
  part(why);
}

void pg_engine::on_timer() {
  if (phase_ == phase::diagnosing) return ask_why();
  if (parting() && farewell_.told()) return give_up();
  if (phase_ == phase::raising && gate_.kept_by == settings::guard::session) {
    send_arm();
    return on_backend_bytes();
  }
  if (phase_ != phase::arming) return;
  host_.report({reason::unavailable, {}, {}, {}, "the server has not answered"}, "startup", false);
  part(pg_error_of({reason::unavailable, {}, {}, {}, "the server has not answered to arming in time"}, "FATAL"));
}

void pg_engine::close_with(const wire::pg_error& e) {
  // Never inside a message that is half sent.
  if (backend_passing_ == 0) to_client += wire::encode_pg_error(e);
  phase_ = phase::closing;
}

void pg_engine::protocol_error(metrics::side whose, std::string_view what) {
  stats_.protocol_errors(whose).add();
  const std::string who = whose == metrics::side::client ? "client" : "server";
  close_with({"FATAL", "08P01", "protocol violation by the " + who + ": " + std::string(what), {}, {}});
}

}  // namespace fencegate::gate
