// Commands that change what the connection is: each is a barrier, sent alone, and its reply decides.
#include "gate/redis/redis_engine.hpp"
#include "gate/relay/hidden_tag.hpp"

#include <charconv>

namespace fencegate::gate {

using backend::command_role;
using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

bool to_int(std::string_view text, int& out) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc{} && end == text.data() + text.size();
}

}  // namespace

redis_engine::progress redis_engine::step_connection(const wire::request& r, const command_spec& spec) {
  using enum command_role;
  switch (spec.role) {
    case quit:
      if (!link_.batch.empty()) return block();
      reply_local("+OK\r\n");
      end_input();
      return progress::taken;
    case client_reply: return step_client_reply(r);
    case client_caching:
      // Stays next to its read, or MULTI: the link is outside MULTI from here on, and nothing is put between.
      if (const auto p = step_bare(r, spec); p == progress::blocked) return p;
      connection_.caching = true;
      return progress::taken;
    case watch:
      if (const auto p = check_keys(r, spec)) {
        // Redis would have taken it: a transaction that relies on it must not run.
        if (*p == progress::taken) connection_.watching = connection_.watch_lost = true;
        return *p;
      }
      if (const auto p = step_bare(r, spec); p == progress::blocked) return p;
      connection_.watching = connection_.watching || r.arguments.size() > 1;  // without a key, every server refuses it
      return progress::taken;
    case subscribe:
    case unsubscribe: return step_subscribe(r, spec);
    default: return step_barrier(r, spec);
  }
}

redis_engine::progress redis_engine::step_barrier(const wire::request& r, const command_spec& spec) {
  if (!quiet()) return block();
  change_ = change{};
  change_.role = spec.role;
  change_.muted = muted_;
  change_.protocol = connection_.protocol;
  const auto& arguments = r.arguments;
  if (spec.role == command_role::auth) wire::append_command(change_.sign_in, arguments);
  if (spec.role == command_role::select && arguments.size() == 2 && !to_int(arguments[1], change_.database)) {
    change_.database = link_.database;
  } else if (spec.role == command_role::client_setname && arguments.size() == 3) {
    change_.name = std::string(arguments[2]);
  } else if (spec.role == command_role::client_setname) {
    change_.other_words.assign(arguments.begin() + 2, arguments.end());
  } else if (spec.role == command_role::hello && !read_hello(arguments)) {
    lose_tag(arguments, reason::missing, "the HELLO with the tag was refused; FENCE SET, or another name, binds it");
    reject({reason::refused, {}, {}, {}, "an option of HELLO with a NUL in it could be taken for another"}, spec.name);
    return progress::taken;
  }
  phase_ = phase::barrier;
  forward_raw(r, awaits::state_change);
  return progress::taken;
}

// Into change_. False: Redis compares its options up to a NUL, and would find others in it.
bool redis_engine::read_hello(const std::vector<std::string_view>& arguments) {
  const auto at_end = arguments.size();
  if (at_end > 1 && !to_int(arguments[1], change_.protocol)) change_.protocol = connection_.protocol;
  for (std::size_t i = 1; i < at_end; ++i) {
    if (i > 1 && wire::iequals(arguments[i], "AUTH") && i + 2 < at_end) {
      change_.authenticates = true;
      change_.sign_in.clear();
      wire::append_command_of(change_.sign_in, std::string_view("AUTH"), arguments[i + 1], arguments[i + 2]);
      i += 2;
    } else if (i > 1 && wire::iequals(arguments[i], "SETNAME") && i + 1 < at_end) {
      change_.name = std::string(arguments[++i]);
    } else if (arguments[i].find('\0') != std::string_view::npos) {
      return false;
    } else {
      change_.other_words.emplace_back(arguments[i]);
    }
  }
  return true;
}

// The barrier's reply is in held_reply_; the client gets it now, or behind what the command means for its claims.
void redis_engine::on_state_reply() {
  using enum command_role;
  const bool ok = !change_.error;
  phase_ = change_.inside && !ok ? phase::transaction : phase::ready;
  if (ok) {
    if (change_.role == unwatch) watching_ends();
    if (change_.role == discard) leave_transaction();
    if (change_.role == select) link_.database = change_.database;
    if (change_.role == auth) connection_.authenticated = false;  // a new user: ask anew before raising
    link_.signed_in = link_.signed_in || change_.role == auth || change_.authenticates;
    if (!change_.sign_in.empty()) {
      connection_.sign_in = std::move(change_.sign_in);
      ++sign_ins_;
    }
    if (change_.role == hello) {
      change_.protocol_before = std::exchange(connection_.protocol, change_.protocol);
      if (change_.authenticates) connection_.authenticated = false;
    }
    if (change_.role == reset) {
      change_.muted = change_.muted && !connection_.reply_off;  // it turns replies on again, its own among them
      reset_state();
    }
    if (change_.role == monitor) phase_ = phase::monitor_stream;
    if (change_.role == multi && held_reply_ == "+OK\r\n") begin_transaction(false);
  }
  // Whatever it refuses an EXEC for, and whether or not it is inside MULTI, the server drops the watches.
  if (change_.role == exec && held_reply_.starts_with("-EXECABORT")) watching_ends();
  // HELLO signs in before it looks at what else it was given.
  if (!ok && change_.authenticates) private_ = true;
  if (change_.name) {
    const auto tag = fence::find_tag(*change_.name);
    if (!tag) warn_of_hidden_tag(gate_.name, *change_.name);
    if (tag && !ok) {
      change_.other_words.push_back(*change_.name);
    } else if (tag && tag->has_error()) {
      claims_.bind_unusable(reason::malformed, tag->error().message);
      return answer_binding({});
    } else if (const auto other = tag ? refusal_of_tag(**tag) : std::nullopt) {
      claims_.bind_unusable(reason::malformed, other->detail);
      return answer_binding({});
    } else if (const auto full = tag ? host_.take_room(**tag) : std::nullopt) {
      held_reply_.clear();
      return end_without_room(*full);
    } else if (tag) {
      bind(**tag);
      phase_ = phase::waiting;
      return raise_claims([this, asked = **tag] {
        phase_ = phase::ready;
        answer_binding(asked);
        resume();
      });
    }
  }
  // Clients that ignore an error go on; their writes must not pass as untagged.
  lose_tag({change_.other_words.begin(), change_.other_words.end()}, reason::missing,
           "the server refused the client name with the tag: " + std::string(armed_link::error_text(held_reply_)) +
               "; FENCE SET binds without a name");
  if (!change_.muted) to_client += held_reply_;
  held_reply_.clear();
}

// → what the client is told; nothing of what is only watched.
std::optional<rejection> redis_engine::report_binding(const std::vector<fence::claim>& asked,
                                                      std::string_view command) {
  const auto verdict = claims_.judge_binding(asked);
  const auto& why = verdict.rejected ? verdict.rejected : verdict.would_be;
  if (why) host_.report(*why, command, !verdict.rejected);
  return verdict.rejected;
}

// The server took the name; the marks decide what the client is told.
void redis_engine::answer_binding(const std::vector<fence::claim>& asked) {
  const auto why = report_binding(asked, change_.role == command_role::hello ? "hello" : "client|setname");
  if (!why) {
    if (!change_.muted) to_client += held_reply_;
  } else {
    // The client takes an error of HELLO for "nothing has changed".
    if (change_.role == command_role::hello && change_.protocol_before != connection_.protocol) {
      connection_.protocol = change_.protocol_before;
      wire::append_command_of(to_backend, std::string_view("HELLO"), std::to_string(connection_.protocol));
      link_.expect({awaits::relay, true});
    }
    if (!change_.muted) to_client += fence::redis_error(*why);
  }
  held_reply_.clear();
}

void redis_engine::reset_state() {
  connection_.reset();
  ++sign_ins_;
  tx_ = transaction{};
  note_command();
  unbind();
  replay_.clear();
  link_.reset();
  phase_ = phase::ready;
}

// CLIENT REPLY never reaches the server: OFF would cut EXEC's reply short, SKIP would swallow one of ours.
redis_engine::progress redis_engine::step_client_reply(const wire::request& r) {
  if (!link_.batch.empty()) return block();
  if (r.arguments.size() == 3 && wire::iequals(r.arguments[2], "ON")) {
    connection_.reply_off = connection_.skip_next = false;
    muted_ = false;
    reply_local("+OK\r\n");
  } else if (r.arguments.size() == 3 && wire::iequals(r.arguments[2], "OFF")) {
    connection_.reply_off = true;
  } else if (r.arguments.size() == 3 && wire::iequals(r.arguments[2], "SKIP")) {
    if (!connection_.reply_off) connection_.skip_next = true;
  } else if (r.arguments.size() == 3) {
    reply_local("-ERR syntax error\r\n");
  } else {
    reply_local("-ERR wrong number of arguments for 'client|reply' command\r\n");
  }
  return progress::taken;
}

redis_engine::progress redis_engine::step_subscribe(const wire::request& r, const command_spec& spec) {
  if (!quiet()) return block();
  const bool all = spec.role == command_role::unsubscribe && r.arguments.size() == 1;
  const char family = spec.name.empty()                                             ? 'c'
                      : spec.name.front() == 'p'                                    ? 'p'
                      : spec.name.starts_with("ss") || spec.name.starts_with("sun") ? 's'
                                                                                    : 'c';
  if (spec.role == command_role::subscribe && r.arguments.size() == 1) {
    forward_raw(r);  // an error: wrong number of arguments
    return progress::taken;
  }
  forward_raw(r, awaits::subscription);
  ++connection_.subscribing;
  link_.back().n =
      all ? connection_.channels.unsubscribe_all(family) : static_cast<std::uint32_t>(r.arguments.size() - 1);
  return progress::taken;
}

redis_engine::progress redis_engine::step_in_monitor_stream(const wire::request& r, const command_spec& spec) {
  // What RESET makes of the connection is known when it is answered.
  if (connection_.stream_ends) return block();
  if (r.name().size() == 4 && wire::iequals(r.name(), "PING")) {
    wire::append_command(to_backend, r.arguments);
    ++connection_.stream_replies;
    return progress::taken;
  }
  if (connection_.stream_replies > 0) return block();
  if (spec.role == command_role::quit) {
    reply_local("+OK\r\n");
    link_.close();
  } else if (spec.role == command_role::reset && r.arguments.size() == 1) {
    to_backend += "*1\r\n$5\r\nRESET\r\n";
    ++connection_.stream_replies;
    connection_.stream_ends = true;
  } else {
    reply_local("-ERR only PING, RESET and QUIT are allowed while MONITOR runs\r\n");
  }
  return progress::taken;
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_engine::protocol_error(std::string_view message) {
  stats_.protocol_errors(metrics::side::client).add();
  muted_ = false;
  reply_local("-ERR Protocol error: " + std::string(message) + "\r\n");
  end_input();
  from_client = byte_queue{};
}

// Nothing more is read from the client; the connection ends when all that was asked before is answered.
void redis_engine::end_input() {
  if (link_.quiet())
    link_.close();
  else
    link_.expect({awaits::close});
  input_over_ = true;
}

// There is no room for a connection with its tag.
void redis_engine::end_without_room(const std::string& why) {
  muted_ = false;
  reply_local(too_many_clients(why));
  end_input();
}

void redis_engine::fail_all(std::string_view detail) {
  muted_ = false;
  while (!from_client.empty()) {
    const auto decoded = decoder_.decode(from_client.view(), limits::command_buffered_bytes_max, request_);
    if (decoded.status == wire::request_status::complete) {
      count(wrapped_spec(request_, find_spec(request_)));
      to_client += fence::redis_error({reason::unavailable, {}, {}, {}, std::string(detail)});
    } else if (decoded.status != wire::request_status::empty) {
      break;
    }
    from_client.consume(decoded.consumed);
  }
  if (to_client.empty()) to_client += fence::redis_error({reason::unavailable, {}, {}, {}, std::string(detail)});
  link_.close();
}

}  // namespace fencegate::gate
