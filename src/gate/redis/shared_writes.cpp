#include "gate/redis/shared_writes.hpp"

#include "base/limits.hpp"
#include "wire/resp_reply.hpp"

#include <utility>

namespace fencegate::gate {
namespace {

// How long the whole reply at the front is, with the attribute in front of it; 0: there is none yet.
std::size_t whole_reply(std::string_view view) {
  wire::reply_head head;
  if (wire::read_head(view, head) != wire::head_status::complete) return 0;
  wire::value_scanner scanner;
  scanner.begin(head);
  const auto step = scanner.done() ? wire::value_scanner::step{} : scanner.advance(view.substr(head.bytes));
  if (!scanner.done()) return 0;
  const std::size_t bytes = head.bytes + step.consumed;
  if (head.type != '|') return bytes;
  const std::size_t behind = whole_reply(view.substr(bytes));
  return behind == 0 ? 0 : bytes + behind;
}

// Other errors pass, as those of a server that is full or loads its data.
bool refuses_for_good(std::string_view answer) {
  return answer.starts_with("-NOPERM") || answer.starts_with("-WRONGPASS") || answer.starts_with("-ERR unknown");
}

}  // namespace

// Its writers have raised the marks: their claims are held. What the marks are, the arm tells.
shared_writes::shared_writes(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks,
                             metrics::gate& stats, const session_profile& like)
    : host_(host),
      stats_(stats),
      claims_(gate),
      link_(*this, host, gate, marks, stats, claims_, answers_),
      greetings_left_(like.commands),
      server_(like.server) {
  claims_.bind(like.tag, marks);
  for (auto& one : claims_.items()) one.status = claim_status::held;
  link_.database = like.database;
  link_.out = like.bytes;
  for (std::size_t i = 0; i < like.commands; ++i) link_.expect({awaits::greeting});
}

// ── what the server says ────────────────────────────────────────────────────────────────────────────────────────────

void shared_writes::on_backend_bytes(std::string_view bytes) {
  link_.in.append(bytes);
  link_.read();
  link_.in.release();
  read_answers();
  link_.invariants(false, false);
}

void shared_writes::on_reply(const expectation& /*front*/, const wire::reply_head& head) {
  link_.begin(head, sink::capture);
}

// The last greeting is INFO server. A tag that was overtaken meanwhile is of no use to anybody.
void shared_writes::on_reply_end(awaits /*what*/, std::string text) {
  const bool last = --greetings_left_ == 0;
  const bool is_error = text.starts_with('-') || text.starts_with('!');
  if (refusal_.empty() && refuses_for_good(text)) refusal_ = armed_link::error_text(text);
  broken_ = broken_ || is_error || (last && (server_in(text).run_id != server_ || !is_held()));
}

// Each whole answer is that of the first write that has none.
void shared_writes::read_answers() {
  std::string_view left = answers_;
  while (const std::size_t bytes = whole_reply(left)) {
    if (sent_.empty()) {
      broken_ = true;  // an answer to nothing
      break;
    }
    tell(std::string(left.substr(0, bytes)));
    left.remove_prefix(bytes);
  }
  answers_.erase(0, answers_.size() - left.size());
}

void shared_writes::tell(std::optional<std::string> answer) {
  ++answered_;
  told_.push_back({std::move(sent_.front()), std::move(answer)});
  sent_.pop_front();
}

void shared_writes::on_batch() {
  auto& batch = link_.batch;
  read_answers();
  const std::size_t applied = batch.applied();
  if (sent_.size() != batch.commands.size() - applied || !answers_.empty())
    return link_.unexpected("EXEC answered something else");
  if (batch.merged && batch.refused()) link_.merge_no_more();
  if (applied != 0) stats_.checks(metrics::check_outcome::admitted).add(applied);
  for (std::size_t i = applied; i < batch.commands.size(); ++i) {
    const auto& one = batch.commands[i];
    const bool goes_back = one.error.empty() || one.goes_alone();
    tell(goes_back ? std::nullopt : std::optional("-" + one.error + "\r\n"));
  }
  batch.clear();
  link_.finish_arm();
}

// ── what its writers want ───────────────────────────────────────────────────────────────────────────────────────────

void shared_writes::add(std::string_view command, const batched& as, std::weak_ptr<shared_writer> from) {
  waiting_bytes_ += command;
  waiting_.push_back({std::move(from), as});
}

// As far as it is known, its marks are its tokens.
bool shared_writes::is_held() {
  claims_.learn_from_memory();
  claims_.learn_that_they_were_raised();
  return !claims_.items().empty() && !claims_.refusal(~claim_mask{0});
}

bool shared_writes::arm() {
  if (!host_.snapshot().ready || !is_held()) return false;
  link_.arm(false);
  return true;
}

// One batch at a time, and nothing while the marks are not proven: until then a writer can have its write back.
void shared_writes::feed() {
  if (!ready() || broken() || waiting_.empty()) return;
  if (link_.is_open()) {
    // An arm that was in vain is not repeated: their own links tell the writers why.
    if (std::exchange(arming_, !arming_) || !arm()) {
      arming_ = false;
      give_back();
    }
    return;
  }
  if (!link_.armed()) return;
  arming_ = false;
  auto& batch = link_.batch;
  std::size_t at = 0;
  while (!waiting_.empty() && batch.commands.size() < limits::batch_commands_max) {
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    const std::size_t bytes = next.as.bytes;
    if (const auto from = next.from.lock(); from != nullptr && !from->gone()) {
      batch.bytes.append(waiting_bytes_, at, bytes);
      batch.add(std::move(next.as));
      sent_.push_back(std::move(next.from));
    }
    at += bytes;
  }
  waiting_bytes_.erase(0, at);
  if (batch.empty()) return;
  batch.needs = batch.required = claims_.enforced();
  link_.send_batch();
}

bool shared_writes::take_back(const shared_writer& from) {
  for (auto& one : waiting_) {
    if (one.from.lock().get() != &from) continue;
    one.from.reset();
    return true;
  }
  return false;
}

void shared_writes::give_back() {
  waiting_bytes_.clear();
  for (const auto& one : std::exchange(waiting_, {}))
    if (const auto to = one.from.lock()) to->on_shared(std::nullopt);
}

void shared_writes::hand_out() {
  for (auto& one : std::exchange(told_, {}))
    if (const auto to = one.to.lock()) to->on_shared(one.answer);
}

void shared_writes::end() {
  broken_ = true;
  for (const auto& one : std::exchange(sent_, {}))
    if (const auto to = one.lock()) to->on_shared_lost();
  give_back();
}

}  // namespace fencegate::gate
