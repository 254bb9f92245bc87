// The FENCE command.
#include "gate/redis/blocking.hpp"
#include "gate/redis/redis_engine.hpp"

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

void append_bulk(std::string& out, std::string_view text) {
  out += "$" + std::to_string(text.size()) + "\r\n";
  out += text;
  out += "\r\n";
}

// FENCE SET, or what may be meant as such.
bool binds(const wire::request& r) {
  const auto is = [&](std::string_view word) { return wire::iequals(r.arguments[1], word); };
  return r.arguments.size() > 2 && !is("GET") && !is("MARK") && !is("CALL") && !is("CLEAR");
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
  lose_binding(r, *spec_of(r));
  reply_local(
      "-ERR use FENCE SET resource token [resource token ...] | GET [resource] | CLEAR | MARK resource | "
      "CALL resource token command [argument ...]\r\n");
  return progress::taken;
}

// Only who may speak to this Redis at all may raise its marks. A PING on the client's own link tells.
bool redis_engine::authenticated() {
  if (connection_.authenticated) return true;
  phase_ = phase::barrier;
  to_backend += "*1\r\n$4\r\nPING\r\n";
  link_.expect({awaits::probe});
  return false;
}

void redis_engine::probe_done(std::string_view answer) {
  phase_ = phase::ready;
  if (answer.starts_with('-'))
    refused_ahead_ = answer;
  else
    connection_.authenticated = link_.signed_in = true;
}

// FENCE SET binds, or leaves the connection with what could not be bound: its writes must not pass as untagged.
redis_engine::progress redis_engine::fence_set(const wire::request& r) {
  const auto& a = r.arguments;
  const auto fail = [&](const rejection& why) {
    lose_claims(r, why);
    reject(why, "fence|set");
    return progress::taken;
  };
  if (a.size() < 4 || a.size() % 2 != 0) {
    lose_claims(r, malformed("FENCE SET takes resources and tokens in turns"));
    reply_local("-ERR use FENCE SET resource token [resource token ...]\r\n");
    return progress::taken;
  }
  if (!refused_ahead_.empty()) {
    const std::string answer = std::exchange(refused_ahead_, {});
    lose_claims(r,
                {reason::missing, {}, {}, {}, "FENCE SET was refused: " + std::string(armed_link::error_text(answer))});
    reply_local(answer);
    return progress::taken;
  }
  std::vector<fence::claim> wanted;
  for (std::size_t i = 2; i + 1 < a.size(); i += 2) {
    const auto presented = fence::token::parse(a[i + 1]);
    if (presented.has_error()) return fail(malformed(presented.error().message));
    if (!fence::is_resource_name(a[i])) return fail(malformed("not a resource name"));
    wanted.push_back({std::string(a[i]), *presented});
  }
  if (const auto other = refusal_of_tag(wanted)) return fail(*other);
  if (!claims_.has_room(wanted)) return fail(malformed("too many resources on one connection"));
  if (!authenticated()) return block();
  if (const auto full = host_.take_room(wanted)) {
    end_without_room(*full);
    return progress::taken;
  }
  if (!tag_of_listener().empty())
    unbind();
  else
    for (const auto& one : wanted) claims_.set(one, marks_);
  phase_ = phase::waiting;
  raise_claims([this, wanted = std::move(wanted), muted = muted_] {
    phase_ = phase::ready;
    muted_ = muted;
    const auto why = report_binding(wanted, "fence|set");
    reply_local(why ? fence::redis_error(*why) : std::string("+OK\r\n"));
    resume();
  });
  return progress::taken;
}

// What reads like FENCE SET, in part, and was not bound.
void redis_engine::lose_claims(const wire::request& r, const rejection& why) {
  std::vector<std::string> resources;
  for (std::size_t i = 2; i < r.arguments.size(); i += 2)
    if (fence::is_resource_name(r.arguments[i])) resources.emplace_back(r.arguments[i]);
  claims_.add_unusable(why.why, why.detail, std::move(resources));
}

// A tag in the arguments of a command that names the connection, and that did not do so.
void redis_engine::lose_tag(const std::vector<std::string_view>& arguments, reason why, const std::string& detail) {
  for (const auto argument : arguments) {
    const auto tag = fence::find_tag(argument);
    if (!tag) continue;
    std::vector<std::string> resources;
    if (!tag->has_error())
      for (const auto& one : **tag) resources.push_back(one.resource);
    claims_.add_unusable(why, detail, std::move(resources));
  }
}

// A command that binds, and will not be done.
void redis_engine::lose_binding(const wire::request& r, const command_spec& spec) {
  const std::string detail = "a command that binds tokens was refused; FENCE SET, or another name, binds them";
  const std::string_view name = r.name().substr(0, r.name().find('\0'));
  if (wire::iequals(name, "CLIENT") || wire::iequals(name, "HELLO"))
    lose_tag(r.arguments, reason::missing, detail);
  else if (spec.role == command_role::fence && binds(r))
    lose_claims(r, {reason::missing, {}, {}, {}, detail});
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
    out = connection_.protocol == 3 ? "_\r\n" : "$-1\r\n";
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
  if (!refused_ahead_.empty()) {
    reply_local(std::exchange(refused_ahead_, {}));
    return progress::taken;
  }
  if (!authenticated()) return block();
  auto cell = marks_.cell(r.arguments[2]);
  phase_ = phase::waiting;
  host_.read_mark(cell, [this, cell, muted = muted_](const backend::mark_reading& reading) {
    phase_ = phase::ready;
    muted_ = muted;
    std::string out = connection_.protocol == 3 ? "_\r\n" : "$-1\r\n";
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
  if (host_.snapshot().commands == backend::command_table::empty()) {
    reject({reason::unavailable, std::string(a[2]), *presented, {}, host_.snapshot().problem}, "fence|call");
    return progress::taken;
  }
  const std::vector<std::string_view> command(a.begin() + 4, a.end());
  const auto& spec = host_.snapshot().commands->find(command[0], command.size() > 1 ? command[1] : std::string_view{});
  const bool reads_on = spec.name == "xread" && !blocking_timeout(command);
  if (spec.noscript || (spec.role != command_role::write && spec.role != command_role::read && !reads_on)) {
    reject({reason::refused, std::string(a[2]), *presented, {}, "FENCE CALL takes commands that may run in a script"},
           "fence|call");
    return progress::taken;
  }
  if (const auto why = refusal_in_script(command, spec)) {
    reject({reason::refused, std::string(a[2]), *presented, {}, std::string(*why)}, "fence|call");
    return progress::taken;
  }
  if (!spec.fits(command.size())) {
    reply_local(wrong_arity(spec));
    return progress::taken;
  }
  wire::request inner;
  inner.arguments = command;
  if (const auto p = check_keys(inner, spec)) return *p;
  if (!refused_ahead_.empty()) {
    reply_local(std::exchange(refused_ahead_, {}));
    return progress::taken;
  }
  if (!authenticated()) return block();
  if (call_ == nullptr) {
    call_ = std::make_unique<claims>(gate_);
    call_->set({std::string(a[2]), *presented}, marks_);
  }
  return call(r, command, spec);
}

// REQUIRES: its claim is call_'s, its keys in keys_.
redis_engine::progress redis_engine::call(const wire::request& r, const std::vector<std::string_view>& command,
                                          const command_spec& spec) {
  bound_claim& under = call_->items().front();
  call_->learn_from_memory();
  const auto verdict = call_->judge(command, keys_);
  // (One resource may belong to two rules: the key's decides, whatever the token's says.)
  const bool monitored = !verdict.rejected && verdict.required == 0 &&
                         (verdict.watched() || under.rules.mode == fence::enforcement::monitor);
  const bool spends = under.rules.spends();
  auto why = verdict.rejected;
  if (!why && (under.status != claim_status::unraised || raise_tried_)) why = call_->refusal_of(under);
  if (!why && spends)
    why = rejection{reason::refused,
                    std::string(under.cell->resource),
                    under.presented,
                    {},
                    "equal_token: reject needs a bound connection"};

  route_facts facts;
  facts.where = route_facts::stand::called;
  facts.what = backend::writes(spec.role) ? route_facts::kind::write : route_facts::kind::read;
  facts.rejected = verdict.rejected.has_value();
  facts.required = !monitored;
  facts.unraised = under.status == claim_status::unraised && !raise_tried_ && !spends;
  facts.refused = why.has_value();
  facts.ready = host_.snapshot().ready;
  const auto to = route_of(facts).to;
  if (to == route::reject) {
    if (!why) why = call_->unavailable(~claim_mask{0}, host_.snapshot().problem);
    call_.reset();
    reject(*why, "fence|call");
    return progress::taken;
  }
  if (to == route::raise_first) {
    raise_tried_ = true;
    phase_ = phase::waiting;
    host_.raise(under.cell, under.presented, under.rules.max_step, [this](const backend::raise_outcome& outcome) {
      phase_ = phase::ready;
      if (outcome.raised) stats_.checks(metrics::check_outcome::raised).add();
      if (call_ != nullptr) call_->on_raised(*call_->items().front().cell, outcome);
      resume();
    });
    return block();
  }
  const auto claim = std::move(call_);
  if (to == route::bare) {
    if (!why) why = verdict.would_be;
    if (why)
      host_.report(*why, "fence|call", true);
    else
      stats_.checks(metrics::check_outcome::admitted).add();
    private_ = private_ || spec.stays_with_connection;
    wire::append_command(to_backend, command);
    link_.expect({awaits::relay, muted_});
    return progress::taken;
  }
  wrap(command, spec, {&claim->items().front()}, r);
  single_.name = "fence|call";
  return progress::taken;
}

}  // namespace fencegate::gate
