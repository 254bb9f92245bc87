// Reads and writes: what must be proven before one leaves.
#include "base/demand.hpp"
#include "base/limits.hpp"
#include "gate/redis/blocking.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

using stand = route_facts::stand;

// An armed link runs this many read-only batches inside its MULTI before it goes bare: reading costs less outside, but
// the next write then needs one round trip more.
constexpr int reads_in_a_row_max = 8;

route_facts::kind kind_of(command_role role) {
  switch (role) {
    case command_role::write: return route_facts::kind::write;
    case command_role::blocking_write: return route_facts::kind::blocking_write;
    case command_role::blocking_read: return route_facts::kind::blocking_read;
    default: return route_facts::kind::read;
  }
}

bool asks_to_wait(const command_spec& spec, const std::vector<std::string_view>& arguments) {
  return spec.role == command_role::blocking_read && blocking_timeout(arguments).has_value();
}

bool waits_for_replicas(const command_spec& spec) { return spec.name == "wait" || spec.name == "waitaof"; }

rejection refused_for(std::string_view why) { return {reason::refused, {}, {}, {}, std::string(why)}; }

constexpr std::string_view read_that_waits = "a read that waits cannot be fenced; leave BLOCK out";
constexpr std::string_view read_too_large = "a read this large cannot be fenced; put it behind MULTI";
constexpr std::string_view behind_caching = "CLIENT CACHING does not reach this command; put both behind MULTI";
constexpr std::string_view behind_watch = "between WATCH and MULTI this command cannot be fenced; put it behind MULTI";
constexpr std::string_view large_behind_watch =
    "between WATCH and MULTI a value this large cannot be fenced; put it behind MULTI";

}  // namespace

// A read or a write, whole and outside the client's own transactions.
redis_engine::progress redis_engine::step_data(const wire::request& r, const command_spec& spec, stand where) {
  if (const auto p = check_keys(r, spec)) return *p;
  const auto verdict = judge(r.arguments, spec);
  auto [to, why] = route_of(facts_of(r.arguments, spec, verdict, where));
  if (to == route::wrap && where == stand::again && replay_.front().how == replayed::route::give_up)
    return refuse(claims_.unavailable(verdict.required, replay_.front().text), name_of(r, spec));
  switch (to) {
    case route::reject:
      if (why == refusal::arm_failed) return answer_arm_error(r, spec, verdict.required);
      return refuse(rejection_of(why, spec, verdict, where), name_of(r, spec));
    case route::raise_first: static_cast<void>(raise_pending(claims_to_raise(verdict))); return block();
    case route::arm_first:
      if (!link_.batch.empty()) return block();
      if (link_.armed()) link_.leave();
      arm();
      return block();
    case route::bare: return step_bare(r, spec, verdict);
    case route::wrap:
      if (!link_.batch.empty()) return block();
      if (link_.armed()) link_.leave();
      return wrap_command(r, spec, verdict);
    case route::poll: return step_poll(r, spec, verdict);
    case route::batch: {
      // (Nobody would book what a rule in monitor mode says of it.)
      if (verdict.required != 0 && !verdict.watched() && may_share(r, spec, verdict.required) &&
          share(r, spec, verdict))
        return block();
      if (batch_full(r)) return block();
      add_to_batch(r, spec, verdict);
      return progress::taken;
    }
    case route::by_pieces:
    case route::queue: break;
  }
  demand(false, "a whole command outside a transaction is neither streamed nor queued");
  return block();
}

// What the rules say of it. REQUIRES: its keys in keys_.
claims::verdict redis_engine::judge(const std::vector<std::string_view>& arguments, const command_spec& spec) {
  const bool writes = backend::writes(spec.role);
  if (!writes && (!claims_.reads_may_be_fenced() || waits_for_replicas(spec))) return {};
  claims_.learn_from_memory();
  auto verdict = writes ? claims_.judge(arguments, keys_) : claims_.judge_read(arguments, keys_);
  if (verdict.monitored != 0 && !verdict.would_be && asks_to_wait(spec, arguments))
    verdict.would_be = refused_for(read_that_waits);
  return verdict;
}

// Of marks that are only watched, one look is one attempt to raise, whatever comes until it is answered: no command waits for
// a raise that fails again and again.
claim_mask redis_engine::claims_to_raise(const claims::verdict& verdict) const {
  if (verdict.required != 0) return verdict.required | verdict.monitored;
  return link_.is_looked_at() ? 0 : verdict.monitored;
}

std::optional<rejection> redis_engine::refusal_by_claim(const command_spec& spec, claim_mask required) const {
  return backend::writes(spec.role) ? claims_.refusal(required) : claims_.refusal_to_read(required);
}

// Behind CLIENT CACHING the proof would take its place, and the client would not hear of it when what it was shown has
// changed. Writes show nothing that Redis keeps in mind, but for scripts.
bool redis_engine::shows_data(const command_spec& spec) {
  return !backend::writes(spec.role) || spec.name == "eval" || spec.name == "evalsha" || spec.name == "fcall";
}

route_facts redis_engine::facts_of(const std::vector<std::string_view>& arguments, const command_spec& spec,
                                   const claims::verdict& verdict, stand where) {
  // Of an earlier arm, maybe long ago: it is tried again.
  if (tries_ == 0 && phase_ != phase::transaction) static_cast<void>(link_.take_arm_error());
  route_facts f;
  f.where = where;
  f.what = kind_of(spec.role);
  f.waits = asks_to_wait(spec, arguments);
  f.scriptable = !spec.noscript;
  f.shows_data = shows_data(spec);
  f.rejected = verdict.rejected.has_value();
  f.required = verdict.required != 0;
  f.unraised = !raise_tried_ && claims_.are_unraised(claims_to_raise(verdict));
  f.refused = f.required && refusal_by_claim(spec, verdict.required).has_value();
  const bool stands = link_.armed() || (phase_ == phase::transaction && tx_.adopted);
  if (stands) f.proven = link_.proves(verdict.required) ? route_facts::proof::whole : route_facts::proof::other;
  f.table_known = host_.snapshot().commands != backend::command_table::empty();
  f.ready = host_.snapshot().ready;
  f.watching = connection_.watching;
  f.caching = connection_.caching;
  f.unsettled = tries_ > limits::batch_attempts_max;
  f.arm_failed = !link_.arm_error().empty();
  f.filling = !link_.batch.empty();
  f.reads_inside = reads_in_a_row_ < reads_in_a_row_max;
  return f;
}

// What the client is told. (Not of an arm that failed: link_error.)
rejection redis_engine::rejection_of(refusal why, const command_spec& spec, const claims::verdict& verdict,
                                     stand where) const {
  switch (why) {
    case refusal::by_rules: return *verdict.rejected;
    case refusal::no_table: return {reason::unavailable, {}, {}, {}, host_.snapshot().problem};
    case refusal::not_ready: return claims_.unavailable(verdict.required, host_.snapshot().problem);
    case refusal::by_claim: return *refusal_by_claim(spec, verdict.required);
    case refusal::waits: return refused_for(read_that_waits);
    case refusal::too_large: return refused_for(read_too_large);
    case refusal::watching: return refused_for(where == stand::streaming ? large_behind_watch : behind_watch);
    case refusal::caching: return refused_for(behind_caching);
    case refusal::unsettled: return claims_.unavailable(verdict.required, std::string(marks_move));
    case refusal::unproven:
      return claims_.unavailable(verdict.required,
                                 where == stand::queued ? tx_.why_not : "the key's resource was not armed");
    case refusal::arm_failed: return claims_.unavailable(verdict.required, link_.arm_error());
    case refusal::none: break;
  }
  demand(false, "a command is refused for a reason");
  return {};
}

void redis_engine::arm() {
  ++tries_;
  ask_identity();
  link_.arm(connection_.watching);
}

// An answer of the gate's own, behind the batch under way.
redis_engine::progress redis_engine::refuse(const rejection& why, std::string_view command) {
  if (!link_.batch.empty()) return block();
  reject(why, command);
  return progress::taken;
}

// To Redis as it is; of what a rule in monitor mode watches, the marks are looked at.
redis_engine::progress redis_engine::step_bare(const wire::request& r, const command_spec& spec,
                                               const claims::verdict& verdict) {
  const bool looks = verdict.monitored != 0 && !verdict.would_be;
  if (!link_.batch.empty() || (looks && looked_at_.size() >= noted_max)) return block();
  if (link_.armed()) link_.leave();
  if (spec.name == "waitaof" && aof_lags_) return renew_offset_of_aof();
  if (waits_for_replicas(spec) || spec.role == command_role::client_caching) renew_offset();
  // In front, it would take the place of what CLIENT CACHING is meant for.
  if (looks && !connection_.caching) link_.look();
  forward_raw(r);
  link_.back().may_block = backend::may_block(spec.role);
  note_bare(verdict, !backend::writes(spec.role), name_of(r, spec));
  return progress::taken;
}

// What the server said on the client's own link in place of a proof, for the client: errors of the server's own as they
// are, and a right that its user lacks as such.
std::string redis_engine::link_error(std::string_view text, const rejection& otherwise) {
  if (armed_link::is_native_error(text)) return "-" + std::string(text) + "\r\n";
  constexpr std::string_view of_scripts = "ERR The user executing the script";
  if (!text.starts_with("NOPERM") && !text.starts_with(of_scripts)) return fence::redis_error(otherwise);
  const auto said = text.substr(text.find(' ') + 1);
  return "-NOPERM " + std::string(said) + " (fencegate checks marks with the rights of this user); not applied\r\n";
}

redis_engine::progress redis_engine::answer_arm_error(const wire::request& r, const command_spec& spec,
                                                      claim_mask required) {
  if (!link_.batch.empty()) return block();
  const std::string text = link_.take_arm_error();
  const auto why = claims_.unavailable(required, text);
  if (armed_link::is_native_error(text))
    stats_.checks(metrics::check_outcome::unavailable).add();
  else
    host_.report(why, name_of(r, spec), false);
  reply_local(link_error(text, why));
  return progress::taken;
}

// A blocking write would pop after its check. Inside MULTI it does not block: it is tried again and again instead, each
// time behind its check, until it pops or its time-out is over.
redis_engine::progress redis_engine::step_poll(const wire::request& r, const command_spec& spec,
                                               const claims::verdict& verdict) {
  if (!link_.batch.empty()) return block();
  const auto now = host_.now();
  if (!poll_.since) {
    poll_.since = now;
    poll_.delay = std::chrono::milliseconds(0);
    poll_.timeout = blocking_timeout(r.arguments);
    poll_.keys.clear();
    for (const std::size_t at : keys_) poll_.keys.emplace_back(r.arguments[at]);
    for (std::size_t i = 0; i < claims_.items().size(); ++i)
      if (poll_.timeout && (verdict.required >> i & 1) != 0 && claims_.items()[i].rules.spends()) {
        poll_.since.reset();
        reject({reason::refused, {}, {}, {}, "a blocking command is tried many times; equal_token: reject admits one"},
               spec.name);
        return progress::taken;
      }
  }
  add_to_batch(r, spec, verdict);
  link_.batch.polled = still_polling();
  if (!link_.batch.polled) poll_.since.reset();
  link_.batch.polls = true;
  return progress::taken;
}

// Whether what finds nothing now is tried again.
bool redis_engine::still_polling() const {
  if (!poll_.since || !poll_.timeout) return false;
  return poll_.timeout->count() == 0 || host_.now() - *poll_.since < *poll_.timeout;
}

const command_spec* redis_engine::spec_of(const wire::request& r) const {
  return &host_.snapshot().commands->find(r.name(), r.arguments.size() > 1 ? r.arguments[1] : std::string_view{});
}

// A command of a batch that Redis did not run, with what became known about it.
redis_engine::progress redis_engine::step_replayed(const wire::request& r, const command_spec& spec) {
  if (!link_.batch.empty()) return block();
  if (replay_.front().how != replayed::route::answer) return step_data(r, spec, stand::again);
  reply_local(replay_.front().text);
  return progress::taken;
}

}  // namespace fencegate::gate
