// Arming the link: the proof of the marks that the next batch is sent behind.
#include "backend/redis_scripts.hpp"
#include "fence/compare.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

void redis_engine::append_select(std::string& out, int database) {
  wire::append_command_of(out, std::string_view("SELECT"), std::to_string(database));
}

// The arm: [INFO server] [UNWATCH] [SELECT 0] WATCH m…  MGET m… epoch  [SELECT n]  MULTI. Nothing of a batch is sent
// before all of its replies were read.
//
// Marks that only rules in monitor mode name are read with the others, but not watched: they neither prove anything nor
// end a batch.
//
// The epoch is read, not watched: it tells of marks that were lost before the MGET. Behind it only the marks count, and
// FLUSHDB, SWAPDB, eviction or DEL touch the mark that they take away. (A mark that does not exist yet cannot be taken.)
// Redis walks through all watchers of a key at each EXEC; 1,000 links that watch the epoch nearly double a batch's price.
void redis_engine::start_arm() {
  ++tries_;
  arm_started_ = host_.now();
#ifdef FENCEGATE_BROKEN_ENVELOPE
  arm_mask_ = armed_mask_ = claims_.armable();
  phase_ = phase::armed;
  return;
#endif
  ask_identity();
  // A watch of ours that nothing has ended would keep its dirty flag; the client's own watches must stay.
  if (link_watching_ && !client_watching_) {
    to_backend += "*1\r\n$7\r\nUNWATCH\r\n";
    expectations_.push_back({awaits::unwatch});
  }
  append_arm_tail(claims_.armable());
  phase_ = phase::arming;
}

void redis_engine::append_arm_tail(claim_mask mask) {
  arm_mask_ = mask;
  arm_looks_ = claims_.looked_at();
  arm_epoch_ = host_.picture().epoch;
  listings_ = marks_.listings();
  arm_error_.clear();
  arm_multi_ok_ = arm_marks_ok_ = arm_gone_back_ = arm_epoch_moved_ = false;
  arm_looks_again_.clear();
  armed_mask_ = 0;
  if (tail_.mask != mask || tail_.looks != arm_looks_ || tail_.database != database_ ||
      tail_.claims != claims_.generation() || tail_.epoch != arm_epoch_)
    write_arm_tail(mask);
  to_backend += tail_.bytes;
  if (database_ != 0) expectations_.push_back({awaits::select0});
#if !defined(FENCEGATE_BROKEN_CHECK_THEN_FORWARD) && !defined(FENCEGATE_BROKEN_ENVELOPE)
  expectations_.push_back({awaits::watch});
  link_watching_ = true;
#endif
  expectations_.push_back({awaits::marks});
  if (database_ != 0) expectations_.push_back({awaits::select_back});
  expectations_.push_back({awaits::multi});
}

void redis_engine::write_arm_tail(claim_mask mask) {
  tail_ = arm_tail{mask, arm_looks_, database_, claims_.generation(), arm_epoch_, {}, {}};
  std::vector<std::string_view> watch{"WATCH"}, read{"MGET"}, values;
  bool provable = !arm_epoch_.empty();
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    if (((mask | arm_looks_) >> i & 1) == 0) continue;
    const auto& one = claims_.items()[i];
    if ((mask >> i & 1) != 0) watch.push_back(one.cell->key);
    read.push_back(one.cell->key);
    values.push_back(one.digits);
    provable = provable && one.rules.equal == fence::equal_token::accept;
  }
  if (watch.size() == 1) watch.push_back(backend::epoch_key);  // it needs a key
  read.push_back(backend::epoch_key);
  values.push_back(arm_epoch_);
  if (provable) wire::append_command(tail_.proof, values);
  if (database_ != 0) append_select(tail_.bytes, 0);
#if !defined(FENCEGATE_BROKEN_CHECK_THEN_FORWARD) && !defined(FENCEGATE_BROKEN_ENVELOPE)
  wire::append_command(tail_.bytes, watch);
#endif
  wire::append_command(tail_.bytes, read);
  if (database_ != 0) append_select(tail_.bytes, database_);
#if !defined(FENCEGATE_BROKEN_CHECK_THEN_FORWARD) && !defined(FENCEGATE_BROKEN_ENVELOPE)
  tail_.bytes += "*1\r\n$5\r\nMULTI\r\n";
#else
  tail_.bytes += "*2\r\n$4\r\nECHO\r\n$2\r\nOK\r\n";
#endif
}

// The reply to one step of an arm, all but MGET's, whose content counts (marks_reply).
void redis_engine::arm_reply(awaits what, const wire::reply_head& head) {
#if defined(FENCEGATE_BROKEN_CHECK_THEN_FORWARD) || defined(FENCEGATE_BROKEN_ENVELOPE)
  const bool ok = head.is_ok() || what == awaits::multi;
#else
  const bool ok = head.is_ok();
#endif
  if (!ok && arm_error_.empty())
    arm_error_ = head.is_error() ? std::string(head.line) : "an unexpected reply while arming";
  if (what == awaits::multi) arm_multi_ok_ = ok;
  if (what == awaits::select0 || what == awaits::select_back) select_reply(what, head);
}

// The reply to a SELECT of ours, in an arm or a look.
void redis_engine::select_reply(awaits what, const wire::reply_head& head) {
  if (what == awaits::select0 || what == awaits::peek_select0) {
    select_stayed_ = head.is_error();
    return;
  }
  // The link would go on in a database that the client did not choose. (Not where both were refused, as with -BUSY.)
  const bool stayed = std::exchange(select_stayed_, false);
  if (!head.is_ok() && !(stayed && head.is_error())) unexpected("SELECT back to the client's database failed");
}

void redis_engine::marks_reply(std::string_view raw) {
  const auto parsed = wire::parse_value(raw);
  if (parsed.has_error() || !*parsed) return unexpected("an unreadable reply to MGET");
  const auto& value = (*parsed)->first;
  if (value.type != '*') {
    if (arm_error_.empty()) arm_error_ = value.type == '-' ? std::string(value.text) : "an unexpected reply to MGET";
    return;
  }
  if (select_stayed_) return;  // they were looked for in the client's database
  auto& items = claims_.items();
  std::size_t at = 0;
  bool all_equal = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (((arm_mask_ | arm_looks_) >> i & 1) == 0) continue;
    if (at >= value.elements.size()) return unexpected("MGET answered too few marks");
    const auto& found = value.elements[at++];
    if ((arm_mask_ >> i & 1) == 0) {
      see_mark(items[i], found, listings_);
      continue;
    }
    if (!found.null && found.text == items[i].digits) {
      // Used by somebody since the claim was looked at. Only what was known as used is proven, for reads.
      if (items[i].rules.equal == fence::equal_token::reject && items[i].status != claim_status::used) {
        marks_.saw_since(listings_, items[i].cell, items[i].presented);
        items[i].status = claim_status::used;
        items[i].mark = items[i].presented;
        all_equal = false;
      }
      continue;
    }
    const auto mark = found.null ? result<fence::token>(error{}) : fence::token::parse(found.text);
    if (items[i].rules.equal == fence::equal_token::reject && !items[i].cell->seen() && found.null) continue;
    if (mark.has_value()) {
      const auto seen = items[i].cell->seen();
      marks_.saw_since(listings_, items[i].cell, *mark);
      const bool lower = fence::compare(items[i].presented, *mark) == fence::comparison::lower;
      // Where it has moved since the claim was looked at, a lease may have sealed it: then it is looked at again.
      if (lower && items[i].rules.equal == fence::equal_token::reject && (!seen || *mark >= *seen)) {
        if (items[i].mark == *mark) continue;
        arm_looks_again_.push_back(i);
        all_equal = false;
        continue;
      }
      if (!lower) {
        items[i].status = claim_status::stale;
        items[i].mark = *mark;
        all_equal = false;
        continue;
      }
    }
    arm_looks_again_.push_back(i);
    arm_gone_back_ = true;
    all_equal = false;
  }
  if (at + 1 != value.elements.size()) return unexpected("MGET answered too many marks");
  const auto& epoch = value.elements[at];
  arm_epoch_moved_ = epoch.null || arm_epoch_.empty() || epoch.text != arm_epoch_;
  arm_marks_ok_ = all_equal && !arm_epoch_moved_;
}

void redis_engine::arm_done() {
  pop_expectation();
  if (phase_ == phase::arming) return finish_arm();
  if (phase_ == phase::batch) return finish_batch();
  if (phase_ == phase::finishing) return finish_transaction();
  unexpected("an arm outside its place");
}

// All replies of an arm were read. REQUIRES: the link's MULTI state is known (arm_multi_ok_).
void redis_engine::finish_arm() {
  const bool proven = arm_error_.empty() && arm_multi_ok_ && arm_marks_ok_;
  if (proven) {
    signed_in_ = true;  // no stranger is shown the marks
    phase_ = phase::armed;
    armed_mask_ = arm_mask_;
    figures_.check_duration_seconds.observe(host_.now() - arm_started_);
    return;
  }
  phase_ = phase::armed;
  if (arm_multi_ok_)
    leave_armed();
  else
    phase_ = phase::open;
  armed_mask_ = 0;
  if (!arm_error_.empty()) return;
  if (!arm_looks_again_.empty() || arm_epoch_moved_) look_again();
}

// The backend showed a mark that had moved, or that is below one seen before, or another epoch. The control link reads the
// mark, or puts it right; then we go on.
void redis_engine::look_again() {
  phase_ = phase::waiting;
  const bool doubtful = arm_gone_back_ || arm_epoch_moved_;
  const auto these = std::exchange(arm_looks_again_, {});  // an answer that comes at once may arm anew
  auto left = std::make_shared<std::size_t>(1 + these.size());
  auto one_done = [this, left] {
    if (--*left != 0) return;
    if (phase_ == phase::waiting) phase_ = phase::open;
    resume();
  };
  // In case that a rebinding races with the answer, the claims are looked up by their cells.
  for (const std::size_t i : these) {
    auto cell = claims_.items()[i].cell;
    cell->saw(claims_.items()[i].rules.equal == fence::equal_token::reject ? cell->seen().value_or(fence::token())
                                                                           : claims_.items()[i].presented);
    host_.read_mark(cell, [one_done, this, cell](const backend::mark_reading& reading) {
      if (!reading.detail.empty()) arm_error_ = "the mark of " + std::string(cell->resource) + ": " + reading.detail;
      const auto uses_up = [&](const bound_claim& one) {
        return one.cell == cell && one.rules.equal == fence::equal_token::reject && one.status == claim_status::held;
      };
      if (std::any_of(claims_.items().begin(), claims_.items().end(), uses_up)) on_mark_for_one_use(*cell, reading);
      one_done();
    });
  }
  if (!doubtful) return one_done();
  host_.recheck(one_done);
}

}  // namespace fencegate::gate
