// Sharing: a small write that arrives alone, on a connection that the server knows nothing else of than what another link
// can be given, too, may go with those of others. See gate/shared_writes.hpp.
#include "base/limits.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using backend::command_spec;

namespace {

// A write that fails, or comes back, holds up the others on its link: the next so many of its client go on their own, twice
// as many each time until one succeeds.
constexpr int own_turns_max = 64;

bool is_set_get(const wire::request& r) {
  const auto is_get = [](std::string_view word) { return wire::iequals(word, "GET"); };
  return wire::iequals(r.name(), "SET") && r.arguments.size() > 3 &&
         std::any_of(r.arguments.begin() + 3, r.arguments.end(), is_get);
}

}  // namespace

// This link is armed, too: its own server has shown the marks that the shared link's shows.
bool redis_engine::may_share(const wire::request& r, const command_spec& spec, claim_mask required) const {
  if (gate_.share_writes_from == 0 || private_ || serves_others_ || !spec.short_answer || is_set_get(r) || r.inlined ||
      consumed_ != from_client.size() || r.raw.size() > limits::shared_command_bytes_max)
    return false;
  if (phase_ != phase::armed || (required & ~armed_mask_) != 0 || !expectations_.empty() || !batch_.commands.empty() ||
      !replay_.empty() || muted_ || client_watching_ || subscriptions_ > 0)
    return false;
  return std::all_of(claims_.items().begin(), claims_.items().end(), [](const bound_claim& one) {
    return one.status == claim_status::held && one.rules.equal == fence::equal_token::accept;
  });
}

bool redis_engine::share(const wire::request& r, const command_spec& spec) {
  if (own_turns_ > 0) {
    --own_turns_;
    return false;
  }
  if (server_.empty() || !host_.share(my_likeness(), r.raw)) return false;
  count(spec);
  counted_ = true;
  phase_before_wait_ = phase_;
  phase_ = phase::shared;
  return true;
}

// A link opened later may lead to another server, by the same address. Ahead of an arm the question costs no round trip.
void redis_engine::ask_identity() {
  if (gate_.share_writes_from == 0 || private_ || serves_others_ || !server_.empty()) return;
  wire::append_command_of(to_backend, std::string_view("INFO"), std::string_view("server"));
  expectations_.push_back({awaits::identity});
}

void redis_engine::identity_done() {
  const auto info = std::exchange(captured_, {});
  pop_expectation();
  server_ = server_in(info);
  const bool passing = info.starts_with('-') && is_native_error(std::string_view(info).substr(1));
  private_ = private_ || (server_.empty() && !passing);
}

// Redis 7.0 notes for WAIT, at each command of a connection, how far the data are; since 7.2 only at those that change
// them, and WAIT would not see what went over another link. Before 7.0 COMMAND does not tell of subcommands.
std::string redis_engine::server_in(std::string_view info) {
  const auto field = [&](std::string_view name) {
    const auto at = info.find("\n" + std::string(name) + ":");
    if (at == std::string_view::npos) return std::string_view{};
    const auto text = info.substr(at + name.size() + 2);
    return text.substr(0, text.find('\r'));
  };
  return field("redis_version").starts_with("7.0.") ? std::string(field("run_id")) : std::string();
}

bool redis_engine::arm_ahead() {
  claims_.learn_from_memory();
  if (!host_.picture().ready || claims_.items().empty() || claims_.refusal(~claim_mask{0})) return false;
  tries_ = 0;
  start_arm();
  return true;
}

// What makes another link like this one. REQUIRES: all claims are held.
const likeness& redis_engine::my_likeness() {
  if (like_.claims == claims_.generation() && like_.protocol == protocol_ && like_.database == database_ &&
      like_.sign_ins == sign_ins_)
    return like_.value;
  like_ = {claims_.generation(), protocol_, database_, sign_ins_, {}};
  auto& like = like_.value;
  like.server = server_;
  const auto add = [&](const auto&... words) {
    wire::append_command_of(like.bytes, words...);
    ++like.commands;
  };
  if (!sign_in_.empty()) {
    like.bytes += sign_in_;
    ++like.commands;
  }
  if (protocol_ != 2) add(std::string_view("HELLO"), std::to_string(protocol_));
  if (database_ != 0) add(std::string_view("SELECT"), std::to_string(database_));
  std::string name = "fencegate-shared;fence:";
  for (const auto& one : claims_.items()) {
    if (&one != &claims_.items().front()) name += ',';
    name.append(one.cell->resource).append("=").append(one.digits);
  }
  add(std::string_view("CLIENT"), std::string_view("SETNAME"), name);
  add(std::string_view("INFO"), std::string_view("server"));
  return like;
}

void redis_engine::on_shared(std::optional<std::string_view> answer) {
  if (phase_ != phase::shared) return;
  phase_ = phase_before_wait_;
  if (answer && !answer->starts_with('-')) {
    own_turns_next_ = 1;
  } else {
    own_turns_ = own_turns_next_;
    own_turns_next_ = std::min(2 * own_turns_next_, own_turns_max);
  }
  if (answer) {
    to_client += *answer;
    figures_.shared_writes_total.add();
    shared_last_ = true;
    counted_ = false;
    command_done();
  }
  resume();
}

}  // namespace fencegate::gate
