// Leases, and seals: marks that rise with a lease's grant.
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "backend/redis_store.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

// In front of why a mark was not sealed (backend/redis_scripts.hpp: seal_marks).
constexpr std::string_view not_sealed = "FENCEGATESEAL ";

// A holder who comes to free memory has to be granted and sealed first, and to be renewed meanwhile.
bool is_full(const wire::reply_value* reply) {
  return reply != nullptr && detail::is_error(reply) && reply->text.starts_with("OOM ");
}

// Mostly it has moved on with a mark that an operator has lowered. Nothing was changed.
bool is_other_epoch(const wire::reply_value* reply) {
  return reply != nullptr && detail::is_error(reply) && reply->text.starts_with("FENCEGATEMARK another epoch");
}

// A text, or an array of texts.
result<std::vector<std::string>> texts_of(const wire::reply_value& reply) {
  std::vector<std::string> out;
  const auto take = [&out](const wire::reply_value& one) {
    if (one.type != '$' || one.null) return false;
    out.emplace_back(one.text);
    return true;
  };
  const bool fits =
      reply.type == '*' ? !reply.null && std::all_of(reply.elements.begin(), reply.elements.end(), take) : take(reply);
  if (!fits) return error{detail::words_of(&reply)};
  return out;
}

}  // namespace

void redis_store::identify(store_caller from, identify_callback done) {
  auto begin = [from, done = std::move(done)](const link& by) {
    auto on_id = [from, done](const result<std::string>& id) { answer(from, done, id); };
    by->identify(from.deadline, std::move(on_id));
  };
  on_link(from, std::move(begin));
}

void redis_store::seal_for_lease(store_caller from, std::vector<fence::claim> claims, lease_grant grant,
                                 lease_callback done) {
  auto begin = [self = shared_from_this(), from, claims = std::move(claims), grant = std::move(grant),
                done = std::move(done)](const link& by) {
    auto tell = [from, done](store_result<void> outcome) { answer(from, done, std::move(outcome)); };
    self->seal_on(by, from.deadline, claims, grant, false, std::move(tell));
  };
  on_link(from, std::move(begin));
}

void redis_store::seal_on(const link& by, std::chrono::steady_clock::time_point deadline,
                          const fence::claims_list& claims, const lease_grant& grant, bool though_full,
                          lease_callback done, bool first) {
  if (!by->problem().empty()) return done(unavailable(by->problem()));
  const auto asked = std::make_shared<mark_memory::moment>(state_->marks.now(0));
  auto on_reply = [self = shared_from_this(), by, deadline, claims, grant, though_full, done, first,
                   losses = state_->marks.losses(), asked](const wire::reply_value* reply) {
    if (!though_full && is_full(reply)) return self->seal_on(by, deadline, claims, grant, true, done);
    if (is_other_epoch(reply) && first)
      return by->recheck([=] { self->seal_on(by, deadline, claims, grant, though_full, done, false); });
    auto outcome = self->sealed_for_lease(claims, reply, *asked);
    if (outcome && losses != self->state_->marks.losses()) outcome = unavailable("Redis lost its marks meanwhile");
    done(std::move(outcome));
  };
  const auto sent = by->run_sealing(claims, grant, though_full, deadline, std::move(on_reply));
  if (!sent) return done(unavailable("there is no connection to Redis"));
  asked->lowerings = *sent;
}

void redis_store::run_leasing(store_caller from, std::string script, std::vector<std::string> keys,
                              std::vector<std::string> arguments, leasing_callback done) {
  auto begin = [self = shared_from_this(), from, script = std::move(script), keys = std::move(keys),
                arguments = std::move(arguments), done = std::move(done)](const link& by) {
    auto tell = [from, done](result<std::vector<std::string>> outcome) { answer(from, done, std::move(outcome)); };
    self->lease_on(by, from.deadline, script, keys, arguments, false, std::move(tell));
  };
  on_link(from, std::move(begin));
}

void redis_store::lease_on(const link& by, std::chrono::steady_clock::time_point deadline, const std::string& script,
                           const std::vector<std::string>& keys, const std::vector<std::string>& arguments,
                           bool though_full, leasing_callback done, bool first) {
  if (!by->problem().empty()) return done(error{by->problem()});
  auto on_reply = [self = shared_from_this(), by, deadline, script, keys, arguments, though_full, done, first,
                   losses = state_->marks.losses()](const wire::reply_value* reply) {
    if (!though_full && is_full(reply)) return self->lease_on(by, deadline, script, keys, arguments, true, done);
    if (is_other_epoch(reply) && first)
      return by->recheck([=] { self->lease_on(by, deadline, script, keys, arguments, though_full, done, false); });
    if (reply == nullptr) return done(error{"there was no answer in time, or the connection to Redis was lost"});
    if (losses != self->state_->marks.losses()) return done(error{"Redis lost its marks meanwhile"});
    done(texts_of(*reply));
  };
  const auto text = though_full ? std::string(allow_oom) + script : script;
  if (!by->run_leasing(text, keys, arguments, deadline, std::move(on_reply)))
    done(error{"there is no connection to Redis"});
}

store_result<void> redis_store::sealed_for_lease(const std::vector<fence::claim>& claims,
                                                 const wire::reply_value* reply, const mark_memory::moment& asked) {
  if (!detail::is_error(reply)) {
    if (reply->type != '*' || reply->elements.size() != claims.size()) return unavailable("an unexpected reply");
    for (std::size_t i = 0; i < claims.size(); ++i) {
      state_->marks.saw_since(asked, state_->marks.cell(claims[i].resource), claims[i].presented);
      if (reply->elements[i].text == "1") state_->stats.raises_total.add();
    }
    return {};
  }
  if (reply != nullptr && reply->text.starts_with(not_sealed)) {
    const auto which = detail::read_refusal(reply->text.substr(not_sealed.size()), claims);
    if (which && which->why == "stale")
      return fence::rejection{fence::reason::stale, which->claim->resource, which->claim->presented, which->mark, {}};
    if (which && which->why == "equal")
      return fence::rejection{fence::reason::equal, which->claim->resource, which->claim->presented, which->mark,
                              "sealed by another grant"};
    if (which && which->why == "issuer")
      return fence::rejection{fence::reason::refused, which->claim->resource, which->claim->presented, which->mark,
                              "the mark belongs to leases of another issuer"};
  }
  return unavailable(detail::words_of(reply));
}

}  // namespace fencegate::backend
