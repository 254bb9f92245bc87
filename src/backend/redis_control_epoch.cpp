// Whether the backend still has the marks that it had: the epoch, and which server it is.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/random_id.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

using clock = std::chrono::steady_clock;

// A gate that starts and finds data but no epoch cannot know whether this is its first day or the morning after a loss.
// It begins, but it says so in the epoch: gates that knew another one stay closed.
constexpr std::string_view epoch_of_empty = "empty-", epoch_beside_data = "first-";

// Others put their marks back before the first opens for all: nobody was at work for so long. Meanwhile each of them looks
// at the server (inspection_interval, back_off_max, a tick, some round trips). Of the time between two looks this much
// counts at most: who cannot look cannot say anything either.
constexpr std::chrono::milliseconds quiet_least{3'500}, quiet_of_a_look{500};

// How long a process that has just started waits for others to put marks back. One that is later than this puts the rest
// back under the new epoch.
constexpr std::chrono::seconds healing_wait{15};

constexpr std::string_view waiting =
    "the backend lost its marks; waiting until every fencegate has put back what it knows";

}  // namespace

using detail::is_error;
using detail::words_of;

// The epoch is gone or new: the marks were lost with it. Everything that this process remembers is put back before a
// write is admitted again, and only then is the new epoch taken over. Where data survived the marks (SWAPDB, FLUSHDB of
// database 0, a partial restore), what this process never saw is lost all the same: that stays closed until an operator
// has looked and writes an epoch. A server that was started anew or promoted may have the old epoch and older marks.
void redis_control::check_epoch() {
  auto on_keys = [self = shared_from_this(), asked = state_->look().epoch](const wire::reply_value* reply) {
    if (reply == nullptr || self->only_busy(reply)) return;
    if (reply->type != '*' || reply->elements.size() != 3)
      return self->unfit("the epoch could not be read: " + words_of(reply));
    const std::string found(reply->elements[0].text);
    const std::string healing(reply->elements[1].text);
    const std::string busy(reply->elements[2].text);
    const bool quiet = self->quiet_by(busy);
    const std::string known = self->state_->look().epoch;
    // Another thread has created or renewed the epoch meanwhile; this answer may be from before that.
    if (known != asked) return self->check_epoch();
    // An operator wrote the epoch: nobody needs this any more.
    if (!found.empty() && !healing.empty())
      self->send({"EVAL", end_healing, "3", epoch_key, healing_key, healing_busy_key, found, healing},
                 [](const wire::reply_value*) {});
    // Should it be the known one again, then with what came with it.
    self->doubted_ = self->doubted_ || (!known.empty() && known != found);
    if (!found.empty() && known.empty()) return self->healthy(found);
    if (found == known && !found.empty())
      return self->proven_ == self->inspected_ && !self->doubted_ ? self->compare_some(found)
                                                                  : self->compare_all(found);
    if (known.empty())
      return healing.empty() || (self->waited_for(healing) && quiet)
                 ? self->settle_epoch(healing, busy)
                 : self->unfit("the backend lost its marks; another fencegate puts them back");
    if (found.empty() ? !self->server_empty_ && healing.empty() : found.starts_with(epoch_beside_data))
      return self->unfit(
          "the backend lost its marks but kept other data; make sure that no older lock holder is still at work, then "
          "SET "
          "fencegate:epoch to any new text");
    if (self->state_->is_first_to_see(known)) {
      self->state_->event().add("detail", "the epoch changed").write(log::level::error, "marks lost");
      self->state_->figures.regressions_total.add();
    }
    if (found.empty() && self->put_back_ == self->inspected_ + healing && !self->state_->marks.any_late())
      return quiet ? self->settle_epoch(healing, busy) : self->unfit(std::string(waiting));
    self->not_ready("the backend lost its marks; they are being put back");
    if (found.empty()) return self->begin_healing();
    self->heal_all({epoch_key, found, known});
  };
  send({"MGET", epoch_key, healing_key, healing_busy_key}, std::move(on_keys));
}

// Whether nobody was at work for long enough, by what looks have shown, one after the other, on one connection.
bool redis_control::quiet_by(const std::string& busy) {
  const auto now = clock::now();
  const auto since = std::min<clock::duration>(now - std::exchange(looked_, now), quiet_of_a_look);
  quiet_ = std::exchange(busy_, busy) == busy ? quiet_ + since : clock::duration::zero();
  return quiet_ >= quiet_least;
}

// There is no epoch: marks are put back under a text of their own, which all share who remember some. A second loss takes
// that away, too, and then nothing of this healing counts. A process that has just started waits for their end.
void redis_control::begin_healing() {
  announce_healing([self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return self->unfit("marks cannot be put back: " + words_of(reply));
    if (reply->null) return self->check_epoch();  // there is one by now
    self->at_work_ = true;
    self->heal_all({healing_key, std::string(reply->text), self->state_->look().epoch});
  });
}

void redis_control::announce_healing(reply_callback done) {
  send({"EVAL", join_healing, "3", epoch_key, healing_key, healing_busy_key, random_id(), random_id()},
       std::move(done));
}

bool redis_control::waited_for(const std::string& healing) {
  if (std::exchange(waits_for_, healing) != healing) waits_since_ = clock::now();
  return clock::now() - waits_since_ > healing_wait;
}

void redis_control::all_put_back(const std::string& healing) {
  put_back_ = inspected_ + healing;
  unfit(std::string(waiting));
}

// `healing`: the text under which marks were put back; "" = none were lost. `busy`: the one that has stayed the same.
void redis_control::settle_epoch(const std::string& healing, const std::string& busy) {
  const bool of_empty = server_empty_ || !healing.empty();
  const std::string fresh = std::string(of_empty ? epoch_of_empty : epoch_beside_data) + random_id();
  send({"EVAL", write_epoch, "3", epoch_key, healing_key, healing_busy_key, fresh, healing, busy},
       [self = shared_from_this()](const wire::reply_value* reply) {
         if (reply == nullptr) return;
         if (reply->null)
           return self->check_epoch();  // others have written one, or were at work, or all was lost again
         if (is_error(reply) || reply->text.empty())
           return self->unfit("the epoch could not be written: " + words_of(reply));
         self->healthy(std::string(reply->text));
       });
}

// The epoch is the known one, but the server was started anew, or another one was promoted; or a backup was restored into
// it, with its epoch. Whatever is lower than it was is put back while others are served: what this process has seen, it
// judges by. In all other looks some are compared: somebody may have deleted one.
struct redis_control::comparison {
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

void redis_control::compare_all(const std::string& epoch) {
  proven_.clear();
  if (std::exchange(doubted_, false)) state_->marks.note_loss();
  state_->marks.note_listing();
  compare_more(std::make_shared<comparison>(comparison{epoch, mark_memory::walk(state_->marks)}));
}

void redis_control::compare_some(const std::string& epoch) {
  auto some = compared_.next(limits::marks_healed_at_once_max);
  if (some.empty()) some = compared_.next(limits::marks_healed_at_once_max);  // from the first on
  const auto c = std::make_shared<comparison>(comparison{epoch, std::nullopt});
  c->ask(some);
  compare_asked(c);
}

void redis_control::compare_more(const std::shared_ptr<comparison>& c) {
  c->ask(c->rest ? c->rest->next(limits::marks_healed_at_once_max) : mark_memory::cells());
  compare_asked(c);
}

void redis_control::compared(comparison& c) {
  if (!c.lost.empty() && !c.rest) return compare_all(c.epoch);  // others may have gone with it
  if (!c.lost.empty()) state_->marks.note_loss();
  for (auto& cell : c.lost) state_->marks.came_late(std::move(cell));
  // Another thread has renewed it meanwhile.
  if (state_->look().epoch != c.epoch) return check_epoch();
  healthy(c.epoch);
}

void redis_control::compare_asked(const std::shared_ptr<comparison>& c) {
  if (c->asked.empty()) return compared(*c);
  std::vector<std::string_view> words{"MGET", epoch_key};
  for (const auto& one : c->asked) words.emplace_back(one.cell->key);
  send(words, [self = shared_from_this(), c](const wire::reply_value* reply) {
    if (reply == nullptr || self->only_busy(reply)) return;
    if (reply->type != '*' || reply->elements.size() != c->asked.size() + 1)
      return self->unfit("marks could not be read: " + words_of(reply));
    // All were lost meanwhile, and others put theirs back by now.
    if (reply->elements[0].text != c->epoch) return self->check_epoch();
    for (std::size_t i = 0; i < c->asked.size(); ++i) {
      // One that is no number closes its own resource.
      const auto& found = reply->elements[i + 1];
      const auto mark = fence::token::parse(found.null ? "0" : found.text);
      if (!mark.has_error() && *mark < c->asked[i].seen) c->lost.push_back(c->asked[i].cell);
    }
    self->compare_more(c);
  });
}

}  // namespace fencegate::backend
