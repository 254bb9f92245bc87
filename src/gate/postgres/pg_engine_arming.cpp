// How a session gets its tokens: it is armed, or its marks are raised (guard: transaction), or only looked at (monitor).
#include "base/limits.hpp"
#include "fence/compare.hpp"
#include "gate/postgres/pg_engine.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;
using std::chrono::milliseconds;

// Arming may wait as long as a raise does; this is for the way there and back, and for a server that hangs.
constexpr milliseconds arming_allowance{10'000};
// For so long the session leaves the raise to the gate's own connection, whose server may have vanished without a word.
constexpr milliseconds raise_ahead_allowance{1'000};

}  // namespace

// A name that comes from settings of the role or the database may carry a tag, too (a pooler would tell some other
// client's). false: it is refused.
bool pg_engine::joins_tag_of_name() {
  take_tag_of_name();
  const auto of_name = std::exchange(wanted_, {});
  auto why = std::exchange(name_refused_, std::nullopt);
  for (const auto& c : claims_beyond(arming_for_, of_name))
    for (const auto& other : arming_for_)
      if (other.resource == c.resource)
        why = {reason::malformed, c.resource, c.presented, {}, "application_name: another tag has another token"};
  if (!why)
    if (auto other = fence::disagreement(tag_, of_name))
      why = about_single({reason::malformed, {}, {}, {}, std::move(*other)}, of_name);
  if (!why) {
    bind_claims(arming_for_, of_name);
    const auto full = host_.take_room(arming_for_);
    if (full) close_with(pg_error_of_limit(*full));
    return !full;
  }
  host_.report(*why, "startup", !enforces());
  if (enforces()) close_with(pg_error_of(*why, "FATAL"));
  return !enforces();
}

std::optional<fence::rejection> pg_engine::refused_by_memory(const claims_list& claims) {
  for (const auto& c : claims) {
    const auto seen = host_.seen(database_, c.resource);
    if (fence::compare(c.presented, seen) == fence::comparison::stale)
      return fence::rejection{reason::stale, c.resource, c.presented, seen, {}};
  }
  return std::nullopt;
}

void pg_engine::begin_arming(claims_list claims) {
  arming_for_ = std::move(claims);
  arm_ = arm_reading(arming_for_);
  arm_sent_ = host_.now();
  seen_before_.clear();
  for (const auto& c : arming_for_)
    if (fence::compare(c.presented, host_.seen(database_, c.resource)) != fence::comparison::lower)
      seen_before_.push_back(c.resource);
  phase_ = phase::arming;
  if (const auto stale = refused_by_memory(arming_for_)) return on_arming_failed(*stale);
  if (gate_.kept_by == settings::guard::transaction) return begin_raising();
  if (is_to_raise()) return raise_ahead();
  send_arm();
}

void pg_engine::send_arm() {
  phase_ = phase::arming;
  to_backend += arm_query(arming_for_, gate_.cut_timeout, gate_.policy.max_step, pid_);
  host_.set_timer(gate_.cut_timeout + arming_allowance);
}

// A mark is known to be lower, and this session is neither registered, which a raise would end it for, nor a superuser's,
// which may not be armed.
bool pg_engine::is_to_raise() const {
  if (held_ready_.empty() || !bound_.empty() || superuser_) return false;
  return std::any_of(arming_for_.begin(), arming_for_.end(), [this](const fence::claim& c) {
    const auto seen = host_.seen(database_, c.resource);
    return seen && fence::compare(c.presented, seen) == fence::comparison::lower;
  });
}

// A new session compiles the functions of a raise first, which takes longer than the raise. So a connection of the gate's
// own does it that has them ready. It proves nothing: the session is armed behind it as if nobody had raised, and where the
// connection is not free, may not raise or does not answer, that raises.
void pg_engine::raise_ahead() {
  phase_ = phase::raising;
  host_.set_timer(raise_ahead_allowance);
  host_.raise_ahead(database_, arming_for_, [this](const backend::pg_raise_result& done) {
    if (done && (phase_ == phase::raising || phase_ == phase::arming)) raised_ahead_ = *done;
    if (phase_ != phase::raising) return;
    if (!done && is_fences_own(done.error())) {
      stats_.check_duration_seconds.observe(host_.now() - arm_sent_);
      on_arming_failed(rejection_of(done.error(), arming_for_));
    } else {
      send_arm();
    }
    on_backend_bytes();
  });
}

bool pg_engine::step_arming() {
  const auto message = take_from_backend();
  if (!message) return false;
  const char type = message->front();
  if (type == 'S' || type == 'A') {
    to_client += *message;  // may come at any time, and belongs to the client
    return true;
  }
  if (closes_superseded_) {
    step_closing(*message);
    return true;
  }
  if (checks_session_) {
    step_checking(*message);
    return true;
  }
  if (type == 'N' || !arm_.take(type, std::string_view(*message).substr(wire::pg_head_bytes))) return true;
  const auto outcome = arm_.judge();
  stats_.check_duration_seconds.observe(host_.now() - arm_sent_);
  if (!outcome.armed) {
    on_arming_failed(outcome.why);
    return true;
  }
  auto did = std::exchange(raised_ahead_, {});
  did.rose.insert(did.rose.end(), outcome.did.rose.begin(), outcome.did.rose.end());
  did.cut += outcome.did.cut;
  did.found = outcome.did.found;
  on_armed(did);
  return true;
}

void pg_engine::on_armed(const backend::pg_raised& did) {
  const bool raised = !did.rose.empty();
  stats_.checks(raised ? metrics::check_outcome::raised : metrics::check_outcome::admitted).add();
  if (raised) {
    stats_.raises_total.add();
    stats_.takeover_seconds.observe(host_.now() - arm_sent_);
  }
  stats_.sessions_cut_total.add(did.cut);
  // Where a mark had been seen before this was begun, it must have gone back, to rise to it again.
  const auto has = [](const std::vector<std::string>& names, const std::string& one) {
    return std::find(names.begin(), names.end(), one) != names.end();
  };
  for (const auto& found : did.found)
    if (has(seen_before_, found.resource) && has(did.rose, found.resource)) host_.went_back(database_, found);
  for (const auto& found : did.found) host_.saw(database_, found);
  bind_claims(bound_, arming_for_);
  bind_claims(proven_, arming_for_);
  if (!held_ready_.empty() && gate_.kept_by == settings::guard::transaction && !gate_.pooled)
    begin_checking();
  else if (!held_ready_.empty())
    serve();
  else
    phase_ = close_superseded() ? phase::arming : phase::relaying;
}

// EXECUTE, of SQL or inside a function, could run under this token what carries an older one, and no text tells. So it is
// gone at the server; the gate goes on to know that its name is one with that tag.
bool pg_engine::close_superseded() {
  using std::string_literals::operator""s;
  const auto is_older = [this](const fence::claim& c) {
    return std::any_of(arming_for_.begin(), arming_for_.end(), [&c](const fence::claim& now) {
      return now.resource == c.resource && c.presented < now.presented;
    });
  };
  for (const auto& [name, statement] : prepared_)
    if (!name.empty() && std::any_of(statement.claims.begin(), statement.claims.end(), is_older)) {
      to_backend += wire::encode_pg_message('C', "S" + name + "\0"s);
      closes_superseded_ = true;
    }
  if (closes_superseded_) to_backend += wire::encode_pg_message('S', {});
  return closes_superseded_;
}

void pg_engine::step_closing(std::string_view message) {
  if (message.front() == 'N' || message.front() == '3') return;
  const auto status = wire::decode_pg_ready(message.substr(wire::pg_head_bytes));
  if (message.front() != 'Z' || !status || *status != 'I')
    return protocol_error(metrics::side::backend, "an unexpected reply to Close");
  closes_superseded_ = false;
  phase_ = phase::relaying;
}

// A name means to the server what it meant to this client only while the server's session is the client's own.
void pg_engine::begin_checking() {
  phase_ = phase::arming;
  checks_session_ = true;
  to_backend += wire::encode_pg_query("SELECT pg_catalog.pg_backend_pid()");
  host_.set_timer(arming_allowance);
}

void pg_engine::step_checking(std::string_view message) {
  const auto body = message.substr(wire::pg_head_bytes);
  if (message.front() == 'D') {
    const auto row = wire::decode_pg_row(body);
    is_announced_ = row && row->size() == 1 && (*row)[0] == std::to_string(pid_);
  }
  if (message.front() != 'Z') return;
  checks_session_ = false;
  if (is_announced_ && body == "I") return serve();
  const auto why = about_session(
      {reason::refused,
       {},
       {},
       {},
       "this is not the session that the server announced: with a pooler in between the gate needs pooled: true"});
  host_.report(why, "startup", false);
  part(pg_error_of(why, "FATAL"));
}

// guard: transaction: there is no session to arm. The marks rise at once, on a connection of the gate's own; each
// transaction then proves that they are still there.
void pg_engine::begin_raising() {
  phase_ = phase::raising;
  host_.raise(database_, arming_for_, [this](const backend::pg_raise_result& done) {
    if (phase_ != phase::raising) return;
    stats_.check_duration_seconds.observe(host_.now() - arm_sent_);
    if (done)
      on_armed(*done);
    else
      on_arming_failed(rejection_of(done.error(), arming_for_));
    on_backend_bytes();
  });
}

// A mark is remembered under its lowering: where the server names none, nobody knows which.
void pg_engine::saw_mark_of(const fence::rejection& why) {
  if (why.why == reason::stale && why.mark && why.lowering && fence::is_resource_name(why.resource))
    host_.saw(database_, {why.resource, *why.mark, *why.lowering});
}

// In front of a statement only this statement fails, if the session is still what it was; else the connection ends.
void pg_engine::on_arming_failed(const fence::rejection& why) {
  saw_mark_of(why);
  if (held_ready_.empty() && !backend_ended_ && arm_.left_session_idle()) {
    statement_refused_ = why;
    phase_ = phase::relaying;
    return;
  }
  host_.report(why, "startup", false);
  part(pg_error_of(why, "FATAL"));
}

// Monitor: what would have been rejected is said, nothing is raised (a raise ends sessions).
void pg_engine::watch_only(const claims_list& claims) {
  phase_ = phase::looking;
  host_.look(database_, claims, [this, claims](const std::optional<backend::found_marks>& found) {
    for (const auto& c : claims) {
      std::uint64_t lowering = 0;
      if (found)
        for (const auto& f : *found)
          if (f.resource == c.resource) {
            host_.saw(database_, f);
            lowering = f.lowering;
          }
      const auto mark = host_.seen(database_, c.resource);
      const auto stands = fence::compare(c.presented, mark, gate_.policy);
      if (stands == fence::comparison::stale)
        host_.report({reason::stale, c.resource, c.presented, mark, {}}, "startup", true);
      else if (stands == fence::comparison::jump)
        host_.report({reason::jump, c.resource, c.presented, mark, {}}, "startup", true);
      else if (!found)
        host_.report({reason::unavailable, c.resource, c.presented, mark, "the marks cannot be read"}, "startup", true);
      else
        stats_.checks(metrics::check_outcome::admitted).add();
      if (found) host_.saw(database_, {c.resource, c.presented, lowering});
    }
    bind_claims(bound_, claims);
    bind_claims(proven_, claims);
    if (phase_ != phase::looking) return;
    if (held_ready_.empty())
      phase_ = phase::relaying;
    else
      serve();
    on_backend_bytes();
  });
}

}  // namespace fencegate::gate
