// Writes: what must be proven before one leaves.
#include "base/limits.hpp"
#include "gate/blocking.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

redis_engine::progress redis_engine::step_write(const wire::request& r, const command_spec& spec) {
  if (const auto p = check_keys(r, spec)) return *p;
  if (host_.picture().commands == backend::command_table::empty()) {
    if (!batch_.commands.empty()) return block();
    reject({reason::unavailable, {}, {}, {}, host_.picture().problem}, r.name());
    return progress::taken;
  }
  claims_.learn_from_memory();
  const auto verdict = claims_.judge(r.arguments, keys_);
  if (verdict.rejected) {
    if (!batch_.commands.empty()) return block();
    reject(*verdict.rejected, name_of(r, spec));
    return progress::taken;
  }
  return verdict.required == 0 ? step_monitored(r, spec, verdict) : step_fenced(r, spec, verdict);
}

// What CLIENT CACHING is meant for. In front of it the proof would take its place, and the client would not hear of it when
// what it was shown has changed. Other writes show nothing that Redis keeps in mind.
std::optional<rejection> redis_engine::refusal_behind_caching(const command_spec& spec) {
  if (backend::writes(spec.role) && spec.name != "eval" && spec.name != "evalsha" && spec.name != "fcall") return {};
  return rejection{reason::refused, {}, {}, {}, "CLIENT CACHING does not reach this command; put both behind MULTI"};
}

redis_engine::progress redis_engine::step_fenced(const wire::request& r, const command_spec& spec,
                                                 const claims::verdict& verdict) {
  const claim_mask required = verdict.required;
  const auto answer = [&](const rejection& why) {
    if (!batch_.commands.empty()) return block();
    reject(why, name_of(r, spec));
    return progress::taken;
  };
  if (!host_.picture().ready) return answer(claims_.unavailable(required, host_.picture().problem));
  if (raise_pending(required | verdict.monitored)) return block();
  const bool writes = backend::writes(spec.role);
  if (const auto why = writes ? claims_.refusal(required) : claims_.refusal_to_read(required)) return answer(*why);
  if (client_watching_) {
    if (spec.noscript || spec.role == command_role::blocking_write)
      return answer(
          {reason::refused, {}, {}, {}, "between WATCH and MULTI this command cannot be fenced; put it behind MULTI"});
    return wrap_command(r, spec, verdict);
  }
  if (caching_)
    if (const auto why = refusal_behind_caching(spec)) return answer(*why);
  if (tries_ > limits::batch_attempts_max) return answer(claims_.unavailable(required, "the marks move all the time"));
  if (tries_ == 0) arm_error_.clear();  // of an arm behind an earlier batch, maybe long ago: try again
  if (!arm_error_.empty()) return answer_arm_error(r, spec, required);
  if (phase_ == phase::open) {
    start_arm();
    return block();
  }
  if ((required & ~armed_mask_) != 0) {
    if (!batch_.commands.empty()) return block();
    leave_armed();
    start_arm();
    return block();
  }
  // (Nobody would book what a rule in monitor mode says of it.)
  if (!verdict.watched() && may_share(r, spec, required) && share(r, spec)) return block();
  if (spec.role == command_role::blocking_write) return step_poll(r, spec, verdict);
  if (batch_full(r)) return block();
  add_to_batch(r, spec, verdict);
  return progress::taken;
}

// Errors of the server's own reach the client as they are; what only the gate cares about is `unavailable`.
bool redis_engine::is_native_error(std::string_view text) {
  constexpr std::string_view native[] = {"NOAUTH", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN",
                                         "MOVED",  "ASK",     "OOM",  "MISCONF",  "NOREPLICAS", "TRYAGAIN"};
  return std::find(std::begin(native), std::end(native), text.substr(0, text.find(' '))) != std::end(native);
}

// What the server said on the client's own link in place of a proof, for the client: errors of the server's own as they
// are, and a right that its user lacks as such.
std::string redis_engine::link_error(std::string_view text, const rejection& otherwise) {
  if (is_native_error(text)) return "-" + std::string(text) + "\r\n";
  constexpr std::string_view of_scripts = "ERR The user executing the script";
  if (!text.starts_with("NOPERM") && !text.starts_with(of_scripts)) return fence::redis_error(otherwise);
  const auto said = text.substr(text.find(' ') + 1);
  return "-NOPERM " + std::string(said) + " (fencegate checks marks with the rights of this user); not applied\r\n";
}

redis_engine::progress redis_engine::answer_arm_error(const wire::request& r, const command_spec& spec,
                                                      claim_mask required) {
  if (!batch_.commands.empty()) return block();
  const std::string text = std::exchange(arm_error_, {});
  const auto why = claims_.unavailable(required, text);
  if (is_native_error(text))
    figures_.checks(metrics::check_outcome::unavailable).add();
  else
    host_.report(why, name_of(r, spec), false);
  reply_local(link_error(text, why));
  return progress::taken;
}

// A blocking write would pop after its check. Inside MULTI it does not block: it is tried again and again instead, each
// time behind its check, until it pops or its time-out is over.
redis_engine::progress redis_engine::step_poll(const wire::request& r, const command_spec& spec,
                                               const claims::verdict& verdict) {
  if (!batch_.commands.empty()) return block();
  const auto now = host_.now();
  if (!poll_.since) {
    poll_.since = now;
    poll_.delay = std::chrono::milliseconds(0);
    poll_.timeout = blocking_timeout(r.arguments);
    poll_.keys.clear();
    for (const std::size_t at : keys_) poll_.keys.emplace_back(r.arguments[at]);
    for (std::size_t i = 0; i < claims_.items().size(); ++i)
      if (poll_.timeout && (verdict.required >> i & 1) != 0 &&
          claims_.items()[i].rules.equal == fence::equal_token::reject) {
        poll_.since.reset();
        reject({reason::refused, {}, {}, {}, "a blocking command is tried many times; equal_token: reject admits one"},
               spec.name);
        return progress::taken;
      }
  }
  add_to_batch(r, spec, verdict);
  batch_.polled = still_polling();
  if (!batch_.polled) poll_.since.reset();
  poll_.batch = true;
  return progress::taken;
}

// Whether what finds nothing now is tried again.
bool redis_engine::still_polling() const {
  if (!poll_.since || !poll_.timeout) return false;
  return poll_.timeout->count() == 0 || host_.now() - *poll_.since < *poll_.timeout;
}

redis_engine::progress redis_engine::step_unfenced(const wire::request& r, const command_spec& spec) {
  if (phase_ == phase::armed) {
    if (spec.role == command_role::write && !batch_.commands.empty()) {
      if (batch_full(r)) return block();
      add_to_batch(r, spec, {});
      return progress::taken;
    }
    if (!batch_.commands.empty()) return block();
    leave_armed();
  }
  forward_raw(r);
  expectations_.back().may_block = backend::may_block(spec.role);
  return progress::taken;
}

const command_spec* redis_engine::spec_of(const wire::request& r) const {
  return &host_.picture().commands->find(r.name(), r.arguments.size() > 1 ? r.arguments[1] : std::string_view{});
}

// A command of a batch that Redis did not run, with what became known about it.
redis_engine::progress redis_engine::step_replayed(const wire::request& r, const command_spec& spec) {
  if (!batch_.commands.empty()) return block();
  const replayed& known = replay_.front();
  if (known.how == replayed::route::answer) {
    reply_local(known.text);
    return progress::taken;
  }
  const bool writes = backend::writes(spec.role);
  claims::verdict verdict;
  if (writes || claims_.reads_may_be_fenced()) {
    if (const auto p = check_keys(r, spec)) return *p;
    claims_.learn_from_memory();
    verdict = writes ? claims_.judge(r.arguments, keys_) : claims_.judge_read(r.arguments, keys_);
    if (verdict.rejected) {
      reject(*verdict.rejected, spec.name);
      return progress::taken;
    }
  }
  const claim_mask required = verdict.required;
  if (required == 0) return step_monitored(r, spec, verdict);
  if (const auto why = writes ? claims_.refusal(required) : claims_.refusal_to_read(required)) {
    reject(*why, spec.name);
    return progress::taken;
  }
  if (known.how == replayed::route::give_up) {
    reject(claims_.unavailable(required, known.text), spec.name);
    return progress::taken;
  }
  if (phase_ == phase::armed) leave_armed();
  return wrap_command(r, spec, verdict);
}

}  // namespace fencegate::gate
