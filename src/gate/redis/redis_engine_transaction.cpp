// The client's own transactions: its MULTI adopts ours, its EXEC is sent only while the marks are proven.
#include "base/demand.hpp"
#include "base/limits.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>
#include <charconv>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

redis_engine::progress redis_engine::step_multi(const wire::request& r) {
  if (!link_.batch.empty()) return block();
  if (r.arguments.size() != 1) return step_bare(r, *spec_of(r));
  claims_.learn_from_memory();
  if (raise_pending(~claim_mask{0})) return block();
  std::string why_not =
      connection_.caching ? "CLIENT CACHING stands in front of MULTI; put it behind" : host_.snapshot().problem;
  bool link_refused = false;
  if (host_.snapshot().ready && claims_.enforced() != 0 && !connection_.caching) {
    const claim_mask held = claims_.armable();
    why_not = link_.take_arm_error();
    if (tries_ == 0) why_not.clear();  // of an earlier arm: try again
    link_refused = !why_not.empty();
    if (held != 0 && why_not.empty() && tries_ <= limits::batch_attempts_max) {
      // A WAIT inside would take the server's note of before the shared write.
      if (link_.armed() && (!link_.proves(held) || wait_lags_)) link_.leave();
      if (link_.is_open()) {
        renew_offset();
        arm();
        if (!link_.armed()) return block();
      }
      begin_transaction(true);
      reply_local("+OK\r\n");
      return progress::taken;
    }
  }
  // Its commands run at once if Redis refuses the MULTI: nothing follows before its answer was read.
  if (link_.armed()) link_.leave();
  if (!connection_.caching) renew_offset();
  // Inside there is no place for it; but CLIENT CACHING is meant for the whole transaction.
  if (claims_.monitored() != 0 && !connection_.caching) link_.look();
  change_ = change{};
  change_.role = command_role::multi;
  change_.muted = muted_;
  change_.why_not = std::move(why_not);
  change_.link_refused = link_refused;
  phase_ = phase::barrier;
  forward_raw(r, awaits::state_change);
  return progress::taken;
}

void redis_engine::begin_transaction(bool adopted) {
  tx_ = transaction{};
  tx_.adopted = adopted;
  if (!adopted) {
    tx_.why_not = std::move(change_.why_not);
    tx_.link_refused = change_.link_refused;
  }
  link_.lend();
  phase_ = phase::transaction;
}

redis_engine::progress redis_engine::step_in_transaction(const wire::request& r, const command_spec& spec) {
  using enum command_role;
  const bool plain = r.arguments.size() == 1;
  if (spec.name.empty()) lose_binding(r, spec);
  switch (spec.role) {
    case exec:
      if (plain) return step_exec(r);
      // A server that refuses an EXEC ends the transaction by it. It never gets to see one that it would refuse.
      end_transaction(std::string(exec_with_arguments));
      return progress::taken;
    case discard:
    case reset:
      if (!plain) {
        spoil_transaction(wrong_arity(spec));
        return progress::taken;
      }
      if (tx_.left && spec.role == discard) {
        end_transaction("+OK\r\n");
        return progress::taken;
      }
      // A server that refuses it goes on with the transaction: nothing follows before its answer was read.
      change_ = change{};
      change_.role = spec.role;
      change_.muted = muted_;
      change_.inside = true;
      phase_ = phase::barrier;
      forward_raw(r, awaits::state_change);
      return progress::taken;
    case quit: return step_connection(r, spec);
    case multi:
      if (!tx_.left) break;
      reply_local(plain ? "-ERR MULTI calls can not be nested\r\n" : wrong_arity(spec));
      return progress::taken;
    case watch:
      if (!tx_.left) break;
      reply_local(plain ? wrong_arity(spec) : "-ERR WATCH inside MULTI is not allowed\r\n");
      return progress::taken;
    case select: {
      int database = -1;
      if (r.arguments.size() == 2)
        std::from_chars(r.arguments[1].data(), r.arguments[1].data() + r.arguments[1].size(), database);
      tx_.selects.emplace_back(tx_.commands, database);
      ++tx_.commands;
      break;
    }
    case refused: {
      const rejection why{reason::refused, {}, {}, {}, refusal_text(spec)};
      host_.report(why, spec.name.empty() ? r.name() : std::string_view(spec.name), false);
      spoil_transaction(fence::redis_error(why));
      return progress::taken;
    }
    case client_setname:
    case fence:
    case hello: lose_binding(r, spec); [[fallthrough]];
    case auth:
    case subscribe:
    case unsubscribe:
    case monitor:
    case client_reply:
      spoil_transaction("-ERR " + std::string(spec.name) + " is not allowed inside MULTI behind fencegate\r\n");
      return progress::taken;
    default:
      if (const auto p = join_transaction(r, spec)) return *p;
  }
  if (tx_.left)
    reply_local(spec.fits(r.arguments.size()) ? "+QUEUED\r\n" : wrong_arity(spec));
  else
    forward_raw(r, awaits::tx_queued);
  return progress::taken;
}

// nullopt: it is queued, where there is still a transaction.
std::optional<redis_engine::progress> redis_engine::join_transaction(const wire::request& r, const command_spec& spec) {
  // Until the server's table is known, a command may be one that is never queued, under another name.
  if (spec.name.empty() && host_.snapshot().commands == backend::command_table::empty()) {
    spoil_transaction(fence::redis_error({reason::unavailable, {}, {}, {}, host_.snapshot().problem}));
    return progress::taken;
  }
  if (tx_.left) return std::nullopt;
  if (spec.name == "waitaof" && aof_lags_) {
    spoil_transaction(
        "-ERR WAITAOF inside MULTI does not count what fencegate sent over a shared link; put it behind EXEC\r\n");
    return progress::taken;
  }
  if (const auto p = check_keys(r, spec)) return p;
  judge_in_transaction(r.arguments, spec);
  if (tx_.rejected) leave_server_transaction();
  ++tx_.commands;
  return std::nullopt;
}

std::string redis_engine::wrong_arity(const command_spec& spec) {
  return "-ERR wrong number of arguments for '" + spec.name + "' command\r\n";
}

// What would be rejected outside ends the transaction at the server: the client is told that its commands are queued, and
// its EXEC is answered with the rejection.
void redis_engine::judge_in_transaction(const std::vector<std::string_view>& arguments, const command_spec& spec) {
  const bool writes = backend::writes(spec.role);
  if (!writes && !claims_.reads_may_be_fenced()) return;
  tx_.last_command = spec.name;
  const auto verdict = writes ? claims_.judge(arguments, keys_) : claims_.judge_read(arguments, keys_);
  const auto [to, why] = route_of(facts_of(arguments, spec, verdict, route_facts::stand::queued));
  if (to == route::reject) {
    tx_.rejected = rejection_of(why, spec, verdict, route_facts::stand::queued);
    tx_.link_said_why = why == refusal::unproven && tx_.link_refused;
    if (why == refusal::no_table) return;
  }
  if (verdict.watched())
    note(tx_.notes, verdict, !writes, spec.name.empty() ? arguments[0].substr(0, 64) : std::string_view(spec.name));
  else if (verdict.required != 0)
    ++tx_.admitted;
  tx_.required |= verdict.required;
  if (writes) tx_.written |= verdict.required;
}

// The server's part of a transaction that must not run is over at once; the client's goes on, and nothing of it leaves the
// gate any more.
void redis_engine::leave_server_transaction() {
  if (tx_.left) return;
  tx_.left = true;
  to_backend += "*1\r\n$7\r\nDISCARD\r\n";
  link_.expect({awaits::ours_ok});
  link_.disprove();
  watching_ends();
}

// The server holds no watch any more, neither the client's nor ours.
void redis_engine::watching_ends() {
  link_.watches_ended();
  connection_.watching = connection_.watch_lost = false;
}

// A command that must not run, as Redis does with one that it refuses to queue: EXEC answers EXECABORT.
void redis_engine::spoil_transaction(std::string text) {
  leave_server_transaction();
  reply_local(std::move(text));
}

// The client's EXEC or DISCARD, where nothing of it may run.
void redis_engine::end_transaction(std::string text) {
  leave_server_transaction();
  reply_local(std::move(text));
  tx_ = transaction{};
  link_.take_back();
  phase_ = phase::ready;
}

// The server has taken its DISCARD.
void redis_engine::leave_transaction() {
  tx_ = transaction{};
  link_.take_back();
  phase_ = phase::ready;
  watching_ends();
}

redis_engine::progress redis_engine::step_exec(const wire::request& r) {
  tx_.muted = muted_;
  tx_.client_watched = connection_.watching;
  claims_.learn_from_memory();
  if (!tx_.rejected) tx_.rejected = claims_.refusal(tx_.written);
  if (!tx_.rejected) tx_.rejected = claims_.refusal_to_read(tx_.required);
  if (!tx_.rejected && !tx_.selects.empty())
    for (std::size_t i = 0; i < claims_.items().size(); ++i)
      if ((tx_.written >> i & 1) != 0 && claims_.items()[i].rules.spends())
        tx_.rejected =
            rejection{reason::refused, {}, {}, {}, "SELECT inside MULTI does not go with equal_token: reject"};
  if (tx_.rejected) {
    host_.report(*tx_.rejected, tx_.last_command, false);
    end_transaction(tx_.link_said_why ? link_error(tx_.why_not, *tx_.rejected) : fence::redis_error(*tx_.rejected));
    return progress::taken;
  }
  if (tx_.left || connection_.watch_lost) {
    end_transaction(tx_.left ? "-EXECABORT Transaction discarded because of previous errors.\r\n" : nil_text());
    return progress::taken;
  }
  demand(tx_.required == 0 || (tx_.adopted && link_.proves(tx_.required)),
         "EXEC leaves when all that it needs was proven");
  if (tx_.adopted) {
    link_.append_spent_marks(tx_.written, tx_.suffixed);
    for (std::size_t i = 0; i < tx_.suffixed; ++i) link_.expect({awaits::relay, true});
  }
  forward_raw(r, awaits::tx_exec);
  connection_.watching = false;
  link_.disprove();
  tx_.armed = link_.armed_for();
  tx_.tailed = tx_.adopted && tx_.selects.empty();
  if (tx_.tailed)
    link_.arm_behind_exec();
  else
    link_.watches_ended();
  phase_ = phase::finishing;
  return progress::taken;
}

// EXEC, and the arm behind it, were answered.
void redis_engine::finish_transaction() {
  const transaction done = std::exchange(tx_, transaction{});
  if (done.executed) {
    if (done.admitted != 0) stats_.checks(metrics::check_outcome::admitted).add(done.admitted);
    book(done.notes, done.written);
    stats_.raises_total.add(link_.mark_spent(done.written));
  }
  phase_ = phase::ready;
  if (!done.tailed) return link_.take_back();
  if (done.nil) {
    // Nobody but us knows whose watch was touched: the marks behind the EXEC tell.
    auto why = claims_.refusal(done.written);
    if (!why) why = claims_.refusal_to_read(done.required != 0 ? done.required : done.armed);
    if (!why && link_.went_back())
      why = claims_.unavailable(done.armed, "the backend lost a mark; it is being put back");
    if (!why && !done.client_watched)
      why = claims_.unavailable(done.armed, "somebody touched the mark; send the transaction again");
    if (why) host_.report(*why, done.last_command, false);
    if (!done.muted) to_client += why ? fence::redis_error(*why) : nil_text();
  }
  link_.finish_arm();
}

void redis_engine::start_client_exec(const wire::reply_head& head) {
  if (head.is_array()) {
    const auto count = static_cast<std::size_t>(head.count);
    if (count != tx_.commands + tx_.suffixed) return link_.unexpected("EXEC answered another number of commands");
    tx_.executed = true;
    if (!tx_.muted) to_client += "*" + std::to_string(tx_.commands) + "\r\n";
    return link_.begin_elements(head);
  }
  if (head.is_null()) {
    tx_.nil = true;
    link_.begin(head, tx_.tailed || tx_.muted ? sink::drop : sink::answers);
  } else if (head.type == '-' && head.line.starts_with("EXECABORT")) {
    link_.begin(head, tx_.muted ? sink::drop : sink::answers);
  } else {
    return link_.unexpected("EXEC failed; the transaction's state is unknown");
  }
}

}  // namespace fencegate::gate
