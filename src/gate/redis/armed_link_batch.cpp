// Batches: what is sent, and what the replies say of it.
#include "base/demand.hpp"
#include "gate/redis/armed_link.hpp"
#include "wire/resp_request.hpp"

#include <span>

namespace fencegate::gate {

void armed_link::send_batch() {
  demand(proves(batch.needs), "a batch leaves when all that it needs was proven");
  append_spent_marks(batch.required, batch.prefixed);
  batch.merged = unmerged_ == 0 && mergeable();
  if (unmerged_ > 0) --unmerged_;
  if (batch.merged)
    append_merged();
  else
    out += batch.bytes;
  expect({awaits::queued, false, static_cast<std::uint32_t>(batch.prefixed + batch.sent())});
  send_exec();
}

// Nothing but SETs. (Where a token is spent with them, a refused one cannot be taken back; and notes are of a whole
// batch.)
bool armed_link::mergeable() const {
  return batch.commands.size() > 2 && batch.plain_sets == batch.commands.size() && batch.prefixed == 0 &&
         batch.notes.empty() && host_.snapshot().commands->has_mset();
}

// MSET does what SETs do, one after the other, with the same events and invalidations, and costs Redis about half. The
// first one stays a SET: a user who may not SET, or a server that does not know it by this name, refuses that.
void armed_link::append_merged() {
  const std::size_t first = batch.commands.front().bytes;
  out.append(batch.bytes, 0, first);
  out += '*' + std::to_string(2 * (batch.commands.size() - 1) + 1) + "\r\n$4\r\nMSET\r\n";
  std::string_view rest = std::string_view(batch.bytes).substr(first);
  for (const auto& one : std::span(batch.commands).subspan(1)) {
    out += rest.substr(set_head_bytes, one.bytes - set_head_bytes);
    rest.remove_prefix(one.bytes);
  }
}

void armed_link::append_spent_marks(claim_mask required, std::size_t& count) {
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    const auto& one = claims_.items()[i];
    if ((required >> i & 1) == 0 || !one.rules.spends()) continue;
    if (database != 0) {
      append_select(out, 0);
      ++count;
    }
    wire::append_command_of(out, std::string_view("SET"), one.cell->key, one.digits);
    ++count;
    if (database != 0) {
      append_select(out, database);
      ++count;
    }
  }
}

void armed_link::send_exec() {
  out += "*1\r\n$4\r\nEXEC\r\n";
  expect({awaits::exec});
  arm_started_ = host_.now();
  append_arm_tail(claims_.armable());
  at_ = state::batch;
}

// Anything but QUEUED or an error would mean that the command ran outside our MULTI.
void armed_link::start_queued(const wire::reply_head& head) {
  const std::size_t at = batch.queued_seen++;
  if (head.type == '-') {
    const std::string why(head.line);
    if (batch.is_ours(at)) {
      batch.abort_text = why;
    } else if (batch.merged && at == 1) {
      batch.merge_refused = true;
      // It is no matter of the command or of a key: each would be told the same.
      if (why == batch.commands[0].error && is_native_error(why))
        for (auto& one : batch.commands) one.error = why;
    } else {
      batch.commands[at - batch.prefixed].error = why;
    }
  } else if (head.type != '+' || head.line != "QUEUED") {
    return unexpected("a batch was not queued");
  }
  begin(head, sink::drop);
}

void armed_link::start_exec(const wire::reply_head& head) {
  if (head.is_array()) {
    if (static_cast<std::size_t>(head.count) != batch.prefixed + batch.sent() + batch.suffixed)
      return unexpected("EXEC answered another number of commands");
    batch.outcome = write_batch::end::executed;
    return begin_elements(head);
  }
  if (head.is_null()) {
    batch.outcome = write_batch::end::nil;
  } else if (head.type == '-' && head.line.starts_with("EXECABORT")) {
    batch.outcome = write_batch::end::aborted;
    if (batch.abort_text.empty()) batch.abort_text = std::string(head.line);
  } else {
    return unexpected("EXEC failed; the transaction's state is unknown");
  }
  begin(head, sink::drop);
}

void armed_link::start_batch_element(const wire::reply_head& head) {
  const std::size_t at = elements_seen_;
  if (batch.is_ours(at)) {
    if (head.is_error()) {
      // EXEC has found another right than the queue, and runs the writes all the same. What is remembered as used is
      // raised by the comparisons, as one that went back.
      static_cast<void>(mark_spent(batch.required));
      return unexpected("spending a token failed");
    }
    return begin(head, sink::drop);
  }
  if (batch.merged && at == 1) {
    if (head.is_ok()) {
      for (std::size_t i = 1; i < batch.commands.size(); ++i) answers_ += "+OK\r\n";
    } else if (head.type == '-' && head.line.starts_with("NOPERM")) {
      batch.merge_refused = true;  // the user's rights have changed since it was queued: EXEC looks at them again
    } else {
      return unexpected("MSET answered something else");
    }
    return begin(head, sink::drop);
  }
  if (batch.polls && user_.on_polled(head)) return;
  begin(head, batch.commands[at - batch.prefixed].muted ? sink::drop : sink::answers);
}

std::size_t armed_link::mark_spent(claim_mask required) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    auto& one = claims_.items()[i];
    if ((required >> i & 1) == 0 || !one.rules.spends()) continue;
    one.status = claim_status::used;
    one.mark = one.presented;
    marks_.saw_since(asked_, one.cell, one.presented);
    ++used;
  }
  return used;
}

}  // namespace fencegate::gate
