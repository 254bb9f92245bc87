// Client side: which command goes where.
#include "gate/redis/redis_engine.hpp"

#include "backend/command_roles.hpp"
#include "base/limits.hpp"
#include "gate/redis/blocking.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

bool any_read_fenced(const settings::redis_gate& gate) {
  const auto fences = [](const fence::policy& p) { return p.read == fence::reads::fence; };
  return fences(gate.policy) || std::any_of(gate.resources.begin(), gate.resources.end(),
                                            [&](const fence::key_rule& rule) { return fences(rule.rules()); });
}

}  // namespace

redis_engine::redis_engine(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks,
                           metrics::gate& stats)
    : host_(host),
      gate_(gate),
      marks_(marks),
      stats_(stats),
      claims_(gate),
      asks_identity_(gate.share_writes == settings::sharing::always),
      link_(*this, host, gate, marks, stats, claims_, to_client),
      from_backend(link_.in),
      to_backend(link_.out) {
  claims_.note_reads_fenced(any_read_fenced(gate));
}

void redis_engine::on_client_bytes() { resume(); }

void redis_engine::on_timer() {
  if (!std::exchange(poll_.sleeps, false)) return;
  if (phase_ == phase::waiting) phase_ = phase::ready;
  resume();
}

void redis_engine::resume() {
  if (pumping_) {
    again_ = true;
    return;
  }
  pump();
}

void redis_engine::pump() {
  pumping_ = true;
  blocked_ = false;
  turned_away_ = turned_away_ || (!from_client.empty() && host_.turns_away());
  held_back_ = false;
  while (!link_.closed() && !input_over_) {
    again_ = false;
    if (large_ != nullptr) {
      if (continue_large()) continue;
      if (again_) continue;
      break;
    }
    if (link_.busy() || (phase_ != phase::ready && phase_ != phase::transaction && phase_ != phase::monitor_stream)) {
      blocked_ = !from_client.empty();
      break;
    }
    if (from_client.empty() || (turned_away_ && !link_.batch.empty())) break;
    held_back_ = !turned_away_ && answers_held() > limits::unread_step_bytes && host_.holds_back();
    if (held_back_) {
      blocked_ = true;
      break;
    }
    const bool stranger = !link_.signed_in && host_.snapshot().wants_auth;
    decoder_.arguments_max = stranger ? limits::resp_stranger_arguments_max : limits::resp_arguments_max;
    decoder_.bulk_bytes_max = stranger ? limits::resp_stranger_bulk_bytes_max : limits::resp_bulk_bytes_max;
    const auto decoded = decoder_.decode(from_client.view(), limits::command_buffered_bytes_max, request_);
    if (decoded.status == wire::request_status::need_more) break;
    if (decoded.status == wire::request_status::malformed) {
      if (!link_.batch.empty()) break;
      protocol_error(decoded.message);
      break;
    }
    if (decoded.status == wire::request_status::empty) {
      from_client.consume(decoded.consumed);
      continue;
    }
    if (decoded.status == wire::request_status::large) {
      if (!link_.batch.empty()) break;
      start_large();
      continue;
    }
    consumed_ = decoded.consumed;
    if (turned_away_ && phase_ != phase::monitor_stream) {
      turn_away(request_);
      continue;
    }
    if (step(request_) == progress::blocked && !again_) {
      blocked_ = true;
      break;
    }
  }
  pumping_ = false;
  if (!link_.closed() && phase_ == phase::ready && link_.armed() && !link_.batch.empty()) send_batch();
  invariants();
}

redis_engine::progress redis_engine::block() { return progress::blocked; }

// Connections tend to send the same command again and again.
const command_spec& redis_engine::find_spec(const wire::request& r) {
  const auto& table = host_.snapshot().commands;
  if (last_spec_ != nullptr && last_table_ == table && last_name_ == r.name()) return *last_spec_;
  const auto& spec = table->find(r.name(), r.arguments.size() > 1 ? r.arguments[1] : std::string_view{});
  last_spec_ = nullptr;
  if (!spec.name.empty() && !spec.container && spec.name.find('|') == std::string::npos) {
    last_name_ = std::string(r.name());
    last_table_ = table;
    last_spec_ = &spec;
  }
  return spec;
}

// What a command is counted as: FENCE CALL as the command that it carries.
const command_spec& redis_engine::wrapped_spec(const wire::request& r, const command_spec& spec) const {
  const auto& a = r.arguments;
  if (spec.role != command_role::fence || a.size() < 5 || !wire::iequals(a[1], "CALL")) return spec;
  return host_.snapshot().commands->find(a[4], a.size() > 5 ? a[5] : std::string_view{});
}

redis_engine::progress redis_engine::step(const wire::request& r) {
  const auto& spec = find_spec(r);
  muted_ = connection_.reply_off || connection_.skip_next;
  if (!replay_.empty()) muted_ = replay_.front().muted;
  const bool skipping = connection_.skip_next;
  const bool counted = !replay_.empty();
  progress p = progress::blocked;
  if (phase_ == phase::monitor_stream) {
    p = step_in_monitor_stream(r, spec);
  } else if (phase_ == phase::transaction) {
    p = step_in_transaction(r, spec);
  } else if (!replay_.empty() && replay_.front().how != replayed::route::normal) {
    p = step_replayed(r, spec);
  } else {
    p = step_plain(r, spec);
  }
  if (p == progress::blocked) return p;
  if (spec.role != command_role::client_caching && spec.role != command_role::client_reply) connection_.caching = false;
  if (!counted && !std::exchange(counted_, false)) count(wrapped_spec(r, spec));
  private_ = private_ || spec.stays_with_connection;
  if (skipping && spec.role != command_role::client_reply) connection_.skip_next = false;
  if (!replay_.empty()) replay_.pop_front();
  command_done();
  return p;
}

void redis_engine::command_done() {
  from_client.consume(consumed_);
  tries_ = 0;
  raise_tried_ = false;
  keys_asked_ = false;
  if (!link_.batch.polls && !single_.polled) poll_.since.reset();
}

redis_engine::progress redis_engine::step_plain(const wire::request& r, const command_spec& spec) {
  using enum command_role;
  if (spec.name.empty()) lose_binding(r, spec);
  if (connection_.subscribing > 0 && spec.role != subscribe && spec.role != unsubscribe) return block();
  const bool ends_watches = connection_.watching && spec.role == exec;  // as one that is refused
  if (connection_.subscriptions > 0 && connection_.protocol == 2 && spec.role != subscribe &&
      spec.role != unsubscribe && spec.role != quit && spec.role != reset && !ends_watches &&
      !wire::iequals(r.name(), "PING")) {
    lose_binding(r, spec);
    reply_local(refusal_while_subscribed(name_of(r, spec)));
    return progress::taken;
  }
  switch (spec.role) {
    case read:
    case blocking_read:
    case write:
    case blocking_write: return step_data(r, spec, route_facts::stand::plain);
    case other: {
      if (const auto p = check_keys(r, spec)) return *p;
      return step_bare(r, spec);
    }
    case refused:
      if (!link_.batch.empty()) return block();
      reject({reason::refused, {}, {}, {}, refusal_text(spec)}, spec.name);
      return progress::taken;
    case multi: return step_multi(r);
    case exec:
    case discard:
      // A server that refuses an EXEC ends the client's watches by it, and only the server knows what it refuses. It gets
      // to see one outside MULTI alone: nothing of ours may ever be ended by a client's stray EXEC or DISCARD.
      if (connection_.watching) return step_barrier(r, spec);
      if (!link_.batch.empty()) return block();
      if (r.arguments.size() == 1)
        reply_local(spec.role == exec ? "-ERR EXEC without MULTI\r\n" : "-ERR DISCARD without MULTI\r\n");
      else
        reply_local(spec.role == exec ? std::string(exec_with_arguments) : wrong_arity(spec));
      return progress::taken;
    case fence: return step_fence(r);
    default: return step_connection(r, spec);
  }
}

// As Redis says it.
std::string redis_engine::refusal_while_subscribed(std::string_view name) {
  return "-ERR Can't execute '" + std::string(name) +
         "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n";
}

std::string redis_engine::refusal_text(const command_spec& spec) const {
  if (spec.name.empty()) return std::string(spec.refusal);
  if (backend::is_replication(spec.name)) return std::string(backend::replication_refused);
  std::string shown = spec.name;
  std::replace(shown.begin(), shown.end(), '|', ' ');
  std::transform(shown.begin(), shown.end(), shown.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return shown + " could damage marks or escape the fence; an operator can allow it with allow_commands: [\"" +
         spec.name + "\"]";
}

// nullopt: keys_ holds the command's keys, and it changes none that is reserved. Otherwise what became of the command.
std::optional<redis_engine::progress> redis_engine::check_keys(const wire::request& r, const command_spec& spec) {
  const auto search = backend::find_keys(spec, r.arguments, keys_);
  bool reserved = false;
  if (search == backend::key_search::ask_server) {
    if (!keys_asked_) {
      if (!link_.batch.empty()) return block();
      std::vector<std::string> arguments(r.arguments.begin(), r.arguments.end());
      phase_before_wait_ = phase_;
      phase_ = phase::waiting;
      keys_asked_ = true;
      host_.keys_of(arguments, [this](std::optional<std::vector<std::string>> keys) {
        asked_keys_ = std::move(keys);
        phase_ = phase_before_wait_;
        resume();
      });
      return block();
    }
    keys_.clear();
    for (std::size_t i = 1; i < r.arguments.size(); ++i)
      if (!asked_keys_ || std::find(asked_keys_->begin(), asked_keys_->end(), r.arguments[i]) != asked_keys_->end())
        keys_.push_back(i);
  } else if (search == backend::key_search::invalid) {
    reserved = std::any_of(r.arguments.begin() + 1, r.arguments.end(), backend::is_reserved);
  }
  for (const std::size_t at : keys_) reserved = reserved || backend::is_reserved(r.arguments[at]);
  if (!reserved) return std::nullopt;
  // SCAN shows them, and who scans reads what it finds.
  if (spec.role == command_role::read || spec.role == command_role::blocking_read) {
    connection_.reads_reserved = true;
    return std::nullopt;
  }
  if (phase_ == phase::transaction) {
    spoil_transaction(
        fence::redis_error({reason::refused, {}, {}, {}, "keys that begin with fencegate: belong to the fence"}));
    return progress::taken;
  }
  if (!link_.batch.empty()) return block();
  reject({reason::refused, {}, {}, {}, "keys that begin with fencegate: belong to the fence"}, spec.name);
  return progress::taken;
}

// ── small parts ─────────────────────────────────────────────────────────────────────────────────────────────────────

bool redis_engine::batch_full(const wire::request& r) const {
  return link_.batch.polls || link_.batch.commands.size() >= limits::batch_commands_max ||
         link_.batch.notes.size() >= noted_max ||
         (!link_.batch.empty() && link_.batch.bytes.size() + r.raw.size() > limits::command_buffered_bytes_max);
}

void redis_engine::add_to_batch(const wire::request& r, const command_spec& spec, const claims::verdict& verdict) {
  auto& batch = link_.batch;
  const std::size_t before = batch.bytes.size();
  if (r.inlined)
    wire::append_command(batch.bytes, r.arguments);
  else
    batch.bytes.append(r.raw);
  batch.add(facts_for_batch(std::string_view(batch.bytes).substr(before), r, spec, verdict));
  batch.needs |= verdict.required;
  if (backend::writes(spec.role)) batch.required |= verdict.required;  // a read spends no token
  if (verdict.watched()) note(batch.notes, verdict, !backend::writes(spec.role), name_of(r, spec));
}

batched redis_engine::facts_for_batch(std::string_view bytes, const wire::request& r, const command_spec& spec,
                                      const claims::verdict& verdict) const {
  const bool fenced = verdict.required != 0;
  const bool not_wrapped = fenced && (refusal_in_script(r.arguments, spec) ||
                                      (spec.noscript && (taken_by(spec.name).empty() || !poll_.timeout)));
  batched one{bytes.size(), fenced && !verdict.watched(), muted_, spec.denyoom || not_wrapped};
  one.plain_set = !muted_ && spec.name == "set" && r.arguments.size() == 3 && bytes.starts_with(set_head);
  return one;
}

void redis_engine::forward_raw(const wire::request& r, awaits what) {
  if (r.inlined)
    wire::append_command(to_backend, r.arguments);
  else
    to_backend.append(r.raw);
  link_.expect({what, muted_});
}

void redis_engine::reply_local(std::string text) {
  if (link_.quiet()) {
    if (!muted_) to_client += text;
    return;
  }
  wait_with(std::move(text));
}

void redis_engine::reject(const rejection& why, std::string_view command) {
  host_.report(why, command, false);
  reply_local(fence::redis_error(why));
}

// In the log.
std::string_view redis_engine::name_of(const wire::request& r, const command_spec& spec) {
  return spec.name.empty() ? r.name().substr(0, 64) : std::string_view(spec.name);
}

void redis_engine::count(const command_spec& spec) {
  using enum command_role;
  const bool reads = spec.role == read || spec.role == blocking_read;
  stats_
      .requests(backend::writes(spec.role) ? metrics::request_class::write
                : reads                    ? metrics::request_class::read
                                           : metrics::request_class::other)
      .add();
}

bool redis_engine::quiet() {
  if (!link_.batch.empty()) return false;
  if (link_.armed()) link_.leave();
  return phase_ == phase::ready && link_.is_open() && link_.quiet();
}

void redis_engine::on_left() {
  connection_.watch_lost = connection_.watching;
  note_command();
  reads_in_a_row_ = 0;
}

}  // namespace fencegate::gate
