// Sharing. A small write, or a fenced read with a short answer, may go over a link that others use, too (shared_writes.hpp):
// when it arrives alone, and the server knows nothing of its connection that the other link could not be told.
#include "backend/redis_info.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "gate/redis/redis_engine.hpp"

#include <algorithm>
#include <initializer_list>

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
  if (gate_.share_writes == settings::sharing::off || private_ || !spec.short_answer || is_set_get(r) || r.inlined ||
      consumed_ != from_client.size() || r.raw.size() > limits::shared_command_bytes_max)
    return false;
  if (phase_ != phase::ready || !link_.armed() || !link_.proves(required) || !link_.quiet() || !link_.batch.empty() ||
      !replay_.empty() || muted_ || connection_.watching || connection_.subscriptions > 0)
    return false;
  return std::all_of(claims_.items().begin(), claims_.items().end(), [](const bound_claim& one) {
    return one.status == claim_status::held && one.rules.equal == fence::equal_token::accept;
  });
}

// True: it goes over the shared link, or the own one is asked first where it leads.
bool redis_engine::share(const wire::request& r, const command_spec& spec, const claims::verdict& verdict) {
  if (own_turns_ > 0) {
    --own_turns_;
    return false;
  }
  const auto& mine = my_profile();
  const bool pays = host_.sharing_pays(mine, tries_ == 0);
  if (pays && server_.run_id.empty()) {
    asks_identity_ = true;
    if (tries_ > 0) return false;  // one arm for one write: the next arm asks
    link_.leave();
    arm();
    return true;
  }
  measured_ = !pays || !host_.share(mine, r.raw, facts_for_batch(r.raw, r, spec, verdict));
  if (measured_) return false;
  count(spec);
  counted_ = true;
  phase_ = phase::shared;
  return true;
}

// A link opened later may lead to another server, by the same address. Ahead of an arm the question costs no round trip.
void redis_engine::ask_identity() {
  if (!asks_identity_ || private_ || !server_.run_id.empty()) return;
  wire::append_command_of(to_backend, std::string_view("INFO"), std::string_view("server"));
  link_.expect({awaits::identity});
}

void redis_engine::identity_done(std::string_view info) {
  server_ = server_in(info);
  const bool passing = info.starts_with('-') && armed_link::is_native_error(info.substr(1));
  private_ = private_ || (server_.run_id.empty() && !passing);
}

// Up to 7.0 Redis notes for WAIT, at each command of a connection, how far the data are; since 7.2 only at those that it has
// propagated. Nobody has tried what comes behind 8, and behind Valkey 9. Valkey says that it is Redis 7.2.4.
server_identity server_in(std::string_view info) {
  const auto is_one_of = [](std::string_view version, std::initializer_list<std::string_view> known) {
    return std::any_of(known.begin(), known.end(), [&](auto one) { return version.starts_with(one); });
  };
  const auto valkey = backend::info_field(info, "valkey_version"), redis = backend::info_field(info, "redis_version");
  const bool notes_own =
      valkey.empty() ? is_one_of(redis, {"7.2.", "7.4.", "8."}) : is_one_of(valkey, {"7.2.", "8.", "9."});
  const bool notes_all = valkey.empty() && is_one_of(redis, {"6.2.", "7.0."});
  return {notes_all || notes_own ? backend::info_field(info, "run_id") : std::string(), notes_own};
}

// Behind this, WAIT on this link counts what went over others. REQUIRES: the link is outside MULTI.
void redis_engine::renew_offset() {
  if (!std::exchange(wait_lags_, false) || !server_.notes_own_writes) return;
  wire::append_command_of(to_backend, std::string_view("SPUBLISH"), backend::offset_name, std::string_view());
  link_.expect({awaits::renewal});
}

// WAITAOF needs a write: messages are in no AOF, and where there never was a replica, the server does not propagate them at
// all. The key must not stay, not even for a user without DEL: a database with nothing else in it has lost its marks.
redis_engine::progress redis_engine::renew_offset_of_aof() {
  if (!refused_ahead_.empty()) {
    reply_local(std::exchange(refused_ahead_, {}));
    return progress::taken;
  }
  if (!quiet()) return block();
  phase_ = phase::barrier;
  wire::append_command_of(to_backend, std::string_view("SET"), backend::offset_name, std::string_view(),
                          std::string_view("PX"), std::string_view("1"));
  link_.expect({awaits::renewal_of_aof});
  wire::append_command_of(to_backend, std::string_view("DEL"), backend::offset_name);
  link_.expect({awaits::relay, true});
  return block();
}

void redis_engine::on_renewal_of_aof(std::string text) {
  phase_ = phase::ready;
  if (!text.starts_with('-')) {
    wait_lags_ = aof_lags_ = false;
    return;
  }
  if (text.starts_with("-NOPERM"))
    text.insert(text.size() - 2,
                " (fencegate writes " + std::string(backend::offset_name) + " first, with the rights of this user)");
  refused_ahead_ = std::move(text);
}

// Where an arm stands behind it, an error that passes is that one's, too, and MULTI asks again.
void redis_engine::renewal_refused(std::string_view why) {
  wait_lags_ = true;
  if (link_.at() == armed_link::state::arming && armed_link::is_native_error(why)) return;
  log::write(log::level::warn, "connection closed, since its WAIT would not count all of its writes",
             {{"gate", gate_.name}, {"detail", "SPUBLISH: " + std::string(why)}});
  link_.close();
}

// What makes another link like this one. REQUIRES: all claims are held.
const session_profile& redis_engine::my_profile() {
  if (like_.claims == claims_.generation() && like_.protocol == connection_.protocol &&
      like_.database == link_.database && like_.sign_ins == sign_ins_ && like_.value.server == server_.run_id)
    return like_.value;
  like_ = {claims_.generation(), connection_.protocol, link_.database, sign_ins_, {}};
  auto& like = like_.value;
  like.server = server_.run_id;
  like.database = link_.database;
  for (const auto& one : claims_.items()) like.tag.push_back({std::string(one.cell->resource), one.presented});
  std::sort(like.tag.begin(), like.tag.end(), [](const auto& a, const auto& b) { return a.resource < b.resource; });
  const auto add = [&](const auto&... words) {
    wire::append_command_of(like.bytes, words...);
    ++like.commands;
  };
  if (!connection_.sign_in.empty()) {
    like.bytes += connection_.sign_in;
    ++like.commands;
  }
  if (connection_.protocol != 2) add(std::string_view("HELLO"), std::to_string(connection_.protocol));
  if (link_.database != 0) add(std::string_view("SELECT"), std::to_string(link_.database));
  add(std::string_view("CLIENT"), std::string_view("SETNAME"), shared_link_name);
  like.own_bytes = like.bytes.size();
  // Who could not renew its offset could not wait for what was shared.
  if (server_.notes_own_writes) add(std::string_view("SPUBLISH"), backend::offset_name, std::string_view());
  add(std::string_view("INFO"), std::string_view("server"));
  return like;
}

void redis_engine::on_shared(std::optional<std::string_view> answer) {
  if (phase_ != phase::shared) return;
  phase_ = phase::ready;
  if (answer && !answer->starts_with('-')) {
    own_turns_next_ = 1;
  } else {
    own_turns_ = own_turns_next_;
    own_turns_next_ = std::min(2 * own_turns_next_, own_turns_max);
  }
  if (answer) {
    to_client += *answer;
    stats_.shared_writes_total.add();
    wait_lags_ = aof_lags_ = true;
    counted_ = false;
    command_done();
  }
  resume();
}

}  // namespace fencegate::gate
