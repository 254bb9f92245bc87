// Batches: what leaves, and what its end means for the commands in it.
#include "base/limits.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>
#include <span>

namespace fencegate::gate {

namespace {

constexpr std::chrono::milliseconds poll_delay_min{2}, poll_delay_max{250};
// Where somebody says when something comes. So soon it is noticed that nobody has, and that the mark has risen meanwhile.
constexpr std::chrono::milliseconds poll_delay_watched{2'000};

}  // namespace

void redis_engine::send_batch() {
  auto& batch = link_.batch;
  const bool fenced = std::any_of(batch.notes.begin(), batch.notes.end(), [](const auto& one) { return !one.reads; }) ||
                      std::any_of(batch.commands.begin(), batch.commands.end(), [](const auto& c) { return c.counts; });
  reads_in_a_row_ = fenced ? 0 : reads_in_a_row_ + 1;
  note_command();
  link_.send_batch();
}

// The batch's EXEC and the arm behind it were answered.
void redis_engine::on_batch() {
  if (std::exchange(measured_, false)) host_.own_write_answered();
  const bool polled_in_vain = std::exchange(poll_.in_vain, false);
  if (link_.batch.outcome == write_batch::end::executed) {
    batch_attempts_ = 0;
    if (polled_in_vain) {
      const bool muted = link_.batch.commands.front().muted;
      const std::string bytes = std::move(std::exchange(link_.batch, write_batch{}).bytes);
      return wait_and_poll(bytes, muted);
    }
    const auto applied = std::span(link_.batch.commands).first(link_.batch.applied());
    const auto admitted = std::count_if(applied.begin(), applied.end(), [](const batched& one) { return one.counts; });
    if (admitted != 0) stats_.checks(metrics::check_outcome::admitted).add(static_cast<std::size_t>(admitted));
    book(link_.batch.notes, link_.batch.required);
    stats_.raises_total.add(link_.mark_spent(link_.batch.required));
    if (!link_.batch.merge_refused) {
      link_.batch.clear();
      return link_.finish_arm();
    }
    link_.batch.bytes.erase(0, link_.batch.commands.front().bytes);
    link_.batch.commands.erase(link_.batch.commands.begin());
  }
  if (link_.batch.streamed) return finish_streamed_batch();
  rewind_batch();
  link_.finish_arm();
}

void redis_engine::wait_and_poll(const std::string& bytes, bool muted) {
  from_client.prepend(bytes);
  decoder_.reset_progress();
  replay_.push_front({replayed::route::normal, muted, {}});
  if (!link_.is_open()) link_.finish_arm();
  // Healing: the command goes on behind it, or has gone on already.
  if (phase_ != phase::ready || link_.busy() || !poll_.since) return;
  phase_ = phase::waiting;
  const bool watched = host_.wait_for_keys(link_.database, poll_.keys);
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
  const bool aborted = link_.batch.outcome == write_batch::end::aborted;
  const bool refused = link_.batch.refused();
  if (!refused) ++batch_attempts_;
  if (link_.batch.merged && refused) link_.merge_no_more();
  const bool give_up = (aborted && !refused) || batch_attempts_ > limits::batch_attempts_max;
  std::deque<replayed> known;
  for (auto& one : link_.batch.commands) {
    replayed next{replayed::route::normal, one.muted, {}};
    if (give_up) {
      next.how = replayed::route::give_up;
      next.text = aborted ? link_.batch.abort_text : std::string(marks_move);
    } else if (one.goes_alone()) {
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
  from_client.prepend(link_.batch.bytes);
  decoder_.reset_progress();
  link_.batch = write_batch{};
}

}  // namespace fencegate::gate
