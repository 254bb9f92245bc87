// The FENCE command, and commands that run behind the wrapper script.
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

// Lua's unpack() ends at about 8,000 values, the marks included.
constexpr std::size_t wrapped_arguments_max = 7'000;

void append_bulk(std::string& out, std::string_view text) {
  out += "$" + std::to_string(text.size()) + "\r\n";
  out += text;
  out += "\r\n";
}

rejection malformed(std::string detail) { return {reason::malformed, {}, {}, {}, std::move(detail)}; }

}  // namespace

redis_engine::progress redis_engine::step_fence(const wire::request& r) {
  if (!quiet()) return block();
  const std::string_view what = r.arguments.size() > 1 ? r.arguments[1] : std::string_view{};
  if (wire::iequals(what, "SET")) return fence_set(r);
  if (wire::iequals(what, "GET")) return fence_get(r);
  if (wire::iequals(what, "MARK")) return fence_mark(r);
  if (wire::iequals(what, "CALL")) return fence_call(r);
  if (wire::iequals(what, "CLEAR") && r.arguments.size() == 2) {
    unbind();
    reply_local("+OK\r\n");
    return progress::taken;
  }
  reply_local(
      "-ERR use FENCE SET resource token [resource token ...] | GET [resource] | CLEAR | MARK resource | "
      "CALL resource token command [argument ...]\r\n");
  return progress::taken;
}

// Only who may speak to this Redis at all may raise its marks. A PING on the client's own link tells.
bool redis_engine::authenticated() {
  if (authenticated_) return true;
  phase_ = phase::barrier;
  to_backend += "*1\r\n$4\r\nPING\r\n";
  expectations_.push_back({awaits::probe});
  return false;
}

void redis_engine::probe_done() {
  phase_ = phase::open;
  if (probe_answer_.starts_with('-'))
    probe_error_ = probe_answer_;
  else
    authenticated_ = signed_in_ = true;
}

redis_engine::progress redis_engine::fence_set(const wire::request& r) {
  const auto& a = r.arguments;
  if (a.size() < 4 || a.size() % 2 != 0) {
    reply_local("-ERR use FENCE SET resource token [resource token ...]\r\n");
    return progress::taken;
  }
  if (!probe_error_.empty()) {
    reply_local(std::exchange(probe_error_, {}));
    return progress::taken;
  }
  std::vector<fence::claim> wanted;
  for (std::size_t i = 2; i + 1 < a.size(); i += 2) {
    const auto presented = fence::token::parse(a[i + 1]);
    if (presented.has_error() || !fence::is_resource_name(a[i])) {
      const std::string detail = presented.has_error() ? presented.error().message : "not a resource name";
      claims_.bind_unusable(reason::malformed, detail);
      reject(malformed(detail), "fence|set");
      return progress::taken;
    }
    wanted.push_back({std::string(a[i]), *presented});
  }
  if (const auto other = refusal_of_tag(wanted)) {
    claims_.bind_unusable(other->why, other->detail);
    reject(*other, "fence|set");
    return progress::taken;
  }
  if (!authenticated()) return block();
  if (!tag_of_listener().empty()) unbind();
  for (const auto& one : wanted)
    if (tag_of_listener().empty() && !claims_.set(one, marks_)) {
      reject(malformed("too many resources on one connection"), "fence|set");
      return progress::taken;
    }
  phase_ = phase::waiting;
  raise_claims([this, wanted = std::move(wanted), muted = muted_] {
    phase_ = phase::open;
    muted_ = muted;
    const auto why = report_binding(wanted, "fence|set");
    reply_local(why ? fence::redis_error(*why) : std::string("+OK\r\n"));
    resume();
  });
  return progress::taken;
}

redis_engine::progress redis_engine::fence_get(const wire::request& r) {
  std::string out;
  if (r.arguments.size() == 2) {
    out = "*" + std::to_string(2 * claims_.items().size()) + "\r\n";
    for (const auto& one : claims_.items()) {
      append_bulk(out, one.cell->resource);
      append_bulk(out, one.digits);
    }
  } else {
    out = protocol_ == 3 ? "_\r\n" : "$-1\r\n";
    for (const auto& one : claims_.items())
      if (r.arguments.size() == 3 && one.cell->resource == r.arguments[2]) {
        out.clear();
        append_bulk(out, one.digits);
      }
  }
  reply_local(std::move(out));
  return progress::taken;
}

redis_engine::progress redis_engine::fence_mark(const wire::request& r) {
  if (r.arguments.size() != 3 || !fence::is_resource_name(r.arguments[2])) {
    reject(malformed("use FENCE MARK resource"), "fence|mark");
    return progress::taken;
  }
  if (!probe_error_.empty()) {
    reply_local(std::exchange(probe_error_, {}));
    return progress::taken;
  }
  if (!authenticated()) return block();
  auto cell = marks_.cell(r.arguments[2]);
  phase_ = phase::waiting;
  host_.read_mark(cell, [this, cell, muted = muted_](const backend::mark_reading& reading) {
    phase_ = phase::open;
    muted_ = muted;
    std::string out = protocol_ == 3 ? "_\r\n" : "$-1\r\n";
    if (!reading.detail.empty()) {
      out = fence::redis_error({reason::unavailable, std::string(cell->resource), {}, {}, reading.detail});
    } else if (reading.mark) {
      out.clear();
      append_bulk(out, reading.mark->to_string());
    }
    reply_local(std::move(out));
    resume();
  });
  return progress::taken;
}

// FENCE CALL resource token command…: one command under one token, without binding the connection.
redis_engine::progress redis_engine::fence_call(const wire::request& r) {
  const auto& a = r.arguments;
  const auto presented = a.size() > 3 ? fence::token::parse(a[3]) : result<fence::token>(error{"no token"});
  if (a.size() < 5 || presented.has_error() || !fence::is_resource_name(a[2])) {
    reject(malformed("use FENCE CALL resource token command [argument ...]"), "fence|call");
    return progress::taken;
  }
  if (const auto other = refusal_of_tag({{std::string(a[2]), *presented}})) {
    reject(*other, "fence|call");
    return progress::taken;
  }
  // Without the server's table nobody knows what a command does.
  if (host_.picture().commands == backend::command_table::empty()) {
    reject({reason::unavailable, std::string(a[2]), *presented, {}, host_.picture().problem}, "fence|call");
    return progress::taken;
  }
  const std::vector<std::string_view> command(a.begin() + 4, a.end());
  const auto& spec = host_.picture().commands->find(command[0], command.size() > 1 ? command[1] : std::string_view{});
  if (spec.noscript || (spec.role != command_role::write && spec.role != command_role::read)) {
    reject({reason::refused, std::string(a[2]), *presented, {}, "FENCE CALL takes commands that may run in a script"},
           "fence|call");
    return progress::taken;
  }
  if (command.size() > wrapped_arguments_max) {
    reject({reason::refused, std::string(a[2]), *presented, {}, "too many arguments for a script"}, "fence|call");
    return progress::taken;
  }
  wire::request inner;
  inner.arguments = command;
  if (const auto p = check_keys(inner, spec)) return *p;
  if (!probe_error_.empty()) {
    reply_local(std::exchange(probe_error_, {}));
    return progress::taken;
  }
  if (!authenticated()) return block();
  if (call_ == nullptr) {
    call_ = std::make_unique<claims>(gate_);
    (void)call_->set({std::string(a[2]), *presented}, marks_);
  }
  bound_claim& under = call_->items().front();
  call_->learn_from_memory();
  const auto verdict = call_->judge(command, keys_);
  auto why = verdict.rejected;
  // (One resource may belong to two rules: the key's decides, whatever the token's says.)
  const bool monitored =
      !why && verdict.required == 0 && (verdict.watched() || under.rules.mode == fence::enforcement::monitor);
  if (!why && (under.status != claim_status::unraised || raise_tried_)) why = call_->refusal_of(under);
  if (!why && under.rules.equal == fence::equal_token::reject)
    why = rejection{reason::refused, std::string(a[2]), *presented, {}, "equal_token: reject needs a bound connection"};
  if (why && !monitored) {
    call_.reset();
    reject(*why, "fence|call");
    return progress::taken;
  }
  if (!why && under.status == claim_status::unraised) {
    raise_tried_ = true;
    phase_ = phase::waiting;
    host_.raise(under.cell, *presented, under.rules.max_step, [this](const backend::raise_outcome& outcome) {
      phase_ = phase::open;
      if (outcome.raised) figures_.checks(metrics::check_outcome::raised).add();
      if (call_ != nullptr) on_raised(*call_, *call_->items().front().cell, outcome);
      resume();
    });
    return block();
  }
  const auto claim = std::move(call_);
  if (monitored) {
    if (!why) why = verdict.would_be;
    if (why)
      host_.report(*why, "fence|call", true);
    else
      figures_.checks(metrics::check_outcome::admitted).add();
    private_ = private_ || spec.stays_with_connection;
    wire::append_command(to_backend, command);
    expectations_.push_back({awaits::relay, muted_});
    return progress::taken;
  }
  wrap(command, {&claim->items().front()}, r);
  single_.name = "fence|call";
  return progress::taken;
}

// ── the wrapper ─────────────────────────────────────────────────────────────────────────────────────────────────────

redis_engine::progress redis_engine::wrap_command(const wire::request& r, const command_spec& spec,
                                                  const claims::verdict& verdict) {
  if (!batch_.commands.empty()) return block();
  if (r.arguments.size() > wrapped_arguments_max) {
    reject({reason::refused, {}, {}, {}, "too many arguments for a script; put the command behind MULTI"}, r.name());
    return progress::taken;
  }
  std::vector<const bound_claim*> under;
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    if ((verdict.required >> i & 1) == 0) continue;
    under.push_back(&claims_.items()[i]);
    // Only reads come here under a used token.
    if (under.back()->rules.equal == fence::equal_token::reject && under.back()->status != claim_status::used) {
      reject({reason::refused,
              std::string(under.back()->cell->resource),
              under.back()->presented,
              {},
              "with equal_token: reject this command cannot stand here; put it behind MULTI"},
             r.name());
      return progress::taken;
    }
  }
  if (verdict.monitored != 0 && !caching_) peek_marks();  // (CLIENT CACHING is meant for the command itself)
  wrap(r.arguments, under, r);
  if (verdict.watched()) note(single_.notes, verdict, !backend::writes(spec.role), name_of(r, spec));
  return progress::taken;
}

// Sends one command behind its check in a script. REQUIRES: phase open.
void redis_engine::wrap(const std::vector<std::string_view>& command, const std::vector<const bound_claim*>& under,
                        const wire::request& whole) {
  const std::string keys = std::to_string(under.size() + 1);
  const std::string database = std::to_string(database_);
  const std::string protocol = std::to_string(protocol_);
  const std::string epoch = host_.picture().epoch;
  std::vector<std::string_view> eval{"EVAL", backend::checked_command, "0", protocol, database, keys};
  for (const auto* one : under) eval.push_back(one->cell->key);
  eval.push_back(backend::epoch_key);
  for (const auto* one : under) eval.push_back(one->digits);
  eval.push_back(epoch);
  eval.insert(eval.end(), command.begin(), command.end());
  wire::append_command(to_backend, eval);
  single_ = wrapped{};
  if (whole.inlined)
    wire::append_command(single_.raw, whole.arguments);
  else
    single_.raw = std::string(whole.raw);
  single_.name = std::string(whole.name());
  for (const auto* one : under) single_.cells.push_back(one->cell);
  single_.muted = muted_;
  if (!replay_.empty()) single_.how = replay_.front().how;
  expectations_.push_back({awaits::single, muted_});
  phase_ = phase::single;
}

// The script says which errors are the command's own; any other means that the command did not run.
void redis_engine::start_single(const wire::reply_head& head) {
  constexpr std::string_view ran = "FENCEGATERAN ";
  if (!head.is_error()) return begin(head, single_.muted ? sink::drop : sink::client);
  if (head.type == '-' && head.line.starts_with(ran)) {
    if (!single_.muted) to_client += "-" + std::string(head.line.substr(ran.size())) + "\r\n";
  } else if (head.type == '-' && head.line.starts_with("FENCEGATEMARK")) {
    single_.mark_moved = true;
  } else {
    single_.error = head.type == '-' ? std::string(head.line) : "an unexpected reply";
  }
  begin(head, sink::drop);
}

void redis_engine::single_done() {
  phase_ = phase::open;
  if (!single_.mark_moved) {
    const wrapped done = std::exchange(single_, wrapped{});
    batch_attempts_ = 0;
    if (done.error.empty()) {
      if (done.notes.empty()) figures_.checks(metrics::check_outcome::admitted).add();
      return book(done.notes);
    }
    std::string answer = "-" + done.error + "\r\n";
    if (is_native_error(done.error)) {
      figures_.checks(metrics::check_outcome::unavailable).add();
    } else {
      const rejection why{reason::unavailable, {}, {}, {}, done.error};
      host_.report(why, done.name, false);
      answer = fence::redis_error(why);
    }
    if (!done.muted) to_client += answer;
    return;
  }
  // Not applied. The marks are read again (and put right), then the command is judged anew.
  from_client.prepend(single_.raw);
  decoder_.reset_progress();
  const bool give_up = ++batch_attempts_ > limits::batch_attempts_max;
  replay_.push_front(
      {give_up ? replayed::route::give_up : single_.how, single_.muted, give_up ? "the marks move all the time" : ""});
  if (give_up) batch_attempts_ = 0;
  phase_ = phase::waiting;
  auto left = std::make_shared<std::size_t>(single_.cells.size() + 1);
  auto one_done = [this, left] {
    if (--*left != 0) return;
    phase_ = phase::open;
    resume();
  };
  const auto cells = single_.cells;  // answers at once may begin the next one
  for (const auto& cell : cells) host_.read_mark(cell, [one_done](const backend::mark_reading&) { one_done(); });
  host_.recheck(one_done);
}

}  // namespace fencegate::gate
