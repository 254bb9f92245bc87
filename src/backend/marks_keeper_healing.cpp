// Marks that the backend lost are put back.
#include "backend/marks_keeper.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/random_id.hpp"

#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

// There is no epoch: marks are put back under a text of their own, which all share who remember some. A second loss takes
// that away, too, and then nothing of this healing counts. A process that has just started waits for their end.
void marks_keeper::begin_healing() {
  announce_healing([this](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return unfit("marks cannot be put back: " + words_of(reply));
    if (reply->null) return check_epoch();  // there is one by now
    const auto now = shared_.look();
    heal_all({healing_key, std::string(reply->text), now.epoch, now.lowerings});
  });
}

void marks_keeper::announce_healing(reply_callback done) {
  link_.send({"EVAL", join_healing, "3", epoch_key, healing_key, healing_busy_key, random_id(), random_id()},
             std::move(done));
}

void marks_keeper::heal_all(epoch_guard guard) {
  const bool without_epoch = guard.key == healing_key;
  state_ = without_epoch ? state::at_work : state::healing;
  doubted_ = false;
  shared_.marks.note_loss();
  shared_.marks.note_listing();
  if (without_epoch) static_cast<void>(shared_.marks.take_late());  // they are among all
  const auto healing = std::make_shared<mark_healing>(std::move(guard), mark_memory::cells());
  healing->and_all(mark_memory::walk(shared_.marks));
  heal_more(healing);
}

void marks_keeper::heal_late() {
  auto late = shared_.marks.take_late();
  std::erase_if(late.these, [](const auto& cell) { return !cell->seen(); });
  if (late.these.empty() && !late.all) return;
  const auto now = shared_.look();
  const auto healing = std::make_shared<mark_healing>(epoch_guard{epoch_key, now.epoch, now.epoch, now.lowerings},
                                                      std::move(late.these));
  if (late.all) healing->and_all(mark_memory::walk(shared_.marks));
  heal_more(healing);
}

void marks_keeper::heal_more(const std::shared_ptr<mark_healing>& healing) {
  while (auto cell = healing->begin_next())
    raising_.put_back(cell, healing, [this, healing, mine = connection_, cell](const raise_outcome& outcome) {
      on_put_back(healing, mine, cell, outcome);
    });
  if (healing->over()) healed(*healing);
}

void marks_keeper::on_put_back(const std::shared_ptr<mark_healing>& healing, std::uint64_t connection,
                               const std::shared_ptr<mark_cell>& cell, const raise_outcome& outcome) {
  const bool failed = outcome.what == raise_outcome::kind::unavailable;
  const bool of_late = healing->guard().of_late();
  if (failed && of_late) shared_.marks.came_late(cell);
  healing->one_done(failed && !of_late ? std::string(cell->resource) + ": " + outcome.detail : std::string());
  // A lost connection begins anew with everything.
  if (connection == connection_) return heal_more(healing);
  if (of_late) healing->give_back_rest(shared_.marks);
}

void marks_keeper::healed(const mark_healing& healing) {
  if (healing.lost() > limits::lost_marks_logged_max)
    shared_.event().add("marks", static_cast<std::int64_t>(healing.lost())).write(log::level::error, "marks went back");
  if (healing.guard().of_late()) return;
  const bool without_epoch = healing.guard().key == healing_key;
  if (!healing.problem().empty()) {
    doubted_ = true;
    // Another thread of this process was first to settle it.
    if (shared_.look().epoch != healing.guard().known) return look();
    if (std::exchange(not_put_back_, healing.problem()) != healing.problem())
      shared_.event().add("detail", healing.problem()).write(log::level::error, "marks not put back");
    return unfit("marks that the backend lost could not be put back: " + healing.problem());
  }
  if (without_epoch) return all_put_back(healing.guard().value);
  if (is_behind_lowerings(healing.guard().known, healing.guard().value)) return renew_epoch_of(healing.guard());
  healthy(healing.guard().value, healing.guard().known);
}

}  // namespace fencegate::backend
