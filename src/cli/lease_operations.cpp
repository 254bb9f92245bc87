#include "cli/lease_operations.hpp"

#include "base/utf8.hpp"
#include "cli/config_leases.hpp"
#include "cli/lease_places.hpp"
#include "lease/keeper.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

using lease::lease_refusal;
using lease::operation;
using lease::operation_outcome;
using lease::operation_result;
using std::chrono::milliseconds;

// Of reasons: with what stands in front, no more than the name of a holder may have.
constexpr std::size_t lease_reason_bytes_max = 180;

bool is_reason(const std::string& text) {
  return !text.empty() && text.size() <= lease_reason_bytes_max && is_shown_text(text);
}

std::shared_ptr<lease::issuer> issuer_of(operation_run& run, const settings::process& config, const lease_plan& plan) {
  return make_issuer(run.io, config, plan, timing_of(config.leased, config.leased.ttl));
}

operation_outcome show(operation_run& run, const settings::process& config, const lease_plan& plan,
                       const operation& asked) {
  const auto issuer = issuer_of(run, config, plan);
  auto all =
      run.asked(result<std::vector<lease::lease_entry>>(no_answer), [&](auto done) { issuer->list(std::move(done)); });
  if (!all) return unreachable(all.error().message);
  operation_result out{std::move(*all)};
  if (asked.resources.empty()) return out;
  const auto& resource = asked.resources.front();
  std::erase_if(out.leases, [&](const auto& one) { return one.resource != resource; });
  for (const auto& place : make_places(run.io, config, plan)) {
    lease::place_entry one{place->name()};
    const auto found = run.asked(lease::answer<std::vector<backend::looked_mark>>(lease::unanswered(no_answer)),
                                 [&](auto done) { place->look({resource}, std::move(done)); });
    const auto owner =
        run.asked(result<std::string>(no_answer), [&](auto done) { place->issuer_of(resource, std::move(done)); });
    if (found && !found->empty()) one.mark = found->front().mark;
    if (owner) one.issuer = *owner;
    if (!found || !owner) one.problem = !found ? found.error().message : owner.error().message;
    out.places.push_back(std::move(one));
  }
  return out;
}

// Of what the issuer answers with yes or no; `no`: what that means.
operation_outcome yes(const result<bool>& answered, const std::string& no) {
  if (!answered) return unreachable(answered.error().message);
  if (!*answered) return refused(no);
  return operation_result{};
}

operation_outcome thaw(operation_run& run, const settings::process& config, const lease_plan& plan,
                       const std::string& resource) {
  const auto issuer = issuer_of(run, config, plan);
  return yes(run.asked(result<bool>(no_answer), [&](auto done) { issuer->thaw(resource, std::move(done)); }),
             resource + " is not frozen");
}

operation_outcome forget(operation_run& run, const settings::process& config, const lease_plan& plan,
                         const std::string& resource, const std::string& store) {
  const auto issuer = issuer_of(run, config, plan);
  return yes(
      run.asked(result<bool>(no_answer), [&](auto done) { issuer->forget_store(resource, store, std::move(done)); }),
      "no former holder of " + resource + " sealed the store " + store);
}

lease_refusal not_taken(const lease::keeper_failure& why, bool freezes) {
  using kind = lease::keeper_failure::kind;
  if (why.what == kind::busy)  // else it would not have been asked
    return refused(why.resource + " is frozen (" + why.by + "): thaw it before");
  if (why.what != kind::unreachable) return refused(why.message);
  return unreachable(why.message + (freezes ? "; lease show tells whether it is frozen" : ""));
}

// Takes leases from their holder, and seals them everywhere.
operation_outcome take(operation_run& run, const settings::process& config, const lease_plan& plan,
                       const operation& asked) {
  const bool freezes = asked.what == operation::kind::freeze;
  const auto times = timing_of(config.leased, config.leased.ttl);
  auto wanted = keeper_request_of(config, plan, asked.resources, times);
  wanted.holder = "lease " + std::string(name_of(asked.what)) + ": " + asked.reason;
  wanted.wait = milliseconds(0);
  wanted.how = freezes ? lease::taking::freezing : lease::taking::by_force;
  std::shared_ptr<lease::keeper> keeper;
  operation_outcome outcome = run.asked(operation_outcome(unreachable(no_answer.message)), [&](auto done) {
    lease::keeper_owner owner;
    owner.acquired = [done](const lease::term& held) { done(operation_result{.marks = held.claims}); };
    owner.not_acquired = [done, freezes](const lease::keeper_failure& why) { done(not_taken(why, freezes)); };
    keeper = std::make_shared<lease::keeper>(run.io, make_issuer(run.io, config, plan, times),
                                             make_places(run.io, config, plan), wanted, std::move(owner));
    keeper->start();
  });
  if (!outcome || freezes) return outcome;  // what is frozen is not released
  const auto released =
      run.asked(result<void>(no_answer), [&](auto done) { keeper->stop(lease::release_patience, std::move(done)); });
  if (!released)
    return unreachable("it was taken and sealed, but not released (" + released.error().message +
                       "): it is free when its time is over");
  return outcome;
}

}  // namespace

operation_outcome perform(operation_run& run, const settings::process& config, const operation& asked,
                          const operation_told& told) {
  using kind = operation::kind;
  if (asked.what == kind::move) return move_leases(run, config, asked, told);
  const auto plan =
      plan_lease(config, asked.resources.empty() ? std::vector<std::string>{"any"} : asked.resources, asked.issuer);
  if (!plan) return refused(plan.error().message);
  switch (asked.what) {
    case kind::show: return show(run, config, *plan, asked);
    case kind::thaw: return thaw(run, config, *plan, asked.resources.front());
    case kind::forget_store: return forget(run, config, *plan, asked.resources.front(), asked.store);
    default: break;
  }
  if (!is_reason(asked.reason))
    return refused("a reason is 1 to " + std::to_string(lease_reason_bytes_max) +
                   " bytes of UTF-8, without control characters");
  return take(run, config, *plan, asked);
}

}  // namespace fencegate::cli
