#include "gate/shared_writes.hpp"

#include "wire/resp_reply.hpp"

#include <utility>

namespace fencegate::gate {
namespace {

// How long the whole reply at the front is; 0: there is none yet.
std::size_t whole_reply(std::string_view view) {
  wire::reply_head head;
  if (wire::read_head(view, head) != wire::head_status::complete) return 0;
  wire::value_scanner scanner;
  scanner.begin(head);
  if (scanner.done()) return head.bytes;
  const auto step = scanner.advance(view.substr(head.bytes));
  return scanner.done() ? head.bytes + step.consumed : 0;
}

}  // namespace

shared_writes::shared_writes(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks,
                             metrics::gate& figures, const likeness& like)
    : engine(host, gate, marks, figures), greetings_left_(like.commands), server_(like.server) {
  engine.serve_others();
  engine.from_client.append(like.bytes);
}

void shared_writes::add(std::string_view command, std::weak_ptr<shared_writer> from) {
  waiting_bytes_ += command;
  waiting_.push_back({std::move(from), command.size()});
}

// One batch at a time, and nothing while the marks are not proven: until then a writer can have its write back.
void shared_writes::feed() {
  if (!ready() || broken() || waiting_.empty()) return;
  if (engine.disarmed()) {
    // An arm that was in vain is not repeated: their own links tell the writers why.
    if (std::exchange(arming_, !arming_) || !engine.arm_ahead()) {
      arming_ = false;
      give_back();
    }
    return;
  }
  if (!engine.armed()) return;
  arming_ = false;
  std::size_t at = 0;
  for (auto& next : std::exchange(waiting_, {})) {
    const auto from = next.from.lock();
    if (from != nullptr && !from->gone()) {
      engine.from_client.append(std::string_view(waiting_bytes_).substr(at, next.bytes));
      sent_.push_back(std::move(next));
    }
    at += next.bytes;
  }
  waiting_bytes_.clear();
  engine.resume();
}

void shared_writes::on_backend_bytes(std::string_view bytes) {
  engine.from_backend.append(bytes);
  engine.on_backend_bytes();
  engine.from_backend.release();
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
  answers_ += engine.to_client;
  engine.to_client.clear();
  std::string_view left = answers_;
  while (const std::size_t bytes = whole_reply(left)) {
    const std::string_view answer = left.substr(0, bytes);
    left.remove_prefix(bytes);
    if (greetings_left_ > 0) {
      const bool last = --greetings_left_ == 0;
      broken_ = broken_ || answer.starts_with('-') || (last && redis_engine::server_in(answer) != server_);
      continue;
    }
    if (sent_.empty()) {
      broken_ = true;  // an answer to nothing
      break;
    }
    const auto to = sent_.front().from.lock();
    sent_.pop_front();
    ++answered_;
    if (to == nullptr) continue;
    // Rejections are the gate's own, Redis has no errors of these names: nothing was applied.
    if (answer.starts_with("-FENCE"))
      to->on_shared(std::nullopt);
    else
      to->on_shared(answer);
  }
  answers_.erase(0, answers_.size() - left.size());
}

void shared_writes::end() {
  broken_ = true;
  const auto sent = std::exchange(sent_, {});
  // What stands whole in front of the engine has come back from Redis unapplied.
  std::size_t unsent = engine.from_client.size();
  std::size_t lost = sent.size();
  while (lost > 0 && sent[lost - 1].bytes <= unsent) unsent -= sent[--lost].bytes;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto to = sent[i].from.lock();
    if (to == nullptr) continue;
    if (i < lost)
      to->on_shared_lost();
    else
      to->on_shared(std::nullopt);
  }
  give_back();
}

}  // namespace fencegate::gate
