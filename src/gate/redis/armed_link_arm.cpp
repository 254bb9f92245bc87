// Arming the link: the proof of the marks that the next batch is sent behind; and looks at marks that prove nothing.
#include "backend/redis_scripts.hpp"
#include "fence/compare.hpp"
#include "gate/redis/armed_link.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <memory>

namespace fencegate::gate {

void armed_link::append_select(std::string& to, int number) {
  wire::append_command_of(to, std::string_view("SELECT"), std::to_string(number));
}

// The arm: [UNWATCH] [SELECT 0] WATCH m…  MGET m… epoch  [SELECT n]  MULTI. Nothing of a batch is sent before all of its
// replies were read.
//
// Marks that only rules in monitor mode name are read with the others, but not watched: they neither prove anything nor
// end a batch.
//
// The epoch is read, not watched: it tells of marks that were lost before the MGET. Behind it only the marks count, and
// FLUSHDB, SWAPDB, eviction or DEL touch the mark that they take away. (A mark that does not exist yet cannot be taken.)
// Redis walks through all watchers of a key at each EXEC; 1,000 links that watch the epoch nearly double a batch's price.
void armed_link::arm(bool keeps_watches) {
  arm_started_ = host_.now();
  // A watch of ours that nothing has ended would keep its dirty flag; the client's own watches must stay.
  if (watching_ && !keeps_watches) {
    out += "*1\r\n$7\r\nUNWATCH\r\n";
    expect({awaits::unwatch});
  }
  append_arm_tail(claims_.armable());
  at_ = state::arming;
}

void armed_link::arm_behind_exec() {
  arm_started_ = host_.now();
  append_arm_tail(claims_.armable());
  at_ = state::tailed;
}

void armed_link::append_arm_tail(claim_mask mask) {
  arm_mask_ = mask;
  arm_looks_ = claims_.looked_at();
  arm_epoch_ = host_.snapshot().epoch;
  asked_ = marks_.now(host_.snapshot().lowerings);
  arm_error_.clear();
  multi_ok_ = marks_ok_ = gone_back_ = epoch_moved_ = false;
  looks_again_.clear();
  armed_mask_ = 0;
  if (tail_.mask != mask || tail_.looks != arm_looks_ || tail_.database != database ||
      tail_.claims != claims_.generation() || tail_.epoch != arm_epoch_)
    write_arm_tail(mask);
  out += tail_.bytes;
  if (database != 0) expect({awaits::select0});
  expect({awaits::watch});
  watching_ = true;
  expect({awaits::marks});
  if (database != 0) expect({awaits::select_back});
  expect({awaits::multi});
}

void armed_link::write_arm_tail(claim_mask mask) {
  tail_ = arm_tail{mask, arm_looks_, database, claims_.generation(), arm_epoch_, {}, {}};
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
  if (database != 0) append_select(tail_.bytes, 0);
  wire::append_command(tail_.bytes, watch);
  wire::append_command(tail_.bytes, read);
  if (database != 0) append_select(tail_.bytes, database);
  tail_.bytes += "*1\r\n$5\r\nMULTI\r\n";
}

// The reply to one step of an arm, all but MGET's, whose content counts (marks_reply).
void armed_link::arm_reply(awaits what, const wire::reply_head& head) {
  const bool ok = head.is_ok();
  if (!ok && arm_error_.empty())
    arm_error_ = head.is_error() ? std::string(head.line) : "an unexpected reply while arming";
  if (what == awaits::multi) multi_ok_ = ok;
  if (what == awaits::select0 || what == awaits::select_back) select_reply(what, head);
}

// The reply to a SELECT of ours, in an arm or a look.
void armed_link::select_reply(awaits what, const wire::reply_head& head) {
  if (what == awaits::select0 || what == awaits::look_select0) {
    select_stayed_ = head.is_error();
    return;
  }
  // The link would go on in a database that the client did not choose. (Not where both were refused, as with -BUSY.)
  const bool stayed = std::exchange(select_stayed_, false);
  if (!head.is_ok() && !(stayed && head.is_error())) unexpected("SELECT back to the client's database failed");
}

void armed_link::marks_reply(std::string_view raw) {
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
    if ((arm_mask_ >> i & 1) == 0)
      see_mark(items[i], found, asked_);
    else if (!mark_reply(i, found))
      all_equal = false;
  }
  if (at + 1 != value.elements.size()) return unexpected("MGET answered too many marks");
  const auto& epoch = value.elements[at];
  epoch_moved_ = epoch.null || arm_epoch_.empty() || epoch.text != arm_epoch_;
  marks_ok_ = all_equal && !epoch_moved_;
}

void armed_link::remember_proven() {
  for (std::size_t i = 0; i < claims_.items().size(); ++i)
    if (((arm_mask_ | arm_looks_) >> i & 1) != 0)
      marks_.saw_since(asked_, claims_.items()[i].cell, claims_.items()[i].presented);
}

// True: the mark is what has to be proven of it.
bool armed_link::mark_reply(std::size_t i, const wire::reply_value& found) {
  auto& one = claims_.items()[i];
  const bool spends = one.rules.spends();
  if (!found.null && found.text == one.digits) {
    // Used by somebody since the claim was looked at. Only what was known as used is proven, for reads.
    marks_.saw_since(asked_, one.cell, one.presented);
    if (!spends || one.status == claim_status::used) return true;
    one.status = claim_status::used;
    one.mark = one.presented;
    return false;
  }
  if (spends && !one.cell->seen() && found.null) return true;
  const auto mark = found.null ? result<fence::token>(error{}) : fence::token::parse(found.text);
  if (mark.has_value()) {
    const auto seen = one.cell->seen();
    marks_.saw_since(asked_, one.cell, *mark);
    if (fence::compare(one.presented, *mark) != fence::comparison::lower) {
      one.status = claim_status::stale;
      one.mark = *mark;
      return false;
    }
    // Where it has moved since the claim was looked at, a lease may have sealed it: then it is looked at again.
    if (spends && (!seen || *mark >= *seen)) {
      if (one.mark == *mark) return true;
      looks_again_.push_back(i);
      return false;
    }
  }
  looks_again_.push_back(i);
  gone_back_ = true;
  return false;
}

void armed_link::arm_done() {
  pop_expectation();
  switch (at_) {
    case state::arming: return finish_arm();
    case state::batch: return user_.on_batch();
    case state::tailed: return user_.on_tail();
    default: return unexpected("an arm outside its place");
  }
}

void armed_link::finish_arm() {
  if (arm_error_.empty() && multi_ok_ && marks_ok_) {
    signed_in = true;  // no stranger is shown the marks
    at_ = state::armed;
    armed_mask_ = arm_mask_;
    stats_.check_duration_seconds.observe(host_.now() - arm_started_);
    return;
  }
  if (multi_ok_)
    leave();
  else
    at_ = state::open;
  armed_mask_ = 0;
  if (!arm_error_.empty()) return;
  if (!looks_again_.empty() || epoch_moved_) look_again();
}

void armed_link::leave() {
  out += "*1\r\n$7\r\nDISCARD\r\n";
  expect({awaits::ours_ok});
  at_ = state::open;
  armed_mask_ = 0;
  watching_ = false;
  user_.on_left();
}

// The backend showed a mark that had moved, or that is below one seen before, or another epoch. The control link reads the
// mark, or puts it right; then we go on.
void armed_link::look_again() {
  at_ = state::looking;
  const bool doubtful = went_back();
  const auto these = std::exchange(looks_again_, {});  // an answer that comes at once may arm anew
  auto left = std::make_shared<std::size_t>(1 + these.size());
  auto one_done = [this, left] {
    if (--*left != 0) return;
    if (at_ == state::looking) at_ = state::open;
    user_.resume();
  };
  // In case that a rebinding races with the answer, the claims are looked up by their cells.
  for (const std::size_t i : these) {
    const auto& one = claims_.items()[i];
    auto cell = one.cell;
    const bool spends = one.rules.spends();
    if (spends && !cell->seen()) cell->saw(fence::token());
    host_.read_mark(cell, [one_done, this, cell](const backend::mark_reading& reading) {
      on_mark(*cell, reading);
      one_done();
    });
  }
  if (!doubtful) return one_done();
  host_.recheck(one_done);
}

void armed_link::on_mark(const backend::mark_cell& cell, const backend::mark_reading& reading) {
  if (!reading.detail.empty()) arm_error_ = "the mark of " + std::string(cell.resource) + ": " + reading.detail;
  if (reading.detail.empty()) claims_.on_lowered(cell, reading.mark);
  const auto is_spent_here = [&](const bound_claim& one) {
    return one.cell.get() == &cell && one.rules.spends() && one.status == claim_status::held;
  };
  if (std::any_of(claims_.items().begin(), claims_.items().end(), is_spent_here))
    claims_.on_mark_for_one_use(cell, reading);
}

// ── looks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

void armed_link::look() {
  if (!is_open() || claims_.items().empty() || looked_) return;
  std::vector<std::string_view> command{"MGET"};
  for (const auto& one : claims_.items()) command.push_back(one.cell->key);
  ask_marks(command, awaits::look);
  looked_ = true;
  look_asked_ = marks_.now(host_.snapshot().lowerings);
}

void armed_link::look_done(std::string_view raw) {
  looked_ = false;
  const auto found = asked_marks(raw);
  if (!found) return user_.on_look(found.error().message);
  for (std::size_t i = 0; i < found->size() && i < claims_.items().size(); ++i)
    see_mark(claims_.items()[i], (*found)[i], look_asked_);
  user_.on_look({});
}

// Marks are in database 0.
void armed_link::ask_marks(const std::vector<std::string_view>& command, awaits what) {
  if (database != 0) {
    append_select(out, 0);
    expect({awaits::look_select0});
  }
  wire::append_command(out, command);
  expect({what});
  if (database != 0) {
    append_select(out, database);
    expect({awaits::look_select_back});
  }
}

result<std::vector<wire::reply_value>> armed_link::asked_marks(std::string_view raw) const {
  const auto parsed = wire::parse_value(raw);
  const bool readable = !parsed.has_error() && *parsed;
  if (readable && (*parsed)->first.type == '-') return error{std::string((*parsed)->first.text)};
  if (!readable || (*parsed)->first.type != '*' || select_stayed_) return error{"the marks could not be read"};
  return (*parsed)->first.elements;
}

// What a mark says of a claim, beside what it proves.
void armed_link::see_mark(bound_claim& one, const wire::reply_value& found, const backend::mark_memory::moment& asked) {
  const auto mark = found.null ? result<fence::token>(error{}) : fence::token::parse(found.text);
  if (mark.has_value()) marks_.saw_since(asked, one.cell, *mark);
  const auto seen = one.cell->seen();
  if (fence::compare(one.presented, seen) == fence::comparison::stale) {
    one.status = claim_status::stale;
    one.mark = seen;
  } else if (mark.has_value() && one.status == claim_status::held &&
             fence::compare(one.presented, *mark, one.rules) == fence::comparison::used) {
    one.status = claim_status::used;
    one.mark = one.presented;
  }
}

}  // namespace fencegate::gate
