// What the replies say that are the client's own affair: its transactions, wrapped commands, subscriptions, MONITOR; and
// which answers of the gate's own take their turn among them.
#include "base/limits.hpp"
#include "gate/redis/pubsub.hpp"
#include "gate/redis/redis_engine.hpp"

namespace fencegate::gate {

using backend::command_role;

void redis_engine::on_backend_bytes() {
  link_.read();
  if (!closing()) resume();
}

link_user::push redis_engine::on_push(const wire::reply_head& head, std::string_view rest) {
  const bool subscribed = connection_.subscriptions > 0 || link_.next_is(awaits::subscription);
  if (head.type != '>' && (connection_.protocol != 2 || !subscribed)) return push::no;
  const auto kind = pubsub::kind_of(rest, head.count);
  if (kind == pubsub::message_kind::need_more) return push::need_more;
  if (head.type != '>' && kind == pubsub::message_kind::other) return push::no;
  push_kind_ = kind;
  const bool read = kind == pubsub::message_kind::confirmation || kind == pubsub::message_kind::invalidation;
  link_.begin_push(head, read ? sink::capture : sink::answers);
  return push::begun;
}

// MONITOR's lines begin with the time; everything else answers a command.
bool redis_engine::on_unasked(const wire::reply_head& head) {
  if (phase_ != phase::monitor_stream) return false;
  const bool line = head.type == '+' && !head.line.empty() && head.line[0] >= '0' && head.line[0] <= '9';
  if (!line && connection_.stream_replies > 0) --connection_.stream_replies;
  const bool ends = !line && connection_.stream_replies == 0 && std::exchange(connection_.stream_ends, false);
  if (ends && head.type == '+' && head.line == "RESET") reset_state();
  link_.begin(head, sink::answers);
  return true;
}

void redis_engine::on_reply(const expectation& front, const wire::reply_head& head) {
  switch (front.what) {
    case awaits::subscription: return link_.begin(head, front.muted ? sink::drop : sink::answers);
    case awaits::tx_exec: return start_client_exec(head);
    case awaits::tx_queued:
      if (!head.is_error() && !(head.type == '+' && head.line == "QUEUED"))
        return link_.unexpected("a command in a transaction was not queued");
      return link_.begin(head, front.muted ? sink::drop : sink::answers);
    case awaits::single: return start_single(head);
    case awaits::held_read: return link_.begin(head, front.muted ? sink::drop : sink::hold);
    case awaits::renewal:
      if (head.is_error()) renewal_refused(head.line);
      return link_.begin(head, sink::drop);
    case awaits::state_change:
      if (!head.is_error() && !head.is_ok() &&
          (change_.role == command_role::discard || change_.role == command_role::unwatch))
        return link_.unexpected("the end of a transaction was not confirmed");
      if (!head.is_error() && !change_.inside &&
          (change_.role == command_role::exec || change_.role == command_role::discard))
        return link_.unexpected("a transaction ended that nobody had begun");
      change_.error = head.is_error();
      [[fallthrough]];
    default: return link_.begin(head, sink::capture);
  }
}

void redis_engine::on_reply_end(awaits what, std::string text) {
  switch (what) {
    case awaits::subscription: --connection_.subscribing; return;
    case awaits::tx_exec:
      if (!tx_.tailed) finish_transaction();
      return;
    case awaits::single: return single_done();
    case awaits::state_change: held_reply_ = std::move(text); return on_state_reply();
    case awaits::marks_behind: return look_behind_done(text);
    case awaits::probe: return probe_done(text);
    case awaits::identity: return identity_done(text);
    case awaits::renewal_of_aof: return on_renewal_of_aof(std::move(text));
    default: return link_.unexpected("a reply to nothing");
  }
}

sink redis_engine::on_element(std::size_t at, const wire::reply_head& head) {
  for (const auto& [position, number] : tx_.selects)
    if (position == at && head.is_ok()) link_.database = number;
  return at >= tx_.commands || tx_.muted ? sink::drop : sink::answers;
}

bool redis_engine::on_polled(const wire::reply_head& head) {
  if (link_.batch.polled && head.is_null()) {
    poll_.in_vain = true;
    link_.begin(head, sink::drop);
    return true;
  }
  // Inside MULTI some commands say "nothing" with another null than when their time-out is over.
  if (head.is_null() && poll_.timeout) {
    if (!link_.batch.commands[0].muted) to_client += nil_text();
    link_.begin(head, sink::drop);
    return true;
  }
  poll_.since.reset();
  return false;
}

// The answer of a read waits for the marks behind it, up to a size.
void redis_engine::hold(std::string_view bytes) {
  if (single_.too_large) return;
  if (single_.answer.size() + bytes.size() <= held_read_bytes_max) {
    single_.answer.append(bytes);
  } else {
    single_.too_large = true;
    single_.answer = {};
  }
}

void redis_engine::on_turn() {
  while (!link_.quiet()) {
    auto& front = link_.front();
    if (front.what == awaits::local) {
      for (; front.n != 0 && !front.muted; --front.n) {
        // What is turned away takes no room: it waits here, and say_more() goes on.
        if (front.turned_away && to_client.size() > limits::unread_step_bytes) return;
        to_client += locals_.front();
      }
      local_bytes_ -= locals_.front().size();
      locals_.pop_front();
    } else if (front.what == awaits::close) {
      link_.close();
    } else {
      return;
    }
    link_.drop_front();
  }
}

// RESP3 pushes, and RESP2's messages of a subscribed connection.
void redis_engine::on_push_end(const std::string& text) {
  if (push_kind_ == pubsub::message_kind::invalidation) {
    to_client += connection_.reads_reserved ? text : pubsub::without_reserved_keys(text);
    return;
  }
  if (push_kind_ != pubsub::message_kind::confirmation) return;
  to_client += text;
  connection_.subscriptions = connection_.channels.confirmed(text);
  if (!link_.next_is(awaits::subscription) || --link_.front().n != 0) return;
  --connection_.subscribing;
  link_.pop_expectation();
}

std::string redis_engine::nil_text() const { return connection_.protocol == 3 ? "_\r\n" : "*-1\r\n"; }

}  // namespace fencegate::gate
