#include "gate/redis/claims.hpp"

#include "backend/redis_control.hpp"
#include "base/limits.hpp"
#include "fence/compare.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <initializer_list>

namespace fencegate::gate {

using fence::reason;
using fence::rejection;

namespace {

bool named(const std::vector<std::string_view>& arguments, std::initializer_list<std::string_view> names) {
  return !arguments.empty() && std::any_of(names.begin(), names.end(),
                                           [&](std::string_view name) { return wire::iequals(arguments[0], name); });
}

}  // namespace

fence::policy claims::policy_of(std::string_view resource) const {
  for (const auto& rule : gate_.resources)
    if (rule.can_name(resource)) return rule.rules();
  return gate_.policy;
}

bound_claim claims::make(const fence::claim& one, backend::mark_memory& marks) const {
  bound_claim made;
  made.cell = marks.cell(one.resource);
  made.presented = one.presented;
  made.digits = one.presented.to_string();
  made.rules = policy_of(one.resource);
  const auto enforces = [](const fence::policy& p) { return p.mode == fence::enforcement::enforce; };
  made.enforced = enforces(made.rules) ||
                  std::any_of(gate_.resources.begin(), gate_.resources.end(), [&](const fence::key_rule& rule) {
                    return rule.can_name(one.resource) && enforces(rule.rules());
                  });
  return made;
}

void claims::bind(const std::vector<fence::claim>& tag, backend::mark_memory& marks) {
  clear();
  for (const auto& one : tag) items_.push_back(make(one, marks));
}

void claims::bind_unusable(reason why, std::string detail) {
  clear();
  unusable_ = rejection{why, {}, {}, {}, std::move(detail)};
}

void claims::add_unusable(reason why, std::string detail, std::vector<std::string> resources) {
  unusable_ = rejection{why, {}, {}, {}, std::move(detail)};
  for (auto& one : resources)
    if (std::find(unbound_.begin(), unbound_.end(), one) == unbound_.end() &&
        unbound_.size() <= limits::tag_resources_max)
      unbound_.push_back(std::move(one));
}

bool claims::has_room(const std::vector<fence::claim>& more) const {
  std::vector<std::string_view> names;
  for (const auto& one : items_) names.emplace_back(one.cell->resource);
  for (const auto& one : more) names.emplace_back(one.resource);
  std::sort(names.begin(), names.end());
  return static_cast<std::size_t>(std::unique(names.begin(), names.end()) - names.begin()) <= limits::tag_resources_max;
}

void claims::set(const fence::claim& one, backend::mark_memory& marks) {
  ++generation_;
  std::erase(unbound_, one.resource);
  if (unbound_.empty()) unusable_.reset();
  const auto same = [&](const bound_claim& c) { return c.cell->resource == one.resource; };
  const auto found = std::find_if(items_.begin(), items_.end(), same);
  if (found != items_.end())
    *found = make(one, marks);
  else
    items_.push_back(make(one, marks));
}

void claims::clear() {
  ++generation_;
  items_.clear();
  unusable_.reset();
  unbound_.clear();
}

template <class Predicate>
claim_mask claims::where(Predicate is) const {
  claim_mask mask = 0;
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (is(items_[i])) mask |= claim_mask{1} << i;
  return mask;
}

claim_mask claims::held() const {
  return where([](const bound_claim& one) { return one.status == claim_status::held; });
}

bool claims::are_unraised(claim_mask these) const {
  return (these & where([](const bound_claim& one) { return one.status == claim_status::unraised; })) != 0;
}

claim_mask claims::armable() const {
  return where([](const bound_claim& one) {
    const bool reads_on = one.status == claim_status::used && one.rules.read == fence::reads::fence;
    return one.enforced && (one.status == claim_status::held || reads_on);
  });
}

claim_mask claims::looked_at() const { return held() & ~enforced(); }

claim_mask claims::enforced() const {
  return where([](const bound_claim& one) { return one.enforced; });
}

claim_mask claims::monitored() const {
  return where([](const bound_claim& one) { return one.rules.mode == fence::enforcement::monitor; });
}

void claims::learn_from_memory() {
  for (auto& one : items_) {
    const auto seen = one.cell->seen();
    const bool final = one.status == claim_status::stale || one.status == claim_status::used;
    if (final && one.mark && seen && *seen < *one.mark) one.status = claim_status::unraised;  // an operator lowered it
    if (fence::compare(one.presented, seen) == fence::comparison::stale) {
      one.status = claim_status::stale;
      one.mark = seen;
    }
  }
}

void claims::learn_that_they_were_raised() {
  for (auto& one : items_)
    if (one.status == claim_status::unraised && one.rules.equal == fence::equal_token::accept &&
        one.cell->seen() == one.presented)
      one.status = claim_status::held;
}

void claims::on_lowered(const backend::mark_cell& cell, std::optional<fence::token> mark) {
  for (auto& one : items_) {
    const bool spends = one.rules.spends();
    if (one.cell.get() == &cell && one.status == claim_status::held && !spends &&
        fence::compare(one.presented, mark) == fence::comparison::lower)
      one.status = claim_status::unraised;
  }
}

void claims::on_raised(const backend::mark_cell& cell, const backend::raise_outcome& outcome) {
  using enum backend::raise_outcome::kind;
  for (auto& one : items_) {
    if (one.cell.get() != &cell) continue;
    one.mark = outcome.mark;
    one.detail = outcome.detail;
    switch (outcome.what) {
      case held: one.status = claim_status::held; break;
      case stale: one.status = claim_status::stale; break;
      case jump: one.status = claim_status::jump; break;
      case unavailable: one.status = claim_status::unraised; break;
    }
  }
}

void claims::on_mark_for_one_use(const backend::mark_cell& cell, const backend::mark_reading& reading) {
  for (auto& one : items_) {
    if (one.cell.get() != &cell) continue;
    one.mark = reading.mark;
    one.detail = reading.detail;
    one.status = claim_status::unraised;
    if (!reading.detail.empty()) continue;
    switch (fence::compare(one.presented, reading.mark, one.rules)) {
      case fence::comparison::stale: one.status = claim_status::stale; continue;
      case fence::comparison::equal:
      case fence::comparison::used: one.status = claim_status::used; continue;
      case fence::comparison::jump: one.status = claim_status::jump; break;
      case fence::comparison::lower: one.status = claim_status::held; break;
    }
    if (!reading.leased) continue;
    one.status = claim_status::jump;
    one.detail = fence::raised_by_leases_only;
  }
}

std::optional<rejection> claims::refusal_of(const bound_claim& one) const {
  const auto because = [&](reason why, std::string detail = {}) {
    return rejection{why, std::string(one.cell->resource), one.presented, one.mark, std::move(detail)};
  };
  switch (one.status) {
    case claim_status::held: return std::nullopt;
    case claim_status::unraised: return because(reason::unavailable, one.detail);
    case claim_status::stale: return because(reason::stale);
    case claim_status::used: return because(reason::equal);
    case claim_status::jump: return because(reason::jump, one.detail);
  }
  return because(reason::unavailable);
}

rejection claims::unavailable(claim_mask mask, std::string detail) const {
  for (std::size_t i = 0; i < items_.size(); ++i)
    if ((mask >> i & 1) != 0)
      return {reason::unavailable, std::string(items_[i].cell->resource), items_[i].presented, {}, std::move(detail)};
  return {reason::unavailable, {}, {}, {}, std::move(detail)};
}

std::optional<rejection> claims::refusal(claim_mask mask) const {
  for (std::size_t i = 0; i < items_.size(); ++i)
    if ((mask >> i & 1) != 0)
      if (auto why = refusal_of(items_[i])) return why;
  return std::nullopt;
}

std::optional<rejection> claims::refusal_to_read(claim_mask mask) const {
  for (std::size_t i = 0; i < items_.size(); ++i)
    if ((mask >> i & 1) != 0 && items_[i].status != claim_status::used)
      if (auto why = refusal_of(items_[i])) return why;
  return std::nullopt;
}

void claims::reject(const fence::policy& rules, rejection why, verdict& out) const {
  auto& place = rules.mode == fence::enforcement::monitor ? out.would_be : out.rejected;
  if (!place) place = std::move(why);
}

void claims::need_resource(std::string_view resource, const fence::policy& rules, bool read, verdict& out) const {
  if (read && rules.read == fence::reads::pass) return;
  const auto at = read ? fence::attempt::read : fence::attempt::write;
  if (unusable_) return reject(rules, {unusable_->why, std::string(resource), {}, {}, unusable_->detail, at}, out);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].cell->resource != resource) continue;
    const claim_mask mask = claim_mask{1} << i;
    // An unraised claim is raised before the command goes on; that is the engine's work.
    const bool raise_first = items_[i].status == claim_status::unraised;
    const auto why = raise_first ? std::nullopt : read ? refusal_to_read(mask) : refusal(mask);
    if (why) return reject(rules, *why, out);
    (rules.mode == fence::enforcement::enforce ? out.required : out.monitored) |= mask;
    return;
  }
  if (read || rules.missing == fence::missing_token::allow) return;
  reject(rules, {reason::missing, std::string(resource), {}, {}, {}}, out);
}

void claims::need_tag(bool read, verdict& out, bool any_key) const {
  const fence::policy& rules = gate_.policy;
  if (read && rules.read == fence::reads::pass) return;
  const auto at = read ? fence::attempt::read : fence::attempt::write;
  if (unusable_) return reject(rules, {unusable_->why, {}, {}, {}, unusable_->detail, at}, out);
  if (items_.empty()) {
    if (read || rules.missing == fence::missing_token::allow) return;
    return reject(rules, {reason::missing, {}, {}, {}, {}}, out);
  }
  for (const auto& one : items_) {
    auto rules_of_one = one.rules;
    if (any_key && one.enforced) rules_of_one.mode = fence::enforcement::enforce;
    need_resource(one.cell->resource, rules_of_one, read, out);
  }
}

claims::verdict claims::judge_binding(const std::vector<fence::claim>& asked) const {
  verdict out;
  if (unusable_) reject(gate_.policy, *unusable_, out);
  for (const auto& one : items_) {
    const auto same = [&](const fence::claim& c) { return c.resource == one.cell->resource; };
    auto why = std::any_of(asked.begin(), asked.end(), same) ? refusal_of(one) : std::nullopt;
    auto& place = one.enforced ? out.rejected : out.would_be;
    if (!place) place = std::move(why);
  }
  return out;
}

claims::verdict claims::judge_all(const std::vector<std::string_view>& arguments, const std::vector<std::size_t>& keys,
                                  bool read) const {
  verdict out;
  bool unmatched_keys = keys.empty();
  for (const std::size_t at : keys) {
    const auto match = fence::first_match(gate_.resources, arguments[at]);
    if (!match) {
      unmatched_keys = true;
    } else if (fence::is_resource_name(match->resource)) {
      need_resource(match->resource, match->rule->rules(), read, out);
    } else if (!read) {
      reject(match->rule->rules(), {reason::malformed, {}, {}, {}, "the key names a resource that cannot be one"}, out);
    }
  }
  // A script can touch keys that it does not declare: with rules, it needs all that its connection holds.
  if (!read && !gate_.resources.empty() && named(arguments, {"EVAL", "EVALSHA", "FCALL"})) need_tag(read, out, true);
  if (!unmatched_keys || (read && named(arguments, {"PING", "ECHO", "TIME"}))) return out;
  switch (gate_.unmatched) {
    case fence::unmatched::tag: need_tag(read, out); break;
    case fence::unmatched::pass: break;
    case fence::unmatched::reject:
      if (!read) reject(gate_.policy, {reason::missing, {}, {}, {}, "the key matches no resource rule"}, out);
      break;
  }
  return out;
}

claims::verdict claims::judge(const std::vector<std::string_view>& arguments,
                              const std::vector<std::size_t>& keys) const {
  return judge_all(arguments, keys, false);
}

claims::verdict claims::judge_read(const std::vector<std::string_view>& arguments,
                                   const std::vector<std::size_t>& keys) const {
  return judge_all(arguments, keys, true);
}

}  // namespace fencegate::gate
