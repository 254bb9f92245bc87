// Monitor mode, of the gate or of a rule: nothing is held back, and the marks are looked at, so that each write is booked
// once, under the outcome that the rule would have had. What is armed is looked at by the arm behind it; what goes bare, by
// an MGET of its own.
#include "gate/redis/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

void redis_engine::on_look(const std::string& problem) {
  auto notes = std::exchange(looked_at_, {});
  if (!problem.empty())
    for (auto& one : notes) one.would_be = claims_.unavailable(one.claims, problem);
  book(notes);
}

void redis_engine::note(std::vector<noted>& where, const claims::verdict& verdict, bool reads, std::string_view name) {
  const auto same = [&](const noted& one) {
    return one.claims == verdict.monitored && one.reads == reads && one.name == name &&
           one.would_be == verdict.would_be;
  };
  const auto found = std::find_if(where.begin(), where.end(), same);
  if (found != where.end()) {
    ++found->times;
    return;
  }
  noted one{verdict.monitored, reads, std::string(name), verdict.would_be};
  if (where.size() < noted_max)
    where.push_back(std::move(one));
  else
    book({std::move(one)});
}

// Of what has just been sent bare.
void redis_engine::note_bare(const claims::verdict& verdict, bool reads, std::string_view name) {
  if (verdict.would_be) return host_.report(*verdict.would_be, name, true);
  if (verdict.monitored == 0) return;
  link_.look();  // (if that was not done in front)
  note(looked_at_, verdict, reads, name);
}

// `used`: claims whose tokens were spent in one unit with what is noted, if they admit one use.
void redis_engine::book(const std::vector<noted>& notes, claim_mask used) {
  claim_mask written = 0;
  for (const auto& one : notes) {
    const claim_mask as_read = one.reads ? ~claim_mask{0} : used;
    auto why = one.would_be;
    if (!why) why = claims_.refusal(one.claims & ~as_read);
    if (!why) why = claims_.refusal_to_read(one.claims & as_read);
    if (!why) stats_.checks(metrics::check_outcome::admitted).add(one.times);
    for (std::size_t i = 0; why && i < one.times; ++i) host_.report(*why, one.name, true);
    if (!why && !one.reads) written |= one.claims;
  }
  for (std::size_t i = 0; i < claims_.items().size(); ++i)
    if ((written >> i & 1) != 0) spend(claims_.items()[i]);
}

// equal_token: reject: the mark rises behind the writes that it has admitted, since nothing depends on it. (Where some key's
// rules enforce the claim, its token is theirs to use.)
void redis_engine::spend(bound_claim& one) {
  if (one.enforced || !one.rules.spends()) return;
  one.status = claim_status::used;
  one.mark = one.presented;
  host_.raise(one.cell, one.presented, 0, [](const backend::raise_outcome&) {});
}

}  // namespace fencegate::gate
