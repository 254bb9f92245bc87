// Commands larger than limits::command_buffered_bytes_max: streamed, never held whole. A fenced one streams into our
// MULTI and is decided when it is complete; one that must not run is never completed.
#include "base/demand.hpp"
#include "base/limits.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_role;
using fence::reason;
using fence::rejection;

namespace {

const std::vector<std::size_t> no_keys, first_key{1};

bool any_read_enforced(const settings::redis_gate& gate) {
  const auto enforces = [](const fence::policy& p) {
    return p.read == fence::reads::fence && p.mode == fence::enforcement::enforce;
  };
  return enforces(gate.policy) || std::any_of(gate.resources.begin(), gate.resources.end(),
                                              [&](const fence::key_rule& rule) { return enforces(rule.rules()); });
}

}  // namespace

// The one key of a command, when it has come: SET, APPEND, HSET, …
bool redis_engine::key_is_known() const {
  const auto& spec = *large_->spec;
  const auto& arguments = large_->request.arguments();
  return spec.keys.size() == 1 && spec.keys[0].search == backend::key_spec::begin::index &&
         spec.keys[0].position == 1 && spec.keys[0].keys == backend::key_spec::find::range && spec.keys[0].last == 0 &&
         !spec.ask_server && !spec.sort_store && arguments.size() > 1 && arguments[1].whole();
}

void redis_engine::start_large() {
  large_ = std::make_unique<large>(decoder_);
  large_->muted = connection_.reply_off || connection_.skip_next;
}

// False: waits for bytes, or for the link.
bool redis_engine::continue_large() {
  large& l = *large_;
  const std::string_view view = from_client.view();
  const auto step = l.complete ? wire::large_request::step{wire::large_request::status::complete, 0, {}}
                               : l.request.advance(view.substr(l.inspected));
  if (step.what == wire::large_request::status::malformed) {
    protocol_error(step.message);
    return false;
  }
  l.inspected += step.consumed;
  l.complete = step.what == wire::large_request::status::complete;
  if (l.how == large::route::undecided && !decide_large()) return false;
  if (link_.closed() || input_over_) return false;
  if (!l.counted) count(*l.spec);
  l.counted = true;
  if (l.inspected == 0 && !l.complete) return false;
  // What must not run is known before its last byte is sent.
  if (l.complete && l.how != large::route::swallow && !late_check()) return false;
  if (l.how != large::route::swallow) to_backend.append(from_client.view().substr(0, l.inspected));
  l.sent += l.inspected;
  from_client.consume(l.inspected);
  l.inspected = 0;
  if (l.complete) finish_large();
  return true;
}

std::vector<std::string_view> redis_engine::large_arguments() const {
  std::vector<std::string_view> out;
  for (const auto& one : large_->request.arguments()) out.emplace_back(one.head);
  return out;
}

// What binds a connection is never as large as that. What it may have been meant to bind is not known.
void redis_engine::lose_large_binding() {
  claims_.add_unusable(reason::missing,
                       "a command that binds tokens was too large; FENCE CLEAR, or a new name, mends it",
                       {std::string()});
}

// Where a large command goes. False: not known yet, or the link is not ready for it.
bool redis_engine::decide_large() {
  using enum command_role;
  large& l = *large_;
  if (link_.busy() || (phase_ != phase::ready && phase_ != phase::transaction)) {
    if (phase_ == phase::monitor_stream) link_.close();
    blocked_ = true;
    return false;
  }
  const auto& arguments = l.request.arguments();
  if (arguments.empty() || !arguments[0].whole()) {
    protocol_error("command name too large");
    return false;
  }
  muted_ = l.muted;
  const bool has_second = arguments.size() > 1 && arguments[1].whole();
  l.spec = &host_.snapshot().commands->find(arguments[0].head, has_second ? std::string_view(arguments[1].head) : "");
  l.name = l.spec->name.empty() ? arguments[0].head.substr(0, 64) : l.spec->name;
  private_ = private_ || l.spec->stays_with_connection;
  l.table = host_.snapshot().commands;
  if (turned_away_) return swallow_large(turned_away_text(), false);
  // Its subcommand decides what it is.
  if (l.spec->role == refused) return refuse_large({reason::refused, {}, {}, {}, refusal_text(*l.spec)});
  if (l.spec->container && !has_second)
    return swallow_large("-ERR this command is too large\r\n", phase_ == phase::transaction);
  const auto says = [&](std::string_view word) { return has_second && wire::iequals(arguments[1].head, word); };
  if (l.spec->role == client_setname || l.spec->role == hello || (l.spec->role == fence && !says("CALL"))) {
    if (phase_ != phase::transaction && !quiet()) {
      blocked_ = true;
      return false;
    }
    lose_large_binding();
  }
  if (connection_.subscribing > 0) {
    blocked_ = true;
    return false;
  }
  if (connection_.subscriptions > 0 && connection_.protocol == 2)
    return swallow_large(refusal_while_subscribed(l.name), false);
  if (phase_ == phase::transaction) return decide_large_in_transaction();
  switch (l.spec->role) {
    case read:
    case blocking_read:
      // Without rules its keys are no matter: what is refused now leaves the connection as it is.
      keys_.clear();
      if (gate_.resources.empty())
        if (const auto why = refusal_of_large_read()) return refuse_large(*why);
      [[fallthrough]];
    case other:
    case watch:  // what comes behind relies on it
      if (link_.armed()) link_.leave();
      l.how = large::route::bare;
      return true;
    case write: return decide_large_write();
    case fence:
      if (says("CALL")) {
        l.name = "fence|call";
        return refuse_large(
            {reason::refused,
             {},
             {},
             {},
             "FENCE CALL takes no command larger than 256 KiB; send it on a connection that carries the "
             "token itself (FENCE SET, or the client's name)"});
      }
      [[fallthrough]];
    default: return swallow_large("-ERR this command is too large\r\n", false);
  }
}

bool redis_engine::decide_large_in_transaction() {
  using enum command_role;
  large& l = *large_;
  const bool queued = l.spec->role == read || l.spec->role == write || l.spec->role == other;
  if (!queued) return swallow_large("-ERR this command is too large for a transaction\r\n", true);
  if (l.spec->role == write && !tx_.left && (gate_.resources.empty() || key_is_known())) {
    keys_ = gate_.resources.empty() ? no_keys : first_key;
    claims_.learn_from_memory();
    tx_.rejected = claims_.judge(large_arguments(), keys_).rejected;
    if (tx_.rejected) {
      tx_.last_command = l.name;
      leave_server_transaction();
    }
  }
  if (tx_.left) return swallow_large("+QUEUED\r\n", false);
  l.how = large::route::transaction;
  return true;
}

// Keys that come later are judged before the last byte is sent; what is certain by now saves the transfer.
bool redis_engine::decide_large_write() {
  large& l = *large_;
  const auto arguments = large_arguments();
  claims::verdict verdict;
  if (gate_.resources.empty() || key_is_known()) {
    keys_ = gate_.resources.empty() ? no_keys : first_key;
    verdict = judge(arguments, *l.spec);
  } else {
    claims_.learn_from_memory();
    verdict.required = claims_.held() & claims_.enforced();
    verdict.monitored = claims_.monitored();
  }
  const auto [to, why] = route_of(facts_of(arguments, *l.spec, verdict, route_facts::stand::streaming));
  if (to == route::reject && why != refusal::arm_failed)
    return refuse_large(rejection_of(why, *l.spec, verdict, route_facts::stand::streaming));
  if (to == route::reject) {
    const rejection failed{reason::unavailable, {}, {}, {}, link_.take_arm_error()};
    host_.report(failed, l.name, false);
    return swallow_large(link_error(failed.detail, failed), false);
  }
  if (to == route::raise_first) {
    static_cast<void>(raise_pending(claims_to_raise(verdict)));
    blocked_ = true;
    return false;
  }
  if (to != route::by_pieces && link_.armed()) link_.leave();
  if (to == route::arm_first) {
    arm();
    blocked_ = true;
    return false;
  }
  if (to == route::bare) {
    l.how = large::route::bare;
    return true;
  }
  demand(to == route::by_pieces, "a value this large goes bare, or behind its proof");
  l.how = large::route::fenced;
  return true;
}

// A read is sent while it still comes: by its end the marks may be others than those that were proven at its start. In
// the client's own MULTI it runs at EXEC. REQUIRES: its keys in keys_, as far as they count.
std::optional<rejection> redis_engine::refusal_of_large_read() {
  if (!claims_.reads_may_be_fenced()) return std::nullopt;
  constexpr auto streamed = route_facts::stand::streamed;
  const auto& spec = *large_->spec;
  const auto arguments = large_arguments();
  const auto verdict = judge(arguments, spec);
  const auto [to, why] = route_of(facts_of(arguments, spec, verdict, streamed));
  if (to == route::reject) return rejection_of(why, spec, verdict, streamed);
  if (verdict.watched())
    host_.report(verdict.would_be.value_or(rejection_of(refusal::too_large, spec, verdict, streamed)), large_->name,
                 true);
  return std::nullopt;
}

// All keys are known now. False: the command is never completed, and both connections end behind earlier answers.
bool redis_engine::late_check() {
  large& l = *large_;
  const auto arguments = large_arguments();
  const auto search = backend::find_keys(*l.spec, arguments, keys_);
  std::optional<rejection> why;
  bool reserved =
      search != backend::key_search::found && std::any_of(arguments.begin() + 1, arguments.end(), backend::is_reserved);
  for (const std::size_t at : keys_) {
    reserved = reserved || backend::is_reserved(arguments[at]);
    if (!gate_.resources.empty() && !l.request.arguments()[at].whole())
      why = rejection{reason::refused, {}, {}, {}, "the key is too long to be matched to a resource"};
  }
  const bool writes = l.spec->role == command_role::write;
  const bool reads = l.spec->role == command_role::read || l.spec->role == command_role::blocking_read;
  connection_.reads_reserved = connection_.reads_reserved || (reads && reserved);
  if (reserved && !reads)
    why = rejection{reason::refused, {}, {}, {}, "keys that begin with fencegate: belong to the fence"};
  const bool fenced = writes || (reads && claims_.reads_may_be_fenced() && any_read_enforced(gate_));
  if (!why && search == backend::key_search::ask_server && fenced && !gate_.resources.empty())
    why = rejection{reason::refused, {}, {}, {}, "the command is too large for its keys to be asked for"};
  if (!why && l.how == large::route::transaction) {
    judge_in_transaction(arguments, *l.spec);
  } else if (!why && reads && !gate_.resources.empty()) {
    why = refusal_of_large_read();
  } else if (!why && writes) {
    constexpr auto streamed = route_facts::stand::streamed;
    l.verdict = claims_.judge(arguments, keys_);
    const auto [to, refused] = route_of(facts_of(arguments, *l.spec, l.verdict, streamed));
    if (to == route::reject) why = rejection_of(refused, *l.spec, l.verdict, streamed);
    if (l.how == large::route::fenced) link_.batch.required = link_.batch.needs = l.verdict.required;
  }
  if (!why) return true;
  host_.report(*why, l.name, false);
  muted_ = l.muted;
  reply_local(fence::redis_error(*why));
  end_input();
  link_.batch = write_batch{};
  return false;
}

void redis_engine::finish_large() {
  const std::unique_ptr<large> done = std::move(large_);
  decoder_.reset_progress();
  muted_ = done->muted;
  connection_.skip_next = connection_.caching = false;
  tries_ = 0;
  raise_tried_ = false;
  switch (done->how) {
    case large::route::undecided: break;
    case large::route::swallow:
      if (done->replaces && done->spec->role == command_role::exec)
        end_transaction(std::string(exec_with_arguments));
      else if (done->replaces)
        spoil_transaction(done->answer);
      else
        reply_local(done->answer);
      break;
    case large::route::bare:
      link_.expect({awaits::relay, muted_});
      link_.back().may_block = backend::may_block(done->spec->role);
      if (done->spec->role == command_role::watch) connection_.watching = true;
      note_bare(done->verdict, false, done->name);
      break;
    case large::route::transaction:
      ++tx_.commands;
      link_.expect({awaits::tx_queued, muted_});
      if (tx_.rejected) leave_server_transaction();
      break;
    case large::route::fenced:
      link_.batch.streamed = true;
      link_.batch.name = done->name;
      link_.batch.add({0, !done->verdict.watched(), muted_, done->spec->denyoom || done->spec->noscript});
      if (done->verdict.watched()) note(link_.batch.notes, done->verdict, false, done->name);
      demand(link_.proves(link_.batch.needs), "a value leaves when all that it needs was proven");
      link_.append_spent_marks(link_.batch.required, link_.batch.suffixed);
      link_.expect({awaits::queued, false, static_cast<std::uint32_t>(1 + link_.batch.suffixed)});
      reads_in_a_row_ = 0;
      note_command();
      link_.send_exec();
      break;
  }
}

bool redis_engine::refuse_large(const rejection& why) {
  host_.report(why, large_->name, false);
  return swallow_large(fence::redis_error(why), phase_ == phase::transaction);
}

bool redis_engine::swallow_large(std::string answer, bool replaces) {
  large_->how = large::route::swallow;
  large_->answer = std::move(answer);
  large_->replaces = replaces;
  return true;
}

// A streamed command cannot be sent again: the client is told, and that nothing was applied.
void redis_engine::finish_streamed_batch() {
  const batched& one = link_.batch.commands.front();
  std::string answer;
  if (!one.error.empty()) {
    answer = "-" + one.error + "\r\n";
  } else {
    auto why = claims_.refusal(link_.batch.required);
    if (!why)
      why = rejection{
          reason::unavailable,
          {},
          {},
          {},
          link_.batch.abort_text.empty() ? "somebody touched the mark; send it again" : link_.batch.abort_text};
    host_.report(*why, link_.batch.name, false);
    answer = fence::redis_error(*why);
  }
  if (!one.muted) to_client += answer;
  link_.batch = write_batch{};
  link_.finish_arm();
}

}  // namespace fencegate::gate
