// Whether the backend still has the marks that it had: the epoch, and which server it is.
#include "backend/marks_keeper.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/random_id.hpp"

#include <string_view>
#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

namespace {

// A gate that starts and finds data but no epoch cannot know whether this is its first day or the morning after a loss.
// It begins, but it says so in the epoch: gates that knew another one stay closed.
constexpr std::string_view epoch_of_empty = "empty-", epoch_beside_data = "first-";

constexpr std::string_view waiting =
    "the backend lost its marks; waiting until every fencegate has put back what it knows";

}  // namespace

// The epoch is gone or new: the marks were lost with it. Everything that this process remembers is put back before a
// write is admitted again, and only then is the new epoch taken over. Where data survived the marks (SWAPDB, FLUSHDB of
// database 0, a partial restore), what this process never saw is lost all the same: that stays closed until an operator
// has looked and writes an epoch. A server that was started anew or promoted may have the old epoch and older marks.
void marks_keeper::check_epoch() {
  auto on_keys = [this, asked = shared_.look().epoch](const wire::reply_value* reply) {
    if (reply == nullptr || only_busy(reply)) return;
    if (reply->type != '*' || reply->elements.size() != 3)
      return unfit("the epoch could not be read: " + words_of(reply));
    const auto text = [reply](std::size_t i) { return std::string(reply->elements[i].text); };
    const epoch_keys found{text(0), text(1), text(2)};
    const bool quiet = quiet_.is_enough(found.busy, link_.now());
    const std::string known = shared_.look().epoch;
    // Another thread has created or renewed the epoch meanwhile; this answer may be from before that.
    if (known != asked) return check_epoch();
    on_epoch(found, known, quiet);
  };
  link_.send({"MGET", epoch_key, healing_key, healing_busy_key}, std::move(on_keys));
}

void marks_keeper::on_epoch(const epoch_keys& found, const std::string& known, bool quiet) {
  // An operator wrote the epoch: nobody needs this any more.
  if (!found.epoch.empty() && !found.healing.empty())
    link_.send({"EVAL", end_healing, "3", epoch_key, healing_key, healing_busy_key, found.epoch, found.healing},
               [](const wire::reply_value*) {});
  if (is_behind_lowerings(found.epoch, known)) return follow_lowerings(known);
  // Should it be the known one again, then with what came with it.
  doubted_ = doubted_ || (!known.empty() && known != found.epoch);
  if (known.empty()) {
    if (!found.epoch.empty()) return healthy(found.epoch, known);
    if (found.healing.empty() || (waited_for(found.healing) && quiet)) return settle_epoch(found);
    return unfit("the backend lost its marks; another fencegate puts them back");
  }
  if (is_behind_lowerings(known, found.epoch)) return on_server_put_back(found.epoch, known);
  if (known != found.epoch) return on_loss(found, known, quiet);
  if (proven_ == inspected_ && !doubted_) return compare_some(known);
  compare_all(known);
}

// Behind this, the marks are compared under the epoch that has moved on. Where they cannot be followed, all marks are put back
// as they were seen.
void marks_keeper::follow_lowerings(const std::string& known) {
  auto on_keys = [this, known](const wire::reply_value* reply) {
    if (reply == nullptr || only_busy(reply)) return;
    if (reply->type != '*' || reply->elements.size() != 2)
      return unfit("what operators have lowered could not be read: " + words_of(reply));
    const std::string epoch(reply->elements[0].text);
    if (!is_behind_lowerings(epoch, known)) return check_epoch();
    const auto these = read_lowerings(reply->elements[1].text, known);
    if (!these) {
      shared_.event().add("detail", these.error().message).write(log::level::error, "lowered marks not followed");
      not_ready("marks are put back, since " + these.error().message);
      return heal_all({epoch_key, epoch, known, shared_.look().lowerings});
    }
    if (shared_.follow_lowerings(known, epoch, *these))
      for (const auto& one : *these)
        shared_.event()
            .add("resource", one.resource)
            .add("from", one.from.value())
            .add("to", one.to.value())
            .add("by", one.by)
            .add("reason", one.why)
            .write(log::level::warn, "an operator lowered the mark");
    check_epoch();
  };
  link_.send({"MGET", epoch_key, lowered_key}, std::move(on_keys));
}

// A restored backup, or a promoted replica, from before some lowerings: its marks are compared as those of any such, and the
// epoch is another one from then on.
void marks_keeper::on_server_put_back(const std::string& epoch, const std::string& known) {
  if (shared_.is_first_to_see(known)) {
    shared_.event().add("detail", "the epoch is an older one").write(log::level::error, "marks lost");
    shared_.stats.regressions_total.add();
  }
  not_ready("the backend lost its marks; they are being put back");
  heal_all({epoch_key, epoch, known, shared_.look().lowerings});
}

void marks_keeper::renew_epoch_of(const epoch_guard& guard) {
  const std::string fresh = std::string(epoch_of_empty) + random_id();
  auto on_written = [this, known = guard.known](const wire::reply_value* reply) {
    if (reply == nullptr || only_busy(reply)) return;
    if (is_error(reply)) return unfit("the epoch could not be written: " + words_of(reply));
    // An operator may have lowered another mark meanwhile.
    const bool moved = is_behind_lowerings(known, reply->text) || is_behind_lowerings(reply->text, known);
    if (reply->null || moved) return check_epoch();
    healthy(std::string(reply->text), known);
  };
  link_.send({"EVAL", renew_epoch, "1", epoch_key, guard.value, fresh}, std::move(on_written));
}

void marks_keeper::on_loss(const epoch_keys& found, const std::string& known, bool quiet) {
  const bool none = found.epoch.empty();
  if (none ? !server_empty_ && found.healing.empty() : found.epoch.starts_with(epoch_beside_data))
    return unfit(
        "the backend lost its marks but kept other data; make sure that no older lock holder is still at work, then "
        "SET "
        "fencegate:epoch to any new text");
  if (shared_.is_first_to_see(known)) {
    shared_.event().add("detail", "the epoch changed").write(log::level::error, "marks lost");
    shared_.stats.regressions_total.add();
  }
  if (none && put_back_ == inspected_ + found.healing && !shared_.marks.any_late())
    return quiet ? settle_epoch(found) : unfit(std::string(waiting));
  not_ready("the backend lost its marks; they are being put back");
  if (none) return begin_healing();
  heal_all({epoch_key, found.epoch, known, shared_.look().lowerings});
}

void marks_keeper::all_put_back(const std::string& healing) {
  put_back_ = inspected_ + healing;
  unfit(std::string(waiting));
}

bool marks_keeper::waited_for(const std::string& healing) {
  if (std::exchange(waits_for_, healing) != healing) waits_since_ = link_.now();
  return link_.now() - waits_since_ > healing_wait;
}

// found.healing: the text under which marks were put back; "" = none were lost. found.busy: the one that has stayed the same.
void marks_keeper::settle_epoch(const epoch_keys& found) {
  const bool of_empty = server_empty_ || !found.healing.empty();
  const std::string fresh = std::string(of_empty ? epoch_of_empty : epoch_beside_data) + random_id();
  auto on_written = [this, known = shared_.look().epoch](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    // Others have written one, or were at work, or all was lost again.
    if (reply->null) return check_epoch();
    if (is_error(reply) || reply->text.empty()) return unfit("the epoch could not be written: " + words_of(reply));
    healthy(std::string(reply->text), known);
  };
  link_.send({"EVAL", write_epoch, "3", epoch_key, healing_key, healing_busy_key, fresh, found.healing, found.busy},
             std::move(on_written));
}

// ── the epoch is the known one ──────────────────────────────────────────────────────────────────────────────────────

// But the server was started anew, or another one was promoted; or a backup was restored into it, with its epoch. Whatever
// is lower than it was is put back while others are served: what this process has seen, it judges by. In all other looks
// some are compared: somebody may have deleted one.
struct marks_keeper::comparison {
  const std::string epoch;
  std::optional<mark_memory::walk> rest;  // all of which it is to be; nullopt: of some
  struct one {
    std::shared_ptr<mark_cell> cell;
    fence::token seen;  // when it was asked for
  };
  std::vector<one> asked = {};
  mark_memory::cells lost = {};

  void ask(const mark_memory::cells& some) {
    asked.clear();
    for (const auto& cell : some) asked.push_back({cell, *cell->seen()});
  }
};

void marks_keeper::compare_all(const std::string& epoch) {
  proven_.clear();
  if (std::exchange(doubted_, false)) shared_.marks.note_loss();
  shared_.marks.note_listing();
  compare_more(std::make_shared<comparison>(comparison{epoch, mark_memory::walk(shared_.marks)}));
}

void marks_keeper::compare_some(const std::string& epoch) {
  auto some = compared_.next(limits::marks_healed_at_once_max);
  if (some.empty()) some = compared_.next(limits::marks_healed_at_once_max);  // from the first on
  const auto c = std::make_shared<comparison>(comparison{epoch, std::nullopt});
  c->ask(some);
  compare_asked(c);
}

void marks_keeper::compare_more(const std::shared_ptr<comparison>& c) {
  c->ask(c->rest ? c->rest->next(limits::marks_healed_at_once_max) : mark_memory::cells());
  compare_asked(c);
}

void marks_keeper::compare_asked(const std::shared_ptr<comparison>& c) {
  if (c->asked.empty()) return compared(*c);
  std::vector<std::string_view> words{"MGET", epoch_key};
  for (const auto& one : c->asked) words.emplace_back(one.cell->key);
  link_.send(words, [this, c](const wire::reply_value* reply) {
    if (reply == nullptr || only_busy(reply)) return;
    if (reply->type != '*' || reply->elements.size() != c->asked.size() + 1)
      return unfit("marks could not be read: " + words_of(reply));
    // All were lost meanwhile, and others put theirs back by now.
    if (reply->elements[0].text != c->epoch) return check_epoch();
    for (std::size_t i = 0; i < c->asked.size(); ++i) {
      // One that is no number closes its own resource.
      const auto& found = reply->elements[i + 1];
      const auto mark = fence::token::parse(found.null ? "0" : found.text);
      if (!mark.has_error() && *mark < c->asked[i].seen) c->lost.push_back(c->asked[i].cell);
    }
    compare_more(c);
  });
}

void marks_keeper::compared(comparison& c) {
  if (!c.lost.empty() && !c.rest) return compare_all(c.epoch);  // others may have gone with it
  if (!c.lost.empty()) shared_.marks.note_loss();
  for (auto& cell : c.lost) shared_.marks.came_late(std::move(cell));
  // Another thread has renewed it meanwhile.
  healthy(c.epoch, c.epoch);
}

}  // namespace fencegate::backend
