#include "backend/mark_raising.hpp"

#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "fence/compare.hpp"
#include "fence/rejection.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

namespace {

fence::policy step_of(std::int64_t max_step) {
  fence::policy rules;
  rules.max_step = max_step;
  return rules;
}

raise_outcome unavailable_raise(std::string why) {
  return {raise_outcome::kind::unavailable, false, {}, std::move(why)};
}

}  // namespace

struct mark_raising::attempt {
  std::shared_ptr<mark_cell> cell;
  fence::token wanted;
  std::int64_t max_step = 0;
  raise_callback done;
  control_link::time_point started;
  fence::token target = wanted;  // what it writes: `wanted`, or what was seen before when the backend forgot it
  std::shared_ptr<mark_healing> healing = nullptr;  // of which it is a part
  bool restores = false;                            // `wanted` is what was seen: that counts under no later epoch
  std::string epoch{};                              // and how many lowerings were known with it
  std::uint64_t lowerings = 0;
  std::uint64_t lowering = cell->lowering();  // which the mark stood under at the beginning
  // What the next compare-and-set expects: nothing known yet (a look), no mark, or this mark.
  enum class expects : std::uint8_t { nothing_known, no_mark, this_mark } expected = expects::nothing_known;
  fence::token expected_mark{};
  int tries = 0;
  std::string full{};  // what Redis, out of memory, has answered
  // When it was sent:
  std::uint64_t losses = 0;
  mark_memory::moment asked{};
  std::optional<fence::token> seen{};

  void expect(fence::token mark) {
    expected = expects::this_mark;
    expected_mark = mark;
  }
};

void mark_raising::raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step,
                         raise_callback done) {
  begin(std::make_shared<attempt>(attempt{std::move(cell), wanted, max_step, std::move(done), link_.now()}));
}

// What was seen is read behind the epoch: so it counts under that.
void mark_raising::begin(const std::shared_ptr<attempt>& a) {
  const auto backend = state_.look();
  const auto seen = a->cell->seen();
  if (fence::compare(a->wanted, seen) == fence::comparison::stale)
    return a->done({raise_outcome::kind::stale, false, seen, {}});
  if (!a->cell->kept) return a->done(unavailable_raise(std::string(too_many_resources)));
  if (!backend.ready) return a->done(unavailable_raise(backend.problem));
  if (!a->restores) {
    a->epoch = backend.epoch;
    a->lowerings = backend.lowerings;
  }
  a->target = a->wanted;
  a->expected = attempt::expects::nothing_known;
  // With what was seen as the guess, one round trip usually does. A step that is too large for it is judged only against what
  // the backend says.
  if (seen && fence::compare(a->wanted, seen, step_of(a->max_step)) != fence::comparison::jump) a->expect(*seen);
  try_raise(a);
}

void mark_raising::put_back(std::shared_ptr<mark_cell> cell, std::shared_ptr<mark_healing> healing,
                            raise_callback done) {
  const auto seen = *cell->seen();
  const auto a = std::make_shared<attempt>(attempt{std::move(cell), seen, 0, std::move(done), link_.now()});
  a->healing = std::move(healing);
  try_raise(a);
}

void mark_raising::try_raise(const std::shared_ptr<attempt>& a) {
  if (++a->tries > limits::raise_attempts_max) return a->done(unavailable_raise("others raise it all the time"));
  const bool look = a->expected == attempt::expects::nothing_known;
  const std::string expected = a->expected == attempt::expects::this_mark ? a->expected_mark.to_string() : "";
  const std::string target = look ? "" : a->target.to_string();
  const epoch_guard guard =
      a->healing != nullptr ? a->healing->guard() : epoch_guard{epoch_key, a->epoch, {}, a->lowerings};
  a->losses = state_.marks.losses();
  a->asked = state_.marks.now(guard.lowerings);
  a->seen = a->cell->seen();
  static const std::string when_full = std::string(allow_oom) + std::string(compare_and_set_mark);
  // A mark that was seen was raised as it had to be: it is put back, whoever raised it.
  const bool heals = a->seen && a->target <= *a->seen;
  const std::string grant_key = a->cell->grant_key();
  link_.send({"EVAL", a->full.empty() ? compare_and_set_mark : when_full, "3", a->cell->key, guard.key, grant_key,
              expected, target, guard.value, heals ? "heal" : "raise"},
             [this, a](const wire::reply_value* reply) { on_reply(a, reply); });
}

void mark_raising::on_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply) {
  const auto give_up = [&](std::string why) { a->done(unavailable_raise(std::move(why))); };
  if (reply == nullptr) return give_up(words_of(reply));
  if (is_error(reply)) {
    if (says_mark_is_broken(reply->text)) return broken(*a);
    if (reply->text.starts_with("OOM ") && a->full.empty() && a->expected == attempt::expects::this_mark) {
      // One that is there takes no more room than it had: who comes to free memory has to raise it first.
      a->full = words_of(reply);
      return try_raise(a);
    }
    return give_up(a->full.empty() ? words_of(reply) : a->full);
  }
  if (reply->type != '*' || reply->elements.empty()) return give_up("an unexpected reply");
  const std::string_view word = reply->elements[0].text;
  if (word == "set") return is_set(a);
  if (word == "epoch") {
    // Where an operator has lowered others, or what was lost is back, it goes on behind that. Where this one was lowered, its
    // token may be the wrong one, and its client gone.
    const bool again = a->healing == nullptr && !a->restores;
    signs_.other_epoch([this, a, again] {
      if (!again) return;
      if (a->cell->lowering() != a->lowering)
        return a->done(unavailable_raise("an operator has lowered the mark meanwhile"));
      begin(a);
    });
    if (!again) give_up("the backend lost its marks; they are being put back");
    return;
  }
  if (word == "leased" && reply->elements.size() == 2) {
    const auto mark = fence::token::parse(reply->elements[1].text);
    return a->done({raise_outcome::kind::jump, false, mark ? std::optional(*mark) : std::nullopt,
                    std::string(fence::raised_by_leases_only)});
  }
  if (word == "none") return judge(a, std::nullopt);
  if (word == "is" && reply->elements.size() == 2) return judge(a, reply->elements[1].text);
  give_up("an unexpected reply");
}

void mark_raising::is_set(const std::shared_ptr<attempt>& a) {
  const auto took = link_.now() - a->started;
  state_.stats.check_duration_seconds.observe(took);
  if (a->healing == nullptr) {
    state_.marks.saw_since(a->asked, a->cell, a->target);
    if (a->losses != state_.marks.losses()) {
      // It was lost meanwhile, and too late for those that were put back.
      a->expect(a->target);
      return try_raise(a);
    }
  }
  const bool raised = a->expected != attempt::expects::this_mark || a->expected_mark != a->target;
  if (raised) {
    state_.stats.raises_total.add();
    state_.stats.takeover_seconds.observe(took);
  }
  if (fence::compare(a->wanted, a->target) == fence::comparison::stale)
    return a->done({raise_outcome::kind::stale, false, a->target, {}});
  a->done({raise_outcome::kind::held, raised, a->target, {}});
}

// What the backend has is not what was expected: decide with exact integers, then try again with what it has.
void mark_raising::judge(const std::shared_ptr<attempt>& a, std::optional<std::string_view> found) {
  const auto seen = a->cell->seen();
  a->target = seen ? std::max(a->wanted, *seen) : a->wanted;
  if (!found) {
    if (a->seen) note_regression(*a, {});
    a->expected = attempt::expects::no_mark;
    // No mark yet: there is nothing to measure a step against.
    return try_raise(a);
  }
  const auto mark = fence::token::parse(*found);
  if (mark.has_error()) return broken(*a);
  if (a->seen && *mark < *a->seen) note_regression(*a, *mark);
  const fence::token base = seen ? std::max(*mark, *seen) : *mark;
  if (fence::compare(a->target, *mark) != fence::comparison::lower) {
    if (a->healing == nullptr)
      state_.marks.saw_since(a->asked, a->cell, *mark);
    else
      state_.marks.saw(*a->cell, *mark, a->asked);
    if (fence::compare(a->wanted, *mark) == fence::comparison::stale)
      return a->done({raise_outcome::kind::stale, false, *mark, {}});
  }
  if (fence::compare(a->wanted, base, step_of(a->max_step)) == fence::comparison::jump)
    return a->done({raise_outcome::kind::jump, false, base, {}});
  a->expect(*mark);
  try_raise(a);
}

// What is there is no number. It closes its own resource and stays for somebody to look at; other marks are put back.
void mark_raising::broken(const attempt& a) {
  if (a.healing == nullptr) return a.done(unavailable_raise(std::string(mark_is_no_number)));
  if (a.healing->note_lost())
    state_.event()
        .add("resource", a.cell->resource)
        .add("detail", mark_is_no_number)
        .write(log::level::error, "mark not put back");
  a.done({raise_outcome::kind::stale, false, {}, {}});
}

void mark_raising::note_regression(const attempt& a, std::optional<fence::token> found) {
  state_.stats.regressions_total.add();
  if (a.healing == nullptr)
    signs_.went_back();
  else if (!a.healing->note_lost())
    return;
  log_regression(state_.event(), *a.cell, found);
}

void mark_raising::read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> told) {
  const std::string grant_key = cell->grant_key();
  const auto backend = state_.look();
  auto done = [told = std::move(told), epoch = backend.epoch](mark_reading reading) {
    reading.epoch = epoch;
    told(reading);
  };
  auto on_marks = [this, cell, backend, asked = state_.marks.now(backend.lowerings),
                   done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply) || reply->elements.size() != 2) return done({{}, words_of(reply)});
    const auto seen = cell->seen();
    const auto& text = reply->elements[0];
    const bool leased = !reply->elements[1].null;
    std::optional<fence::token> mark;
    if (!text.null) {
      const auto parsed = fence::token::parse(text.text);
      if (parsed.has_error()) return done({{}, std::string(mark_is_no_number)});
      mark = *parsed;
      state_.marks.saw_since(asked, cell, *mark);
    }
    if (!seen || (mark && *mark >= *seen)) return done({mark, {}, leased});
    auto on_raised = [done, leased](const raise_outcome& outcome) {
      if (outcome.what == raise_outcome::kind::unavailable) return done({{}, outcome.detail});
      done({outcome.mark, {}, leased});
    };
    const auto a = std::make_shared<attempt>(attempt{cell, *seen, 0, std::move(on_raised), link_.now()});
    a->restores = true;
    a->epoch = backend.epoch;
    a->lowerings = backend.lowerings;
    begin(a);
  };
  link_.send({"MGET", cell->key, grant_key}, std::move(on_marks));
}

}  // namespace fencegate::backend
