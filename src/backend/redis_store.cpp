#include "backend/redis_store.hpp"

#include "backend/command_table.hpp"
#include "backend/redis_replies.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

// How often marks are raised for one request before others win.
constexpr int attempts_max = 4;

// What the scripts answer when a mark is not what it has to be, and in front of an error of the command itself.
constexpr std::string_view mark_moved = "FENCEGATEMARK ", command_failed = "FENCEGATERAN ";
// A mark that only seals raise.
constexpr std::string_view leased = "FENCEGATELEASED ";
// And in place of an integer that is beyond Lua's numbers; behind it are its digits, or nothing.
constexpr std::string_view counted_far = "FENCEGATEINT ";

settings::redis_gate as_gate(const std::string& gate, const settings::mark_store& store) {
  settings::redis_gate out;
  out.name = gate;
  out.upstream = store.where;
  out.secured = store.secured;
  out.control = store.login;
  out.limits_time.connect = store.connect;
  return out;
}

// A double has other integers for it, too.
bool is_inexact(const wire::reply_value& reply) {
  constexpr std::int64_t first = std::int64_t{1} << 53;
  std::int64_t value = 0;
  const auto [end, failed] = std::from_chars(reply.text.data(), reply.text.data() + reply.text.size(), value);
  return reply.type == ':' && (failed != std::errc{} || value >= first || value <= -first);
}

redis_reply nil() { return {'_', {}, true, {}}; }

redis_reply owned(const wire::reply_value& from, command_outcome::lack& lacks) {
  if (is_inexact(from)) {
    lacks = command_outcome::lack::digits;
    return nil();
  }
  redis_reply out{from.type, std::string(from.text), from.null, {}};
  for (const auto& one : from.elements) out.elements.push_back(owned(one, lacks));
  return out;
}

// "" when a script may run it, or why not.
std::string_view unfit_command(const command_table& commands, const std::vector<std::string>& command, bool read_only) {
  if (command.empty() || command[0].empty()) return "there is no command";
  const std::vector<std::string_view> words(command.begin(), command.end());
  const auto& spec = commands.find(words[0], words.size() > 1 ? words[1] : std::string_view{});
  switch (spec.role) {
    case command_role::read: break;
    case command_role::write:
      if (read_only) return "a command that may write, in a request that only reads";
      break;
    case command_role::refused: return "a command that could damage marks or escape the fence";
    default: return "a command that has no place in an HTTP route";
  }
  if (spec.noscript) return "Redis does not run this command in a script, which is how it is checked";
  std::vector<std::size_t> keys;
  const auto search = find_keys(spec, words, keys);
  bool reserved = search != key_search::found && std::any_of(words.begin() + 1, words.end(), is_reserved);
  for (const auto at : keys) reserved = reserved || is_reserved(words[at]);
  return reserved ? "keys that begin with fencegate: belong to the fence" : std::string_view{};
}

}  // namespace

struct redis_store::attempt {
  link by;
  clock::time_point deadline;
  presented_claims wanted;
  std::vector<std::string> command;  // empty: only raises
  run_callback done;                 // on the link's thread
  int tries = 0;
  std::uint64_t losses = 0;  // of marks, when it was sent; so is this
  mark_memory::moment then{};
  bool asked = false;  // whether all is there already, and it was not
  clock::time_point sent{};

  [[nodiscard]] bool only_raises() const { return command.empty(); }
  void reject(fence::rejection why) const { done({.what = command_outcome::kind::rejected, .why = std::move(why)}); }
  void unknown(std::string detail) const {
    done({.what = command_outcome::kind::unknown, .detail = std::move(detail)});
  }
};

redis_store::redis_store(const std::vector<asio::io_context*>& threads, const std::string& gate,
                         const settings::mark_store& store, metrics::gate& stats)
    : settings_(as_gate(gate, store)), state_(std::make_shared<redis_state>(settings_, stats, store.name)) {
  for (auto* one : threads) places_.push_back({*one, std::make_shared<redis_control>(*one, state_)});
}

void redis_store::start(const std::shared_ptr<void>& unsettled) {
  for (const auto& one : places_)
    asio::post(one.thread, [control = one.control, unsettled] { control->start(unsettled); });
}

void redis_store::stop(const asio::io_context& thread) {
  for (const auto& one : places_)
    if (&one.thread == &thread) one.control->stop();
}

// ── looking and raising ─────────────────────────────────────────────────────────────────────────────────────────────

void redis_store::look(store_caller from, std::vector<std::string> resources, look_callback done) {
  auto begin = [self = shared_from_this(), from, resources = std::move(resources),
                done = std::move(done)](const link& by) {
    self->look_next(by, resources, std::make_shared<std::vector<looked_mark>>(),
                    [from, done](auto found) { answer(from, done, std::move(found)); });
  };
  on_link(from, std::move(begin));
}

void redis_store::look_next(const link& by, const std::vector<std::string>& resources,
                            const std::shared_ptr<std::vector<looked_mark>>& found, const look_callback& done) {
  if (found->size() == resources.size()) return done(std::move(*found));
  const auto& name = resources[found->size()];
  auto on_mark = [self = shared_from_this(), by, resources, found, done](const mark_reading& reading) {
    if (!reading.detail.empty()) return done(unavailable(reading.detail));
    found->push_back({resources[found->size()], reading.mark, 0, reading.epoch});
    self->look_next(by, resources, found, done);
  };
  by->read(state_->marks.cell(name), std::move(on_mark));
}

void redis_store::seal(store_caller from, presented_claims wanted, seal_callback done) {
  using result = store_result<std::vector<sealed_mark>>;
  if (auto why = known_rejected(state_->marks, wanted)) return answer(from, done, result(*why));
  auto begin = [self = shared_from_this(), from, wanted = std::move(wanted), done = std::move(done)](const link& by) {
    self->seal_now(by, from.deadline, wanted, [from, done](auto sealed) { answer(from, done, std::move(sealed)); });
  };
  on_link(from, std::move(begin));
}

void redis_store::seal_now(const link& by, clock::time_point deadline, const presented_claims& wanted,
                           seal_callback done) {
  if (wanted.claims.empty()) return done(std::vector<sealed_mark>{});
  auto on_done = [&stats = state_->stats, claims = wanted.claims,
                  done = std::move(done)](const command_outcome& outcome) {
    if (outcome.what == command_outcome::kind::rejected) return done(outcome.why);
    if (outcome.what != command_outcome::kind::done) return done(unavailable(outcome.detail));
    std::vector<sealed_mark> marks;
    marks.reserve(claims.size());
    for (std::size_t i = 0; i < claims.size(); ++i) {
      marks.push_back({claims[i], outcome.reply.elements[i].text != claims[i].presented.to_string()});
      if (marks.back().raised) stats.raises_total.add();
    }
    done(std::move(marks));
  };
  try_run(std::make_shared<attempt>(attempt{by, deadline, wanted, {}, std::move(on_done)}));
}

// ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_store::run(const store_caller& from, presented_claims wanted, std::vector<std::string> command,
                      run_callback done) {
  using kind = command_outcome::kind;
  if (auto why = known_rejected(state_->marks, wanted))
    return answer(from, done, command_outcome{.what = kind::rejected, .why = *why});
  if (command.empty()) {
    const fence::rejection none{fence::reason::refused, {}, {}, {}, "there is no command"};
    return answer(from, done, command_outcome{.what = kind::rejected, .why = none});
  }
  const auto deadline = from.deadline;
  auto tell = [from, done = std::move(done)](command_outcome out) { answer(from, done, std::move(out)); };
  auto a = std::make_shared<attempt>(attempt{{}, deadline, std::move(wanted), std::move(command), std::move(tell)});
  on_link(from, [self = shared_from_this(), a](const link& by) {
    a->by = by;
    self->try_run(a);
  });
}

void redis_store::try_run(const std::shared_ptr<attempt>& a) {
  if (++a->tries > attempts_max) return a->reject(unavailable("its mark is raised by others all the time"));
  if (clock::now() >= a->deadline) return a->reject(unavailable("there was no answer in time"));
  if (const auto& problem = a->by->problem(); !problem.empty()) return a->reject(unavailable(problem));
  const auto unfit =
      a->only_raises() ? std::string_view{} : unfit_command(*state_->look().commands, a->command, a->wanted.read_only);
  if (!unfit.empty()) return a->reject({fence::reason::refused, {}, {}, {}, std::string(unfit)});
  if (a->wanted.read_only && !a->wanted.claims.empty()) return look_first(a);
  if (a->only_raises()) return !a->asked && expects_no_rise(a->wanted) ? ask_first(a) : send_raising(a);
  if (a->wanted.spends && !a->wanted.claims.empty()) return send_raising(a);
  send(a, a->wanted.claims);
}

void redis_store::send(const std::shared_ptr<attempt>& a, const std::vector<fence::claim>& marks) {
  a->sent = clock::now();
  a->then = state_->marks.now(0);
  auto on_answer = [self = shared_from_this(), a](const wire::reply_value* reply) { self->on_reply(a, reply); };
  const auto sent = a->by->run_checked(marks, a->command, a->deadline, std::move(on_answer));
  if (!sent) return a->reject(unavailable("there is no connection to Redis"));
  a->then.lowerings = *sent;
}

// Where this process has seen each mark at its token, most probably nothing is to be raised.
bool redis_store::expects_no_rise(const presented_claims& wanted) const {
  return !wanted.spends && std::all_of(wanted.claims.begin(), wanted.claims.end(), [this](const auto& one) {
    return state_->marks.seen(one.resource) == one.presented;
  });
}

// Then the marks and the epoch themselves are proof enough, and cost Redis less than the script, which answers the same.
// It has the word in every other case: it raises, notices what went back, and says what Redis refuses.
void redis_store::ask_first(const std::shared_ptr<attempt>& a) {
  a->asked = true;
  a->sent = clock::now();
  a->then = state_->marks.now(0);
  auto on_answer = [self = shared_from_this(), a](std::optional<bool> proven) {
    if (!proven) return self->on_reply(a, nullptr);
    if (!*proven) {
      --a->tries;
      return self->try_run(a);
    }
    self->state_->stats.check_duration_seconds.observe(clock::now() - a->sent);
    redis_reply marks{'*', {}, false, {}};
    for (const auto& one : a->wanted.claims) {
      self->state_->marks.saw_since(a->then, self->state_->marks.cell(one.resource), one.presented);
      marks.elements.push_back({'$', one.presented.to_string(), false, {}});
    }
    a->done({.what = command_outcome::kind::done, .reply = std::move(marks)});
  };
  const auto sent = a->by->ask_marks(a->wanted.claims, a->deadline, std::move(on_answer));
  if (!sent) return a->reject(unavailable("there is no connection to Redis"));
  a->then.lowerings = *sent;
}

// All in one script: of those who bring the same tokens at the same time, one is first.
void redis_store::send_raising(const std::shared_ptr<attempt>& a) {
  a->sent = clock::now();
  a->losses = state_->marks.losses();
  a->then = state_->marks.now(0);
  auto on_answer = [self = shared_from_this(), a](const wire::reply_value* reply) { self->on_reply(a, reply); };
  const auto sent = a->by->run_raising(a->wanted, a->command, a->deadline, std::move(on_answer));
  if (!sent) return a->reject(unavailable("there is no connection to Redis"));
  a->then.lowerings = *sent;
}

// Redis raised them, and lost them before that was read: too late for those that were put back.
void redis_store::raised_too_early(const std::shared_ptr<attempt>& a) {
  if (!a->wanted.spends) return try_run(a);
  a->unknown("Redis lost its marks meanwhile, and perhaps this");
}

// Redis found a mark from which this does not go, and nothing was raised. Which it was, is asked and judged here.
void redis_store::explain(const std::shared_ptr<attempt>& a) {
  std::vector<std::string> names;
  for (const auto& one : a->wanted.claims) names.push_back(one.resource);
  auto on_marks = [self = shared_from_this(), a](const store_result<std::vector<looked_mark>>& found) {
    if (!found) return a->reject(found.error());
    if (auto why = known_rejected(self->state_->marks, a->wanted)) return a->reject(std::move(*why));
    for (std::size_t i = 0; i < found->size(); ++i) {
      const auto& [resource, presented] = a->wanted.claims[i];
      const auto mark = (*found)[i].mark;
      if (fence::compare(presented, mark, a->wanted.rules()) == fence::comparison::jump)
        return a->reject({fence::reason::jump, resource, presented, mark, {}});
    }
    // Not the marks, then: perhaps the epoch is another.
    a->by->recheck([self, a] { self->try_run(a); });
  };
  look_next(a->by, names, std::make_shared<std::vector<looked_mark>>(), std::move(on_marks));
}

// A request that only reads raises nothing: its check is that the marks are still what they were when they were looked at.
void redis_store::look_first(const std::shared_ptr<attempt>& a) {
  std::vector<std::string> names;
  for (const auto& one : a->wanted.claims) names.push_back(one.resource);
  auto on_marks = [self = shared_from_this(), a](const store_result<std::vector<looked_mark>>& found) {
    if (!found) return a->reject(found.error());
    if (auto stale = known_rejected(self->state_->marks, a->wanted)) return a->reject(std::move(*stale));
    std::vector<fence::claim> marks;
    for (const auto& one : *found)
      if (one.mark) marks.push_back({one.resource, *one.mark});
    self->send(a, marks);
  };
  look_next(a->by, names, std::make_shared<std::vector<looked_mark>>(), std::move(on_marks));
}

void redis_store::on_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply) {
  if (reply == nullptr)
    return a->unknown(clock::now() < a->deadline ? "the connection to Redis was lost" : "there was no answer in time");
  if (!detail::is_error(reply)) {
    auto lacks = command_outcome::lack::nothing;
    auto mine = owned(*reply, lacks);
    return on_applied(a, std::move(mine), lacks);
  }
  if (reply->text == detail::reply_too_large) return on_too_large(a);
  if (reply->text.starts_with(counted_far)) {
    std::string digits(reply->text.substr(counted_far.size()));
    if (digits.empty()) return on_applied(a, nil(), command_outcome::lack::digits);
    return on_applied(a, {':', std::move(digits), false, {}}, command_outcome::lack::nothing);
  }
  if (reply->text.starts_with(command_failed)) {
    redis_reply error{'-', std::string(reply->text.substr(command_failed.size())), false, {}};
    return a->done({.what = command_outcome::kind::failed, .reply = std::move(error)});
  }
  if (reply->text.starts_with(leased)) {
    const auto which = detail::read_refusal(reply->text.substr(leased.size()), a->wanted.claims);
    if (!which) return a->reject(unavailable(std::string(reply->text)));
    return a->reject({fence::reason::jump, which->claim->resource, which->claim->presented, which->mark,
                      std::string(fence::raised_by_leases_only)});
  }
  // Any other error is the script's own: the command did not run.
  if (!reply->text.starts_with(mark_moved)) return a->reject(unavailable(std::string(reply->text)));
  if (a->wanted.read_only) {
    if (a->tries == 1) return try_run(a);  // a mark has moved, mostly
    return a->by->recheck([self = shared_from_this(), a] { self->try_run(a); });
  }
  if (a->wanted.spends || a->only_raises()) return explain(a);
  auto on_sealed = [self = shared_from_this(), a](const store_result<std::vector<sealed_mark>>& sealed) {
    if (!sealed) return a->reject(sealed.error());
    self->try_run(a);
  };
  seal_now(a->by, a->deadline, a->wanted, std::move(on_sealed));
}

void redis_store::on_applied(const std::shared_ptr<attempt>& a, redis_reply reply, command_outcome::lack lacks) {
  if (a->only_raises() && (reply.type != '*' || reply.elements.size() != a->wanted.claims.size()))
    return a->reject(unavailable("an unexpected reply"));
  if (!a->wanted.claims.empty()) state_->stats.check_duration_seconds.observe(clock::now() - a->sent);
  if (!a->wanted.read_only)
    for (const auto& one : a->wanted.claims)
      state_->marks.saw_since(a->then, state_->marks.cell(one.resource), one.presented);
  if ((a->wanted.spends || a->only_raises()) && a->losses != state_->marks.losses()) return raised_too_early(a);
  if (a->wanted.spends && !a->only_raises()) state_->stats.raises_total.add(a->wanted.claims.size());
  a->done({.what = command_outcome::kind::done, .lacks = lacks, .reply = std::move(reply)});
}

// The command has run, and what it answered has passed by. Others, on the same connection, were only kept waiting.
void redis_store::on_too_large(const std::shared_ptr<attempt>& a) {
  if (!a->wanted.read_only) return on_applied(a, nil(), command_outcome::lack::all);
  const std::string why = "the reply is larger than " + std::to_string(limits::redis_reply_bytes_max) +
                          " bytes, or has more than " + std::to_string(limits::redis_reply_values_max) + " values";
  a->done({.what = command_outcome::kind::failed, .lacks = command_outcome::lack::all, .reply = {'-', why, false, {}}});
}

}  // namespace fencegate::backend
