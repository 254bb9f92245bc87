// Batches: what is sent, what the replies say of it, and what their end means.
#include "base/demand.hpp"
#include "base/limits.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>
#include <span>

namespace fencegate::gate {

namespace {

constexpr std::chrono::milliseconds poll_delay_min{2}, poll_delay_max{250};
// Where somebody says when something comes. So soon it is noticed that nobody has, and that the mark has risen meanwhile.
constexpr std::chrono::milliseconds poll_delay_watched{2'000};
// A user who may SET but not MSET has one refusal in so many batches.
constexpr int batches_unmerged = 64;

}  // namespace

void redis_engine::send_batch() {
#ifdef FENCEGATE_BROKEN_CHECK_THEN_FORWARD
  to_backend += batch_.bytes;
  for (const auto& one : batch_.commands) expectations_.push_back({awaits::relay, one.muted});
  batch_ = batch{};
  poll_.batch = false;
  phase_ = phase::open;
  return;
#endif
  demand((batch_.needs & ~armed_mask_) == 0, "a batch leaves when all that it needs was proven");
  const bool fenced =
      std::any_of(batch_.notes.begin(), batch_.notes.end(), [](const auto& one) { return !one.reads; }) ||
      std::any_of(batch_.commands.begin(), batch_.commands.end(), [](const auto& c) { return c.counts; });
  reads_in_a_row_ = fenced ? 0 : reads_in_a_row_ + 1;
#ifdef FENCEGATE_BROKEN_ENVELOPE
  send_envelope();
  to_backend += "*1\r\n$5\r\nMULTI\r\n";
  expectations_.push_back({awaits::relay, true});
#endif
  append_uses(batch_.required, batch_.prefixed);
  batch_.merged = unmerged_ == 0 && mergeable();
  if (unmerged_ > 0) --unmerged_;
  if (batch_.merged)
    append_merged();
  else
    to_backend += batch_.bytes;
  expectations_.push_back({awaits::queued, false, static_cast<std::uint32_t>(batch_.prefixed + batch_.sent())});
  send_exec();
}

// Nothing but SETs. (Where a token is used up with them, a refused one cannot be taken back; and notes are of a whole
// batch.)
bool redis_engine::mergeable() const {
  return batch_.commands.size() > 2 && batch_.plain_sets == batch_.commands.size() && batch_.prefixed == 0 &&
         batch_.notes.empty() && host_.picture().commands->has_mset();
}

// MSET does what SETs do, one after the other, with the same events and invalidations, and costs Redis about half. The
// first one stays a SET: a user who may not SET, or a server that does not know it by this name, refuses that.
void redis_engine::append_merged() {
  const std::size_t first = batch_.commands.front().bytes;
  to_backend.append(batch_.bytes, 0, first);
  to_backend += '*' + std::to_string(2 * (batch_.commands.size() - 1) + 1) + "\r\n$4\r\nMSET\r\n";
  std::string_view rest = std::string_view(batch_.bytes).substr(first);
  for (const auto& one : std::span(batch_.commands).subspan(1)) {
    to_backend += rest.substr(set_head_bytes, one.bytes - set_head_bytes);
    rest.remove_prefix(one.bytes);
  }
}

// equal_token: reject: the token is used up in the same transaction as the writes that it admits.
void redis_engine::append_uses(claim_mask required, std::size_t& prefixed) {
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    const auto& one = claims_.items()[i];
    if ((required >> i & 1) == 0 || one.rules.equal != fence::equal_token::reject) continue;
    if (database_ != 0) {
      append_select(to_backend, 0);
      ++prefixed;
    }
    wire::append_command_of(to_backend, std::string_view("SET"), one.cell->key, one.digits);
    ++prefixed;
    if (database_ != 0) {
      append_select(to_backend, database_);
      ++prefixed;
    }
  }
}

void redis_engine::send_exec() {
  to_backend += "*1\r\n$4\r\nEXEC\r\n";
  expectations_.push_back({awaits::exec});
  arm_started_ = host_.now();
  append_arm_tail(claims_.armable());
  phase_ = phase::batch;
  shared_last_ = false;
}

// Anything but QUEUED or an error would mean that the command ran outside our MULTI.
void redis_engine::start_queued(const wire::reply_head& head) {
  const std::size_t at = batch_.queued_seen++;
  if (head.type == '-') {
    const std::string why(head.line);
    if (at < batch_.prefixed) {
      batch_.abort_text = why;
    } else if (batch_.merged && at == 1) {
      batch_.merge_refused = true;
      // It is no matter of the command or of a key: each would be told the same.
      if (why == batch_.commands[0].error && is_native_error(why))
        for (auto& one : batch_.commands) one.error = why;
    } else {
      batch_.commands[at - batch_.prefixed].error = why;
    }
  } else if (head.type != '+' || head.line != "QUEUED") {
    return unexpected("a batch was not queued");
  }
  begin(head, sink::drop);
}

void redis_engine::start_exec(const wire::reply_head& head) {
  if (head.is_array()) {
    if (static_cast<std::size_t>(head.count) != batch_.prefixed + batch_.sent())
      return unexpected("EXEC answered another number of commands");
    from_backend.consume(head.bytes);
    batch_.elements_left = static_cast<std::size_t>(head.count);
    batch_.outcome = batch::end::executed;
    return;
  }
  if (head.is_null()) {
    batch_.outcome = batch::end::nil;
  } else if (head.type == '-' && head.line.starts_with("EXECABORT")) {
    batch_.outcome = batch::end::aborted;
    if (batch_.abort_text.empty()) batch_.abort_text = std::string(head.line);
  } else {
    return unexpected("EXEC failed; the transaction's state is unknown");
  }
  begin(head, sink::drop);
}

// The batch's EXEC and the arm behind it were answered.
void redis_engine::finish_batch() {
  poll_.batch = false;
  const bool polled_in_vain = std::exchange(poll_.in_vain, false);
  if (batch_.outcome == batch::end::executed) {
    batch_attempts_ = 0;
    if (polled_in_vain) {
      const bool muted = batch_.commands.front().muted;
      const std::string bytes = std::move(std::exchange(batch_, batch{}).bytes);
      return wait_and_poll(bytes, muted);
    }
    const auto applied = std::span(batch_.commands).first(batch_.merge_refused ? 1 : batch_.commands.size());
    const auto admitted = std::count_if(applied.begin(), applied.end(), [](const batched& one) { return one.counts; });
    if (admitted != 0) figures_.checks(metrics::check_outcome::admitted).add(static_cast<std::size_t>(admitted));
    book(batch_.notes, batch_.required);
    figures_.raises_total.add(mark_used(batch_.required));
    if (!batch_.merge_refused) {
      batch_.clear();
      return finish_arm();
    }
    batch_.bytes.erase(0, batch_.commands.front().bytes);
    batch_.commands.erase(batch_.commands.begin());
  }
  if (batch_.streamed) return finish_streamed_batch();
  rewind_batch();
  finish_arm();
}

// → how many tokens
std::size_t redis_engine::mark_used(claim_mask required) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    auto& one = claims_.items()[i];
    if ((required >> i & 1) == 0 || one.rules.equal != fence::equal_token::reject) continue;
    one.status = claim_status::used;
    one.mark = one.presented;
    marks_.saw_since(listings_, one.cell, one.presented);
    ++used;
  }
  return used;
}

void redis_engine::wait_and_poll(const std::string& bytes, bool muted) {
  from_client.prepend(bytes);
  decoder_.reset_progress();
  replay_.push_front({replayed::route::normal, muted, {}});
  if (phase_ != phase::open) finish_arm();
  // Healing: the command goes on behind it, or has gone on already.
  if ((phase_ != phase::armed && phase_ != phase::open) || !poll_.since) return;
  phase_ = phase::waiting;
  const bool watched = host_.wait_for_keys(database_, poll_.keys);
  if (!watched) poll_.delay = std::clamp(poll_.delay + poll_.delay / 2, poll_delay_min, poll_delay_max);
  auto delay = watched ? poll_delay_watched : poll_.delay;
  if (poll_.timeout && poll_.timeout->count() != 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*poll_.since + *poll_.timeout - host_.now());
    delay = std::clamp(left, std::chrono::milliseconds(1), delay);
  }
  poll_.sleeps = true;
  host_.set_timer(delay);
}

// Nothing of what the batch holds was applied. Its commands go back to the front of the input and are judged again with
// what is known by now: stale ones are rejected, those that Redis refused to queue get its answer, the others go again.
void redis_engine::rewind_batch() {
  const bool aborted = batch_.outcome == batch::end::aborted;
  const bool refused = batch_.merge_refused || std::any_of(batch_.commands.begin(), batch_.commands.end(),
                                                           [](const batched& c) { return !c.error.empty(); });
  if (!refused) ++batch_attempts_;
  if (batch_.merged && refused) unmerged_ = batches_unmerged;
  const bool give_up = (aborted && !refused) || batch_attempts_ > limits::batch_attempts_max;
  std::deque<replayed> known;
  for (auto& one : batch_.commands) {
    replayed next{replayed::route::normal, one.muted, {}};
    const bool alone = one.error.starts_with("OOM") && !one.keeps_oom;
    const bool goes_back = serves_others_ && (one.error.empty() || alone);  // to its session, as unavailable
    if (give_up || goes_back) {
      next.how = replayed::route::give_up;
      next.text = aborted ? batch_.abort_text : std::string(marks_move);
    } else if (alone) {
      next.how = replayed::route::alone;
    } else if (!one.error.empty()) {
      next.how = replayed::route::answer;
      next.text = "-" + one.error + "\r\n";
    }
    known.push_back(std::move(next));
  }
  if (give_up) batch_attempts_ = 0;
  if (!replay_.empty()) known.insert(known.end(), replay_.begin(), replay_.end());
  replay_ = std::move(known);
  from_client.prepend(batch_.bytes);
  decoder_.reset_progress();
  batch_ = batch{};
}

}  // namespace fencegate::gate
