// Marks: raising them, reading them, putting them right.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;
using clock = std::chrono::steady_clock;

namespace {

constexpr std::string_view too_many_resources = "this gate remembers the marks of no more resources";

// In place of an answer of the server's.
void refuse_too_many(const std::function<void(const wire::reply_value*)>& done) {
  wire::reply_value refused;
  refused.type = '-';
  refused.text = too_many_resources;
  done(&refused);
}

}  // namespace

struct redis_control::attempt {
  std::shared_ptr<mark_cell> cell;
  fence::token wanted;
  std::int64_t max_step = 0;
  raise_callback done;
  // What the next compare-and-set expects: nothing known yet (a look), no mark, or this mark.
  enum class expects : std::uint8_t { nothing_known, no_mark, this_mark } expected = expects::nothing_known;
  fence::token expected_mark;
  fence::token target;  // what it writes: `wanted`, or what was seen before when the backend forgot it
  std::shared_ptr<mark_healing> healing;  // of which it is a part
  int tries = 0;
  std::string full;  // what Redis, out of memory, has answered
  // When it was sent:
  std::uint64_t losses = 0, listings = 0;
  std::optional<fence::token> seen;
  clock::time_point started = clock::now();
};

void redis_control::raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step,
                          raise_callback done) {
  const auto seen = cell->seen();
  if (seen && *seen > wanted) return done({raise_outcome::kind::stale, false, seen, {}});
  if (!cell->kept) return done({raise_outcome::kind::unavailable, false, {}, std::string(too_many_resources)});
  const auto backend = state_->look();
  if (!backend.ready) return done({raise_outcome::kind::unavailable, false, {}, backend.problem});
  auto a = std::make_shared<attempt>();
  a->cell = std::move(cell);
  a->wanted = a->target = wanted;
  a->max_step = max_step;
  a->done = std::move(done);
  // With what was seen as the guess, one round trip usually does. A step is judged only against what the backend says.
  if (seen && max_step == 0) {
    a->expected = attempt::expects::this_mark;
    a->expected_mark = *seen;
  }
  try_raise(a);
}

void redis_control::try_raise(const std::shared_ptr<attempt>& a) {
  if (++a->tries > limits::raise_attempts_max)
    return a->done({raise_outcome::kind::unavailable, false, {}, "others raise it all the time"});
  const bool look = a->expected == attempt::expects::nothing_known;
  const std::string expected = a->expected == attempt::expects::this_mark ? a->expected_mark.to_string() : "";
  const std::string target = look ? "" : a->target.to_string();
  const epoch_guard guard =
      a->healing != nullptr ? a->healing->guard() : epoch_guard{epoch_key, state_->look().epoch, {}};
  a->losses = state_->marks.losses();
  a->listings = state_->marks.listings();
  a->seen = a->cell->seen();
  static const std::string when_full = std::string(allow_oom) + std::string(compare_and_set_mark);
  // A mark that was seen was raised as it had to be: it is put back, whoever raised it.
  const bool heals = a->seen && a->target <= *a->seen;
  const std::string grant_key = a->cell->grant_key();
  send({"EVAL", a->full.empty() ? compare_and_set_mark : when_full, "3", a->cell->key, guard.key, grant_key, expected,
        target, guard.value, heals ? "heal" : "raise"},
       [self = shared_from_this(), a](const wire::reply_value* reply) { self->on_raise_reply(a, reply); });
}

void redis_control::on_raise_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply) {
  const auto give_up = [&](std::string why) { a->done({raise_outcome::kind::unavailable, false, {}, std::move(why)}); };
  if (is_error(reply) && reply != nullptr && reply->text.starts_with("WRONGTYPE")) return broken(*a);
  if (is_error(reply) && reply != nullptr && reply->text.starts_with("OOM ") && a->full.empty() &&
      a->expected == attempt::expects::this_mark) {
    // One that is there takes no more room than it had: who comes to free memory has to raise it first.
    a->full = words_of(reply);
    return try_raise(a);
  }
  if (is_error(reply)) return give_up(reply == nullptr || a->full.empty() ? words_of(reply) : a->full);
  if (reply->type != '*' || reply->elements.empty()) return give_up("an unexpected reply");
  const std::string_view word = reply->elements[0].text;
  if (word == "set") {
    state_->figures.check_duration_seconds.observe(clock::now() - a->started);
    if (a->healing == nullptr) state_->marks.saw_since(a->listings, a->cell, a->target);
    if (a->healing == nullptr && a->losses != state_->marks.losses()) {
      // It was lost meanwhile, and too late for those that were put back.
      a->expected = attempt::expects::this_mark;
      a->expected_mark = a->target;
      return try_raise(a);
    }
    const bool raised = a->expected != attempt::expects::this_mark || a->expected_mark != a->target;
    if (raised) {
      state_->figures.raises_total.add();
      state_->figures.takeover_seconds.observe(clock::now() - a->started);
    }
    if (a->target > a->wanted) return a->done({raise_outcome::kind::stale, false, a->target, {}});
    return a->done({raise_outcome::kind::held, raised, a->target, {}});
  }
  if (word == "epoch") {
    recheck([] {});
    return give_up("the backend lost its marks; they are being put back");
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

// What the backend has is not what was expected: decide with exact integers, then try again with what it has.
void redis_control::judge(const std::shared_ptr<attempt>& a, std::optional<std::string_view> found) {
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
  if (*mark >= a->target) {
    if (a->healing == nullptr)
      state_->marks.saw_since(a->listings, a->cell, *mark);
    else
      a->cell->saw(*mark);
    if (*mark > a->wanted) return a->done({raise_outcome::kind::stale, false, *mark, {}});
  }
  if (a->max_step > 0 && a->wanted > base && a->wanted.value() - base.value() > a->max_step)
    return a->done({raise_outcome::kind::jump, false, base, {}});
  a->expected = attempt::expects::this_mark;
  a->expected_mark = *mark;
  try_raise(a);
}

// What is there is no number. It closes its own resource and stays for somebody to look at; other marks are put back.
void redis_control::broken(const attempt& a) {
  static constexpr std::string_view why = "the mark in Redis is not a canonical integer";
  if (a.healing == nullptr) return a.done({raise_outcome::kind::unavailable, false, {}, std::string(why)});
  if (a.healing->note_lost())
    state_->event().add("resource", a.cell->resource).add("detail", why).write(log::level::error, "mark not put back");
  a.done({raise_outcome::kind::stale, false, {}, {}});
}

void redis_control::note_regression(const attempt& a, std::optional<fence::token> found) {
  state_->figures.regressions_total.add();
  // Others may have gone with it.
  doubted_ = doubted_ || a.healing == nullptr;
  if (a.healing != nullptr && !a.healing->note_lost()) return;
  log_regression(state_->event(), *a.cell, found);
}

void redis_control::read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done) {
  if (!cell->kept) return done({{}, std::string(too_many_resources)});
  if (!up_) return done({{}, problem_});
  const std::string grant_key = cell->grant_key();
  send({"MGET", cell->key, grant_key}, [self = shared_from_this(), cell, listings = state_->marks.listings(),
                                        done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply) || reply->elements.size() != 2) return done({{}, words_of(reply)});
    const auto seen = cell->seen();
    const auto& text = reply->elements[0];
    const bool leased = !reply->elements[1].null;
    std::optional<fence::token> mark;
    if (!text.null) {
      const auto parsed = fence::token::parse(text.text);
      if (parsed.has_error()) return done({{}, "the mark in Redis is not a canonical integer"});
      mark = *parsed;
      self->state_->marks.saw_since(listings, cell, *mark);
    }
    if (!seen || (mark && *mark >= *seen)) return done({mark, {}, leased});
    self->raise(cell, *seen, 0, [done, leased](const raise_outcome& outcome) {
      if (outcome.what == raise_outcome::kind::unavailable) return done({{}, outcome.detail});
      done({outcome.mark, {}, leased});
    });
  });
}

bool redis_control::run_checked(const std::vector<fence::claim>& claims, const std::vector<std::string>& command,
                                time_point deadline, std::function<void(const wire::reply_value*)> done) {
  const auto epoch = state_->look().epoch;
  if (!up_ || epoch.empty()) return false;
  std::vector<std::string> keys, values;
  for (const auto& one : claims) {
    const auto cell = state_->marks.cell(one.resource);
    if (!cell->kept) return refuse_too_many(done), true;
    keys.push_back(cell->key);
    values.push_back(one.presented.to_string());
  }
  keys.emplace_back(epoch_key);
  values.push_back(epoch);
  const std::string count = std::to_string(keys.size());
  std::vector<std::string_view> words{"EVAL", checked_command, "0", "untyped", "0", count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), values.begin(), values.end());
  words.insert(words.end(), command.begin(), command.end());
  send(words, std::move(done), deadline);
  return true;
}

bool redis_control::run_raising(const presented_claims& wanted, const std::vector<std::string>& command,
                                time_point deadline, std::function<void(const wire::reply_value*)> done) {
  const auto epoch = state_->look().epoch;
  if (!up_ || epoch.empty()) return false;
  std::vector<std::string> keys, grants, tokens, least, seen;
  for (const auto& [resource, presented] : wanted.claims) {
    const bool from_any = wanted.max_step <= 0 || presented.value() <= wanted.max_step;
    const auto cell = state_->marks.cell(resource);
    if (!cell->kept) return refuse_too_many(done), true;
    keys.push_back(cell->key);
    grants.push_back(cell->grant_key());
    tokens.push_back(presented.to_string());
    least.push_back(std::to_string(from_any ? 0 : presented.value() - wanted.max_step));
    seen.push_back(cell->seen() ? cell->seen()->to_string() : "");
  }
  keys.insert(keys.end(), grants.begin(), grants.end());
  keys.emplace_back(epoch_key);
  const std::string count = std::to_string(keys.size());
  std::vector<std::string_view> words{"EVAL", raise_marks, count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), {epoch, wanted.spends ? "spend" : "raise"});
  for (const auto* part : std::initializer_list<const std::vector<std::string>*>{&tokens, &least, &seen, &command})
    words.insert(words.end(), part->begin(), part->end());
  send(words, std::move(done), deadline);
  return true;
}

bool redis_control::ask_marks(const std::vector<fence::claim>& claims, time_point deadline,
                              std::function<void(std::optional<bool>)> done) {
  const auto epoch = state_->look().epoch;
  if (!up_ || epoch.empty()) return false;
  std::vector<std::shared_ptr<mark_cell>> cells;
  cells.reserve(claims.size());
  for (const auto& one : claims) cells.push_back(state_->marks.cell(one.resource));
  const auto kept = [](const auto& cell) { return cell->kept; };
  const auto all = std::make_shared<bool>(std::all_of(cells.begin(), cells.end(), kept));
  for (std::size_t i = 0; i < claims.size(); ++i)
    send(
        {"GETEX", cells[i]->key, "PERSIST"},
        [all, token = claims[i].presented.to_string()](const wire::reply_value* reply) {
          *all = *all && detail::is_value(reply, token);
        },
        deadline);
  auto on_epoch = [all, epoch, done = std::move(done)](const wire::reply_value* reply) {
    if (reply == nullptr) return done(std::nullopt);
    done(*all && detail::is_value(reply, epoch));
  };
  send({"GET", epoch_key}, std::move(on_epoch), deadline);
  return true;
}

namespace {

// Redis keeps the passwords of MIGRATE out of SLOWLOG and MONITOR, but not those of a question about it.
void hide_passwords(std::vector<std::string_view>& migrate) {
  constexpr std::size_t options = 6;  // MIGRATE host port key database timeout
  for (std::size_t i = options; i < migrate.size() && !wire::iequals(migrate[i], "KEYS"); ++i) {
    const std::size_t words = wire::iequals(migrate[i], "AUTH") ? 1 : wire::iequals(migrate[i], "AUTH2") ? 2 : 0;
    for (std::size_t word = 0; word < words && i + 1 < migrate.size(); ++word) migrate[++i] = "(redacted)";
  }
}

}  // namespace

void redis_control::keys_of(const std::vector<std::string>& arguments,
                            std::function<void(std::optional<std::vector<std::string>>)> done) {
  std::vector<std::string_view> words(arguments.begin(), arguments.end());
  if (!words.empty() && wire::iequals(words[0], "MIGRATE")) hide_passwords(words);
  std::vector<std::string_view> command{"COMMAND", "GETKEYS"};
  command.insert(command.end(), words.begin(), words.end());
  send(command, [done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply) || reply->type != '*') {
      // "The command has no key arguments" is an answer, too.
      if (reply != nullptr && reply->text.find("no key arguments") != std::string_view::npos)
        return done(std::vector<std::string>{});
      return done(std::nullopt);
    }
    std::vector<std::string> keys;
    for (const auto& one : reply->elements) keys.emplace_back(one.text);
    done(std::move(keys));
  });
}

// ── marks that the backend lost ─────────────────────────────────────────────────────────────────────────────────────────

void redis_control::heal_late() {
  auto late = state_->marks.take_late();
  std::erase_if(late.these, [](const auto& cell) { return !cell->seen(); });
  if (late.these.empty() && !late.all) return;
  const std::string epoch = state_->look().epoch;
  const auto healing = std::make_shared<mark_healing>(epoch_guard{epoch_key, epoch, epoch}, std::move(late.these));
  if (late.all) healing->and_all(mark_memory::walk(state_->marks));
  heal_more(healing);
}

void redis_control::heal_all(epoch_guard guard) {
  doubted_ = false;
  state_->marks.note_loss();
  state_->marks.note_listing();
  if (guard.key == healing_key) static_cast<void>(state_->marks.take_late());  // they are among all
  const auto healing = std::make_shared<mark_healing>(std::move(guard), mark_memory::cells());
  healing->and_all(mark_memory::walk(state_->marks));
  heal_more(healing);
}

void redis_control::heal_more(const std::shared_ptr<mark_healing>& healing) {
  while (auto cell = healing->begin_next()) {
    auto a = std::make_shared<attempt>();
    a->cell = std::move(cell);
    a->wanted = a->target = *a->cell->seen();
    a->healing = healing;
    a->done = [self = shared_from_this(), healing, mine = connection_,
               put_back = a->cell](const raise_outcome& outcome) {
      auto& marks = self->state_->marks;
      const bool failed = outcome.what == raise_outcome::kind::unavailable;
      const bool of_late = healing->guard().of_late();
      if (failed && of_late) marks.came_late(put_back);
      healing->one_done(failed && !of_late ? std::string(put_back->resource) + ": " + outcome.detail : std::string());
      if (of_late && mine != self->connection_) healing->give_back_rest(marks);
      // A lost connection begins anew with everything.
      if (mine == self->connection_) self->heal_more(healing);
    };
    try_raise(a);
  }
  if (healing->over()) healed(*healing);
}

void redis_control::healed(const mark_healing& healing) {
  if (healing.lost() > limits::lost_marks_logged_max)
    state_->event().add("marks", static_cast<std::int64_t>(healing.lost())).write(log::level::error, "marks went back");
  if (healing.guard().of_late()) return;
  at_work_ = false;
  if (!healing.problem().empty()) {
    doubted_ = true;
    // Another thread of this process was first to settle it.
    if (state_->look().epoch != healing.guard().known) return inspect();
    if (std::exchange(not_put_back_, healing.problem()) != healing.problem())
      state_->event().add("detail", healing.problem()).write(log::level::error, "marks not put back");
    return unfit("marks that the backend lost could not be put back: " + healing.problem());
  }
  if (healing.guard().key == healing_key) return all_put_back(healing.guard().value);
  healthy(healing.guard().value);
}

}  // namespace fencegate::backend
