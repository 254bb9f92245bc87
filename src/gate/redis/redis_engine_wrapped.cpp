// Single commands with their check: writes behind it, in a script; reads in front of it.
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "gate/redis/blocking.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_spec;
using fence::reason;
using fence::rejection;

namespace {

// Lua's unpack() ends at about 8,000 values, the marks included.
constexpr std::size_t wrapped_arguments_max = 7'000;

// A type of BITFIELD: i54 to i64, u54 to u63.
bool is_wide_integer(std::string_view word) {
  const std::size_t bytes = 3;
  if (word.size() != bytes || (word[0] != 'i' && word[0] != 'I' && word[0] != 'u' && word[0] != 'U')) return false;
  return word.substr(1) >= "54" && word.substr(1) <= "64";
}

// Where RESP2 has two nulls: what a script answers is always the other one.
bool answers_null_array(const command_spec& spec, std::size_t arguments) {
  const std::size_t with_count = 3;
  if (spec.name == "lpop" || spec.name == "rpop") return arguments == with_count;
  return spec.name == "lmpop" || spec.name == "zmpop" || spec.name == "xreadgroup" ||
         spec.role == backend::command_role::blocking_write;
}

// Without its time-out: nothing waits in a script, and XREADGROUP may not be asked to.
void append_unblocked(std::vector<std::string_view>& to, const std::vector<std::string_view>& command,
                      const command_spec& spec) {
  auto rest = command.begin(), end = command.end();
  if (const auto takes = taken_by(spec.name); !takes.empty()) {
    to.push_back(takes);
    ++rest;
    --end;
  } else if (spec.name == "xreadgroup") {
    const auto option = [&](std::string_view name) {
      return std::find_if(rest, end, [&](std::string_view word) { return wire::iequals(word, name); });
    };
    const std::ptrdiff_t options = 4;  // XREADGROUP GROUP group consumer
    to.insert(to.end(), rest, rest + std::min(options, end - rest));
    rest += std::min(options, end - rest);
    end = option("STREAMS");
    const auto block = option("BLOCK");
    to.insert(to.end(), rest, block);
    rest = block + std::min<std::ptrdiff_t>(2, end - block);
    end = command.end();
  }
  to.insert(to.end(), rest, end);
}

// See backend::checked_command.
std::string_view how_to_answer(int protocol, const command_spec& spec) {
  using enum backend::script_answer;
  if (!taken_by(spec.name).empty()) return "first";
  if (protocol == 3 && spec.in_script == typed) return "typed";
  if (protocol == 3 && spec.in_script == streams) return "streams";
  return "untyped";
}

}  // namespace

// Why a write cannot run in the wrapper script and be answered as it should.
std::optional<std::string_view> redis_engine::refusal_in_script(const std::vector<std::string_view>& command,
                                                                const command_spec& spec) const {
  using enum backend::script_answer;
  if (!backend::writes(spec.role)) return std::nullopt;
  if (!taken_by(spec.name).empty()) return std::nullopt;
  if (command.size() > wrapped_arguments_max) return "too many arguments for a script; put the command behind MULTI";
  if (connection_.protocol == 3 && spec.in_script == unknown)
    return "RESP3's answer of this command does not survive a script; put it behind MULTI, or use RESP2";
  if (spec.name == "bitfield" && std::any_of(command.begin(), command.end(), is_wide_integer))
    return "integers this wide do not survive a script; put the command behind MULTI";
  return std::nullopt;
}

redis_engine::progress redis_engine::wrap_command(const wire::request& r, const command_spec& spec,
                                                  const claims::verdict& verdict) {
  if (!link_.batch.empty()) return block();
  if (const auto why = refusal_in_script(r.arguments, spec)) {
    reject({reason::refused, {}, {}, {}, std::string(*why)}, r.name());
    return progress::taken;
  }
  if (!spec.fits(r.arguments.size())) {
    reply_local(wrong_arity(spec));
    return progress::taken;
  }
  std::vector<const bound_claim*> under;
  for (std::size_t i = 0; i < claims_.items().size(); ++i) {
    if ((verdict.required >> i & 1) == 0) continue;
    under.push_back(&claims_.items()[i]);
    // Only reads come here under a used token.
    if (under.back()->rules.spends() && under.back()->status != claim_status::used) {
      reject({reason::refused,
              std::string(under.back()->cell->resource),
              under.back()->presented,
              {},
              "with equal_token: reject this command cannot stand here; put it behind MULTI"},
             r.name());
      return progress::taken;
    }
  }
  if (verdict.monitored != 0 && !connection_.caching) link_.look();  // (CLIENT CACHING is meant for the command itself)
  wrap(r.arguments, spec, under, r);
  if (verdict.watched()) note(single_.notes, verdict, !backend::writes(spec.role), name_of(r, spec));
  return progress::taken;
}

// Sends one command with its check: a write behind it, in a script; a read in front of it. REQUIRES: the link is open.
void redis_engine::wrap(const std::vector<std::string_view>& command, const command_spec& spec,
                        const std::vector<const bound_claim*>& under, const wire::request& whole) {
  single_ = wrapped{};
  if (whole.inlined)
    wire::append_command(single_.raw, whole.arguments);
  else
    single_.raw = std::string(whole.raw);
  single_.name = std::string(whole.name());
  for (const auto* one : under) {
    single_.cells.push_back(one->cell);
    single_.tokens.push_back(one->digits);
    single_.presented.push_back(one->presented);
  }
  single_.epoch = host_.snapshot().epoch;
  single_.asked = marks_.now(host_.snapshot().lowerings);
  single_.muted = muted_;
  if (!replay_.empty()) single_.how = replay_.front().how;
  phase_ = phase::single;
  if (!backend::writes(spec.role)) return look_behind(command);
  single_.null_array = connection_.protocol == 2 && answers_null_array(spec, command.size());
  single_.polled = still_polling();
  const std::string keys = std::to_string(under.size() + 1);
  const std::string database = std::to_string(link_.database);
  std::vector<std::string_view> eval{
      "EVAL", backend::checked_command, "0", how_to_answer(connection_.protocol, spec), database, keys};
  for (const auto& one : single_.cells) eval.push_back(one->key);
  eval.push_back(backend::epoch_key);
  eval.insert(eval.end(), single_.tokens.begin(), single_.tokens.end());
  eval.push_back(single_.epoch);
  append_unblocked(eval, command, spec);
  wire::append_command(to_backend, eval);
  link_.expect({awaits::single, muted_});
}

// Redis answers the read itself, and tells the marks behind it. Marks only rise: one that equals its token now did so in front
// of the read, too. Until that is known the answer stays here.
void redis_engine::look_behind(const std::vector<std::string_view>& command) {
  wire::append_command(to_backend, command);
  link_.expect({awaits::held_read});
  std::vector<std::string_view> mget{"MGET"};
  for (const auto& one : single_.cells) mget.push_back(one->key);
  mget.push_back(backend::epoch_key);
  link_.ask_marks(mget, awaits::marks_behind);
}

void redis_engine::look_behind_done(std::string_view raw) {
  const auto found = link_.asked_marks(raw);
  if (!found) {
    single_.error = found.error().message;
    return single_done();
  }
  std::vector<std::string> expected = single_.tokens;
  expected.push_back(single_.epoch);
  const auto same = [](const std::string& wanted, const wire::reply_value& is) {
    return !is.null && is.text == wanted;
  };
  single_.mark_moved = !std::equal(expected.begin(), expected.end(), found->begin(), found->end(), same);
  if (!single_.mark_moved && !single_.muted) {
    to_client += single_.too_large ? fence::redis_error({reason::refused,
                                                         {},
                                                         {},
                                                         {},
                                                         "an answer larger than 1 MiB cannot be fenced here; "
                                                         "put the read behind MULTI"})
                                   : single_.answer;
  }
  single_done();
}

// The script says which errors are the command's own; any other means that the command did not run.
void redis_engine::start_single(const wire::reply_head& head) {
  constexpr std::string_view ran = "FENCEGATERAN ", integer = "FENCEGATEINT ";
  const auto answer = [&](const std::string& text) {
    if (!single_.muted) to_client += text;
  };
  if (single_.polled && head.is_null()) {
    poll_.in_vain = true;
    return link_.begin(head, sink::drop);
  }
  single_.polled = false;
  if (single_.null_array && head.is_null()) {
    answer(nil_text());
    return link_.begin(head, sink::drop);
  }
  if (!head.is_error()) return link_.begin(head, single_.muted ? sink::drop : sink::answers);
  if (head.type == '-' && head.line.starts_with(ran)) {
    // Before 7.2 a script hears of a missing right by another code.
    constexpr std::string_view no_right = "ERR The user executing the script";
    const auto said = head.line.substr(ran.size());
    answer((said.starts_with(no_right) ? "-NOPERM " + std::string(said.substr(4)) : "-" + std::string(said)) + "\r\n");
  } else if (head.type == '-' && head.line.starts_with(integer)) {
    const auto digits = head.line.substr(integer.size());
    answer(digits.empty() ? "-ERR applied; the result is beyond 2^53, and this user may not read it\r\n"
                          : ":" + std::string(digits) + "\r\n");
  } else if (head.type == '-' && head.line.starts_with("FENCEGATEMARK")) {
    single_.mark_moved = true;
  } else {
    single_.error = head.type == '-' ? std::string(head.line) : "an unexpected reply";
  }
  link_.begin(head, sink::drop);
}

void redis_engine::single_done() {
  phase_ = phase::ready;
  if (!single_.mark_moved) {
    const wrapped done = std::exchange(single_, wrapped{});
    batch_attempts_ = 0;
    if (std::exchange(poll_.in_vain, false)) return wait_and_poll(done.raw, done.muted);
    poll_.since.reset();
    if (done.error.empty()) {
      for (std::size_t i = 0; i < done.cells.size(); ++i)
        marks_.saw_since(done.asked, done.cells[i], done.presented[i]);
      if (done.notes.empty()) stats_.checks(metrics::check_outcome::admitted).add();
      return book(done.notes);
    }
    const rejection why{reason::unavailable, {}, {}, {}, done.error};
    if (armed_link::is_native_error(done.error))
      stats_.checks(metrics::check_outcome::unavailable).add();
    else
      host_.report(why, done.name, false);
    if (!done.muted) to_client += link_error(done.error, why);
    return;
  }
  // Not applied. The marks are read again (and put right), then the command is judged anew.
  from_client.prepend(single_.raw);
  decoder_.reset_progress();
  const bool give_up = ++batch_attempts_ > limits::batch_attempts_max;
  replay_.push_front(
      {give_up ? replayed::route::give_up : single_.how, single_.muted, std::string(give_up ? marks_move : "")});
  if (give_up) batch_attempts_ = 0;
  phase_ = phase::waiting;
  auto left = std::make_shared<std::size_t>(single_.cells.size() + 1);
  auto one_done = [this, left] {
    if (--*left != 0) return;
    phase_ = phase::ready;
    resume();
  };
  const auto cells = single_.cells;  // answers at once may begin the next one
  for (const auto& cell : cells) host_.read_mark(cell, [one_done](const backend::mark_reading&) { one_done(); });
  host_.recheck(one_done);
}

}  // namespace fencegate::gate
