// What each reply is, and where its bytes go.
#include "gate/redis/armed_link.hpp"

#include "base/demand.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {

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

armed_link::armed_link(link_user& user, engine_host& host, const settings::redis_gate& gate,
                       backend::mark_memory& marks, metrics::gate& stats, claims& proves, std::string& answers)
    : user_(user), host_(host), gate_(gate), marks_(marks), stats_(stats), claims_(proves), answers_(answers) {}

std::string_view armed_link::error_text(std::string_view reply) {
  if (reply.starts_with('-')) reply.remove_prefix(1);
  return reply.substr(0, reply.find("\r\n"));
}

// Errors of the server's own reach the client as they are; what only the gate cares about is `unavailable`.
bool armed_link::is_native_error(std::string_view text) {
  constexpr std::string_view native[] = {"NOAUTH", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN",
                                         "MOVED",  "ASK",     "OOM",  "MISCONF",  "NOREPLICAS", "TRYAGAIN"};
  return std::find(std::begin(native), std::end(native), text.substr(0, text.find(' '))) != std::end(native);
}

void armed_link::reset() {
  database = 0;
  signed_in = false;
  armed_mask_ = 0;
  arm_error_.clear();
  watching_ = false;
  at_ = state::open;
}

void armed_link::take_back() {
  at_ = state::open;
  armed_mask_ = 0;
}

void armed_link::read() {
  while (!closed_ && !in.empty()) {
    const std::string_view view = in.view();
    if (!scanner_.done()) {
      const auto step = scanner_.advance(view);
      deliver(view.substr(0, step.consumed));
      in.consume(step.consumed);
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
}

// Most replies of a batch are +QUEUED, then short lines: whole runs of them are taken at once. Everything else, and
// everything that is not as expected, goes the long way.
bool armed_link::take_run(std::string_view view) {
  if (elements_left_ > 0) return next_is(awaits::exec) && take_elements(view);
  if (expectations_.empty()) return false;
  std::size_t taken = 0;
  if (expectations_.front().what == awaits::relay) {
    while (!expectations_.empty() && expectations_.front().what == awaits::relay && !expectations_.front().muted) {
      const std::size_t bytes = short_line(view.substr(taken));
      if (bytes == 0) break;
      taken += bytes;
      answers_.append(view.substr(taken - bytes, bytes));
      pop_expectation();
    }
    in.consume(taken);
    signed_in = signed_in || taken != 0;
    return taken != 0;
  }
  if (expectations_.front().what != awaits::queued) return false;
  constexpr std::string_view queued = "+QUEUED\r\n";
  expectation& front = expectations_.front();
  while (front.n > 0 && view.substr(taken).starts_with(queued)) {
    taken += queued.size();
    ++batch.queued_seen;
    --front.n;
  }
  if (taken == 0) return false;
  in.consume(taken);
  if (front.n == 0) pop_expectation();
  return true;
}

bool armed_link::take_elements(std::string_view view) {
  if (batch.polls || batch.muted || batch.merged || batch.suffixed != 0 || elements_seen_ < batch.prefixed)
    return false;
  std::size_t taken = 0;
  while (elements_left_ > 0) {
    const std::size_t bytes = short_line(view.substr(taken));
    if (bytes == 0) break;
    taken += bytes;
    ++elements_seen_;
    --elements_left_;
  }
  if (taken == 0) return false;
  answers_.append(view.substr(0, taken));
  in.consume(taken);
  if (elements_left_ == 0) pop_expectation();
  return true;
}

// False: more bytes are needed to tell.
bool armed_link::start_value(const wire::reply_head& head, std::string_view view) {
  if (head.type == '|') {  // says something about the reply behind it, and shares its way
    in_attribute_ = true;
    begin(head, elements_left_ > 0 || next_is(awaits::relay) ? sink::answers : sink::drop);
    return true;
  }
  if (head.type == '>' || head.is_array()) {
    const auto what = user_.on_push(head, view.substr(head.bytes));
    if (what == link_user::push::need_more) return false;
    if (what == link_user::push::begun) return true;
    if (head.type == '>') {
      unexpected("a push to nobody");
      return true;
    }
  }
  if (elements_left_ > 0) {
    start_element(head);
    return true;
  }
  if (!expectations_.empty()) {
    start_reply(head);
    return true;
  }
  if (user_.on_unasked(head)) return true;
  // An answer to no question: "-ERR max number of clients reached" comes like this, before the server closes.
  if (!head.is_error()) {
    unexpected("a reply to nothing");
    return true;
  }
  begin(head, sink::answers);
  closed_ = true;
  return true;
}

void armed_link::start_reply(const wire::reply_head& head) {
  const expectation& front = expectations_.front();
  switch (front.what) {
    case awaits::relay:
      signed_in = signed_in || !head.is_error();
      return begin(head, front.muted ? sink::drop : sink::answers);
    case awaits::ours_ok:
      if (!head.is_ok()) return unexpected("DISCARD failed");
      return begin(head, sink::drop);
    case awaits::unwatch:
    case awaits::select0:
    case awaits::watch:
    case awaits::select_back:
    case awaits::multi: arm_reply(front.what, head); return begin(head, sink::drop);
    case awaits::look_select0:
    case awaits::look_select_back: select_reply(front.what, head); return begin(head, sink::drop);
    case awaits::queued: return start_queued(head);
    case awaits::exec: return start_exec(head);
    case awaits::marks:
    case awaits::look: return begin(head, sink::capture);
    case awaits::state_change:
    case awaits::subscription:
    case awaits::tx_queued:
    case awaits::tx_exec:
    case awaits::single:
    case awaits::held_read:
    case awaits::marks_behind:
    case awaits::probe:
    case awaits::identity:
    case awaits::greeting:
    case awaits::renewal:
    case awaits::renewal_of_aof: return user_.on_reply(front, head);
    case awaits::local:
    case awaits::close: return unexpected("a reply to nothing");
  }
}

void armed_link::begin_elements(const wire::reply_head& head) {
  in.consume(head.bytes);
  elements_left_ = static_cast<std::size_t>(head.count);
  elements_seen_ = 0;
  if (elements_left_ != 0) return;
  const auto what = expectations_.front().what;
  pop_expectation();
  if (what == awaits::tx_exec) user_.on_reply_end(what, {});
}

void armed_link::start_element(const wire::reply_head& head) {
  if (next_is(awaits::exec)) return start_batch_element(head);
  begin(head, user_.on_element(elements_seen_, head));
}

void armed_link::element_done() {
  ++elements_seen_;
  if (--elements_left_ != 0) return;
  const auto what = expectations_.front().what;
  pop_expectation();
  if (what == awaits::tx_exec) user_.on_reply_end(what, {});
}

void armed_link::begin(const wire::reply_head& head, sink where) {
  sink_ = where;
  captured_.clear();
  scanner_.begin(head);
  deliver(in.view().substr(0, head.bytes));
  in.consume(head.bytes);
  if (scanner_.done()) value_done();
}

void armed_link::deliver(std::string_view bytes) {
  switch (sink_) {
    case sink::answers: answers_.append(bytes); break;
    case sink::drop: break;
    case sink::hold: user_.hold(bytes); break;
    case sink::capture:
      captured_.append(bytes);
      if (captured_.size() > captured_bytes_max) unexpected("a reply too large to be read");
      break;
  }
}

void armed_link::value_done() {
  if (in_attribute_) {
    in_attribute_ = false;
    return;
  }
  if (in_push_) {
    in_push_ = false;
    return user_.on_push_end(captured_);
  }
  if (elements_left_ > 0) return element_done();
  if (expectations_.empty() || closed_) return;  // MONITOR's lines
  expectation& front = expectations_.front();
  const auto what = front.what;
  switch (what) {
    case awaits::relay:
    case awaits::tx_queued:
    case awaits::ours_ok:
    case awaits::unwatch:
    case awaits::select0:
    case awaits::watch:
    case awaits::select_back:
    case awaits::look_select0:
    case awaits::look_select_back:
    case awaits::held_read:
    case awaits::renewal:
    case awaits::exec: return pop_expectation();
    case awaits::queued:
      if (--front.n == 0) pop_expectation();
      return;
    case awaits::marks: {
      if (captured_ == tail_.proof) {
        marks_ok_ = true;
        remember_proven();
        return pop_expectation();
      }
      const std::string raw = std::exchange(captured_, {});
      pop_expectation();
      return marks_reply(raw);
    }
    case awaits::multi: return arm_done();
    case awaits::look: {
      const std::string raw = std::exchange(captured_, {});
      pop_expectation();
      return look_done(raw);
    }
    case awaits::state_change:
    case awaits::subscription:
    case awaits::tx_exec:
    case awaits::single:
    case awaits::marks_behind:
    case awaits::probe:
    case awaits::identity:
    case awaits::renewal_of_aof:
    case awaits::greeting: {
      std::string text = std::exchange(captured_, {});
      pop_expectation();
      return user_.on_reply_end(what, std::move(text));
    }
    case awaits::local:
    case awaits::close: return;
  }
}

void armed_link::expect(expectation one) {
  const bool is_command = one.what != awaits::local && one.what != awaits::close;
  if (is_command) commands_expected_ += one.what == awaits::subscription ? 1 : one.n;
  expectations_.push_back(one);
}

void armed_link::pop_expectation() {
  expectations_.pop_front();
  if (next_is(awaits::local) || next_is(awaits::close)) user_.on_turn();
}

void armed_link::unexpected(std::string_view what) {
  if (closed_) return;
  stats_.protocol_errors(metrics::side::backend).add();
  log::write(log::level::error, "backend connection closed", {{"gate", gate_.name}, {"detail", what}});
  closed_ = true;
}

void armed_link::invariants(bool over) const {
  if (closed_) return;
  demand((at_ != state::arming && at_ != state::batch && at_ != state::tailed) || !expectations_.empty(),
         "what was sent is answered");
  if (armed()) {
    demand(expectations_.empty() || next_is(awaits::local) || over, "nothing is in flight on an armed link");
    demand(armed_mask_ == arm_mask_ && tail_.claims == claims_.generation(), "an armed link has proven these claims");
    demand(proves(batch.needs), "a batch needs no more than was proven");
  }
  demand(elements_left_ == 0 || next_is(awaits::exec) || next_is(awaits::tx_exec), "elements of EXEC belong to one");
}

}  // namespace fencegate::gate
