// Monitor mode, of the gate or of a rule: nothing is held back, and the marks are looked at, so that each write is booked
// once, under the outcome that the rule would have had. What is armed is looked at by the arm behind it; what goes bare, by
// an MGET of its own.
#include "fence/compare.hpp"
#include "gate/redis_engine.hpp"

#include <algorithm>

namespace fencegate::gate {

using fence::reason;

void redis_engine::peek_marks() {
  if (phase_ != phase::open || claims_.items().empty() || peeking_) return;
  std::vector<std::string_view> command{"MGET"};
  for (const auto& one : claims_.items()) command.push_back(one.cell->key);
  if (database_ != 0) {
    append_select(to_backend, 0);
    expectations_.push_back({awaits::peek_select0});
  }
  wire::append_command(to_backend, command);
  expectations_.push_back({awaits::peek});
  if (database_ != 0) {
    append_select(to_backend, database_);
    expectations_.push_back({awaits::peek_select_back});
  }
  peeking_ = true;
  peek_listings_ = marks_.listings();
}

void redis_engine::peek_done(std::string_view raw) {
  peeking_ = false;
  auto notes = std::exchange(peeked_, {});
  const auto parsed = wire::parse_value(raw);
  const bool readable = !parsed.has_error() && *parsed;
  if (readable && (*parsed)->first.type == '*' && !select_stayed_) {
    const auto& marks = (*parsed)->first.elements;
    for (std::size_t i = 0; i < marks.size() && i < claims_.items().size(); ++i)
      see_mark(claims_.items()[i], marks[i], peek_listings_);
  } else {
    const bool refused = readable && (*parsed)->first.type == '-';
    for (auto& one : notes)
      one.would_be =
          claims_.unavailable(one.claims, refused ? std::string((*parsed)->first.text) : "the marks could not be read");
  }
  book(notes);
}

// What a mark says of a claim, beside what it proves.
void redis_engine::see_mark(bound_claim& one, const wire::reply_value& found, std::uint64_t listings) {
  const auto mark = found.null ? result<fence::token>(error{}) : fence::token::parse(found.text);
  if (mark.has_value()) marks_.saw_since(listings, one.cell, *mark);
  const auto seen = one.cell->seen();
  if (fence::compare(one.presented, seen) == fence::comparison::stale) {
    one.status = claim_status::stale;
    one.mark = seen;
  } else if (mark.has_value() && one.status == claim_status::held &&
             fence::compare(one.presented, *mark, one.rules) == fence::comparison::used) {
    one.status = claim_status::used;
    one.mark = one.presented;
  }
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
  peek_marks();  // (if that was not done in front)
  note(peeked_, verdict, reads, name);
}

// `used`: claims whose tokens were used up in one unit with what is noted, if they admit one use.
void redis_engine::book(const std::vector<noted>& notes, claim_mask used) {
  claim_mask written = 0;
  for (const auto& one : notes) {
    const claim_mask as_read = one.reads ? ~claim_mask{0} : used;
    auto why = one.would_be;
    if (!why) why = claims_.refusal(one.claims & ~as_read);
    if (!why) why = claims_.refusal_to_read(one.claims & as_read);
    if (!why) figures_.checks(metrics::check_outcome::admitted).add(one.times);
    for (std::size_t i = 0; why && i < one.times; ++i) host_.report(*why, one.name, true);
    if (!why && !one.reads) written |= one.claims;
  }
  for (std::size_t i = 0; i < claims_.items().size(); ++i)
    if ((written >> i & 1) != 0) use_up(claims_.items()[i]);
}

// equal_token: reject: the mark rises behind the writes that it has admitted, since nothing depends on it. (Where some key's
// rules enforce the claim, its token is theirs to use.)
void redis_engine::use_up(bound_claim& one) {
  if (one.enforced || one.rules.equal != fence::equal_token::reject) return;
  one.status = claim_status::used;
  one.mark = one.presented;
  host_.raise(one.cell, one.presented, 0, [](const backend::raise_outcome&) {});
}

}  // namespace fencegate::gate
