// Backend side: what each reply is, and where its bytes go.
#include "base/limits.hpp"
#include "base/log.hpp"
#include "gate/pubsub.hpp"
#include "gate/redis_engine.hpp"

namespace fencegate::gate {

using backend::command_role;

namespace {

// Replies that the gate reads itself: HELLO's, confirmations of subscriptions, invalidations.
constexpr std::size_t captured_bytes_max = 16 * 1024 * 1024;

// The bytes of a whole short simple string or integer at the front; 0: it is something else.
std::size_t short_line(std::string_view view) {
  constexpr std::size_t longest = 64;
  if (view.empty() || (view[0] != '+' && view[0] != ':')) return 0;
  if (view.starts_with("+OK\r\n")) return 5;
  wire::reply_head head;
  if (wire::read_head(view.substr(0, longest), head) != wire::head_status::complete) return 0;
  return head.bytes;
}

}  // namespace

void redis_engine::on_backend_bytes() {
  while (!closing_ && !from_backend.empty()) {
    const std::string_view view = from_backend.view();
    if (!scanner_.done()) {
      const auto step = scanner_.advance(view);
      deliver(view.substr(0, step.consumed));
      from_backend.consume(step.consumed);
      if (step.what == wire::value_scanner::status::malformed) return unexpected("a malformed reply");
      if (scanner_.done())
        value_done();
      else if (step.consumed == 0)
        break;
      continue;
    }
    if (take_run(view)) continue;
    wire::reply_head head;
    const auto status = wire::read_head(view, head);
    if (status == wire::head_status::need_more) break;
    if (status == wire::head_status::malformed) return unexpected("a malformed reply");
    if (!start_value(head, view)) break;
  }
  if (!closing_) resume();
}

// Most replies of a batch are +QUEUED, then short lines: whole runs of them are taken at once. Everything else, and
// everything that is not as expected, goes the long way.
bool redis_engine::take_run(std::string_view view) {
  std::size_t taken = 0;
  if (batch_.elements_left > 0) {
    if (poll_.batch || batch_.muted || batch_.merged || batch_.elements_seen < batch_.prefixed) return false;
    while (batch_.elements_left > 0) {
      const std::size_t bytes = short_line(view.substr(taken));
      if (bytes == 0) break;
      taken += bytes;
      ++batch_.elements_seen;
      --batch_.elements_left;
    }
    if (taken == 0) return false;
    to_client.append(view.substr(0, taken));
    from_backend.consume(taken);
    if (batch_.elements_left == 0) pop_expectation();
    return true;
  }
  if (tx_.elements_left > 0 || expectations_.empty()) return false;
  if (expectations_.front().what == awaits::relay) {
    while (!expectations_.empty() && expectations_.front().what == awaits::relay && !expectations_.front().muted) {
      const std::size_t bytes = short_line(view.substr(taken));
      if (bytes == 0) break;
      taken += bytes;
      to_client.append(view.substr(taken - bytes, bytes));
      pop_expectation();
    }
    from_backend.consume(taken);
    signed_in_ = signed_in_ || taken != 0;
    return taken != 0;
  }
  if (expectations_.front().what != awaits::queued) return false;
  constexpr std::string_view queued = "+QUEUED\r\n";
  expectation& front = expectations_.front();
  while (front.n > 0 && view.substr(taken).starts_with(queued)) {
    taken += queued.size();
    ++batch_.queued_seen;
    --front.n;
  }
  if (taken == 0) return false;
  from_backend.consume(taken);
  if (front.n == 0) pop_expectation();
  return true;
}

// False: more bytes are needed to tell.
bool redis_engine::start_value(const wire::reply_head& head, std::string_view view) {
  if (head.type == '|') {  // says something about the reply behind it, and shares its way
    in_attribute_ = true;
    const bool relayed = batch_.elements_left > 0 || tx_.elements_left > 0 ||
                         (!expectations_.empty() && expectations_.front().what == awaits::relay);
    begin(head, relayed ? sink::client : sink::drop);
    return true;
  }
  const bool confirming = !expectations_.empty() && expectations_.front().what == awaits::subscription;
  if (head.type == '>' || (protocol_ == 2 && head.is_array() && (subscriptions_ > 0 || confirming))) {
    const auto kind = pubsub::kind_of(view.substr(head.bytes), head.count);
    if (kind == pubsub::message_kind::need_more) return false;
    if (head.type == '>' || kind != pubsub::message_kind::other) {
      in_push_ = true;
      push_kind_ = kind;
      const bool read = kind == pubsub::message_kind::confirmation || kind == pubsub::message_kind::invalidation;
      begin(head, read ? sink::capture : sink::client);
      return true;
    }
  }
  if (batch_.elements_left > 0 || tx_.elements_left > 0) {
    start_element(head);
    return true;
  }
  if (phase_ == phase::monitor) {
    // Its lines begin with the time; everything else answers a command.
    const bool line = head.type == '+' && !head.line.empty() && head.line[0] >= '0' && head.line[0] <= '9';
    if (!line && monitor_replies_ > 0) --monitor_replies_;
    const bool ends = !line && monitor_replies_ == 0 && std::exchange(monitor_ends_, false);
    if (ends && head.type == '+' && head.line == "RESET") reset_state();
    begin(head, sink::client);
    return true;
  }
  if (expectations_.empty()) {
    // An answer to no question: "-ERR max number of clients reached" comes like this, before the server closes.
    if (!head.is_error()) {
      unexpected("a reply to nothing");
      return true;
    }
    begin(head, sink::client);
    closing_ = true;
    return true;
  }
  start_reply(head);
  return true;
}

void redis_engine::start_reply(const wire::reply_head& head) {
  expectation& front = expectations_.front();
  switch (front.what) {
    case awaits::relay: signed_in_ = signed_in_ || !head.is_error(); [[fallthrough]];
    case awaits::subscription: begin(head, front.muted ? sink::drop : sink::client); break;
    case awaits::ours_ok:
      if (!head.is_ok()) return unexpected("DISCARD failed");
      begin(head, sink::drop);
      break;
    case awaits::unwatch:
    case awaits::select0:
    case awaits::watch:
    case awaits::select_back:
    case awaits::multi:
      arm_reply(front.what, head);
      begin(head, sink::drop);
      break;
    case awaits::peek_select0:
    case awaits::peek_select_back:
      select_reply(front.what, head);
      begin(head, sink::drop);
      break;
    case awaits::queued: start_queued(head); break;
    case awaits::exec: start_exec(head); break;
    case awaits::tx_exec: start_client_exec(head); break;
    case awaits::tx_queued:
      if (!head.is_error() && !(head.type == '+' && head.line == "QUEUED"))
        return unexpected("a command in a transaction was not queued");
      begin(head, front.muted ? sink::drop : sink::client);
      break;
    case awaits::single: start_single(head); break;
    case awaits::held_read: begin(head, front.muted ? sink::drop : sink::hold); break;
    case awaits::state_change:
      if (!head.is_error() && !head.is_ok() &&
          (change_.role == command_role::discard || change_.role == command_role::unwatch))
        return unexpected("the end of a transaction was not confirmed");
      if (!head.is_error() && !change_.inside &&
          (change_.role == command_role::exec || change_.role == command_role::discard))
        return unexpected("a transaction ended that nobody had begun");
      [[fallthrough]];
    case awaits::marks:
    case awaits::marks_behind:
    case awaits::peek:
    case awaits::probe:
    case awaits::identity:
      change_.error = head.is_error();
      begin(head, sink::capture);
      break;
    case awaits::local:
    case awaits::close: unexpected("a reply to nothing"); break;
  }
}

void redis_engine::start_element(const wire::reply_head& head) {
  if (tx_.elements_left > 0) {
    const std::size_t at = tx_.elements_seen;
    for (const auto& [position, database] : tx_.selects)
      if (position == at && head.is_ok()) database_ = database;
    return begin(head, at >= tx_.commands || tx_.muted ? sink::drop : sink::client);
  }
  const std::size_t at = batch_.elements_seen;
  if (at < batch_.prefixed) {
    if (head.is_error()) {
      // EXEC has found another right than the queue, and runs the writes all the same. What is remembered as used is
      // raised by the comparisons, as one that went back.
      static_cast<void>(mark_used(batch_.required));
      return unexpected("using up a token failed");
    }
    return begin(head, sink::drop);
  }
  if (batch_.merged && at == 1) {
    if (head.is_ok()) {
      for (std::size_t i = 1; i < batch_.commands.size(); ++i) to_client += "+OK\r\n";
    } else if (head.type == '-' && head.line.starts_with("NOPERM")) {
      batch_.merge_refused = true;  // the user's rights have changed since it was queued: EXEC looks at them again
    } else {
      return unexpected("MSET answered something else");
    }
    return begin(head, sink::drop);
  }
  if (poll_.batch) {
    if (batch_.polled && head.is_null()) {
      poll_.in_vain = true;
      return begin(head, sink::drop);
    }
    // Inside MULTI some commands say "nothing" with another null than when their time-out is over.
    if (head.is_null() && poll_.timeout) {
      if (!batch_.commands[0].muted) to_client += nil_text();
      return begin(head, sink::drop);
    }
    poll_.since.reset();
  }
  begin(head, batch_.commands[at - batch_.prefixed].muted ? sink::drop : sink::client);
}

void redis_engine::element_done() {
  if (tx_.elements_left > 0) {
    ++tx_.elements_seen;
    if (--tx_.elements_left == 0) client_exec_done();
    return;
  }
  ++batch_.elements_seen;
  if (--batch_.elements_left == 0) pop_expectation();
}

void redis_engine::begin(const wire::reply_head& head, sink where) {
  sink_ = where;
  captured_.clear();
  scanner_.begin(head);
  deliver(from_backend.view().substr(0, head.bytes));
  from_backend.consume(head.bytes);
  if (scanner_.done()) value_done();
}

void redis_engine::deliver(std::string_view bytes) {
  switch (sink_) {
    case sink::client: to_client.append(bytes); break;
    case sink::drop: break;
    case sink::hold:
      if (single_.answer.size() + bytes.size() <= held_read_bytes_max) {
        single_.answer.append(bytes);
      } else {
        single_.too_large = true;
        single_.answer = {};
        sink_ = sink::drop;
      }
      break;
    case sink::capture:
      captured_.append(bytes);
      if (captured_.size() > captured_bytes_max) unexpected("a reply too large to be read");
      break;
  }
}

void redis_engine::value_done() {
  if (in_attribute_) {
    in_attribute_ = false;
    return;
  }
  if (in_push_) {
    in_push_ = false;
    return push_done();
  }
  if (batch_.elements_left > 0 || tx_.elements_left > 0) return element_done();
  if (expectations_.empty() || closing_) return;  // MONITOR's lines
  expectation& front = expectations_.front();
  switch (front.what) {
    case awaits::relay:
    case awaits::tx_queued:
    case awaits::ours_ok:
    case awaits::unwatch:
    case awaits::select0:
    case awaits::watch:
    case awaits::select_back:
    case awaits::peek_select0:
    case awaits::peek_select_back:
    case awaits::held_read:
    case awaits::exec: return pop_expectation();
    case awaits::subscription: --subscribing_; return pop_expectation();
    case awaits::marks: {
      if (captured_ == tail_.proof) {
        arm_marks_ok_ = true;
        return pop_expectation();
      }
      const std::string raw = std::exchange(captured_, {});
      pop_expectation();
      return marks_reply(raw);
    }
    case awaits::multi: return arm_done();
    case awaits::queued:
      if (--front.n == 0) pop_expectation();
      return;
    case awaits::tx_exec: return client_exec_done();
    case awaits::single: pop_expectation(); return single_done();
    case awaits::state_change: {
      held_reply_ = std::exchange(captured_, {});
      pop_expectation();
      return on_state_reply();
    }
    case awaits::marks_behind: {
      const std::string raw = std::exchange(captured_, {});
      pop_expectation();
      return look_behind_done(raw);
    }
    case awaits::probe: {
      probe_answer_ = std::exchange(captured_, {});
      pop_expectation();
      return probe_done();
    }
    case awaits::identity: return identity_done();
    case awaits::peek: {
      const std::string raw = std::exchange(captured_, {});
      pop_expectation();
      return peek_done(raw);
    }
    case awaits::local:
    case awaits::close: return;
  }
}

void redis_engine::pop_expectation() {
  expectations_.pop_front();
  flush_locals();
}

void redis_engine::flush_locals() {
  while (!expectations_.empty()) {
    auto& front = expectations_.front();
    if (front.what == awaits::local) {
      for (; front.n != 0 && !front.muted; --front.n) {
        // What is turned away takes no room: it waits here, and say_more() goes on.
        if (front.turned_away && to_client.size() > limits::unread_step_bytes) return;
        to_client += locals_.front();
      }
      local_bytes_ -= locals_.front().size();
      locals_.pop_front();
    } else if (front.what == awaits::close) {
      closing_ = true;
    } else {
      return;
    }
    expectations_.pop_front();
  }
}

// RESP3 pushes, and RESP2's messages of a subscribed connection.
void redis_engine::push_done() {
  if (push_kind_ == pubsub::message_kind::invalidation) {
    to_client += reads_reserved_ ? captured_ : pubsub::without_reserved_keys(captured_);
    return;
  }
  if (push_kind_ != pubsub::message_kind::confirmation) return;
  to_client += captured_;
  subscriptions_ = channels_.confirmed(captured_);
  if (expectations_.empty() || expectations_.front().what != awaits::subscription) return;
  if (--expectations_.front().n != 0) return;
  --subscribing_;
  pop_expectation();
}

void redis_engine::unexpected(std::string_view what) {
  if (closing_) return;
  figures_.protocol_errors(metrics::side::backend).add();
  log::write(log::level::error, "backend connection closed", {{"gate", gate_.name}, {"detail", what}});
  closing_ = true;
}

std::string redis_engine::nil_text() const { return protocol_ == 3 ? "_\r\n" : "*-1\r\n"; }

}  // namespace fencegate::gate
