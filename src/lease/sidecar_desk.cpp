#include "lease/sidecar_desk.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/random_id.hpp"
#include "lease/desk_entry.hpp"
#include "lease/let_go_ids.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::lease {
namespace {

using metrics::lease_state;
using std::chrono::milliseconds;

lease_refusal refused(std::string why) { return {lease_refusal::kind::refused, std::move(why)}; }
lease_refusal lost(std::string why) { return {lease_refusal::kind::lost, std::move(why)}; }
lease_refusal unreachable(std::string why) { return {lease_refusal::kind::unreachable, std::move(why)}; }

// In any order.
bool is_same(fence::claims_list a, fence::claims_list b) {
  const auto by_name = [](const auto& x, const auto& y) { return x.resource < y.resource; };
  std::sort(a.begin(), a.end(), by_name);
  std::sort(b.begin(), b.end(), by_name);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.resource == y.resource && x.presented == y.presented;
  });
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

}  // namespace

// ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────────

class sidecar_desk::state : public std::enable_shared_from_this<state> {
 public:
  state(boost::asio::io_context& context, lease_sources sources, metrics::leases& stats)
      : context_(context), sources_(std::move(sources)), stats_(stats) {}

  void close() {
    for (const auto& [id, one] : std::exchange(entries_, {})) one->watchers.clear();
  }

  call acquire(const lease_wish& wanted, clock_reading arrived, answer done) {
    const auto asked = std::make_shared<desk_entry::caller>(desk_entry::caller{arrived, std::move(done)});
    const auto known = find(wanted.id);
    if (known && !are_same(known->resources, wanted.resources))
      return refuse(asked, refused("this id is of a lease of " + list_of(known->resources)));
    if (known && known->held) {
      boost::asio::post(context_, [known, weak = std::weak_ptr(asked)] {
        const auto there = weak.lock();
        if (!there) return;
        if (!known->held) return there->done(lost("it has just ended"));
        ++known->untold;
        there->done(known->given(there->arrived));
      });
      return asked;
    }
    if (known) {
      known->callers.push_back(asked);
      return leave_with(known, asked);
    }
    if (let_go_.contains(wanted.id))
      return refuse(asked, lost("whoever asked under this id has left, or released it: ask under another id"));
    if (entries_.size() >= limits::leases_max)
      return refuse(
          asked, unreachable("this sidecar has " + std::to_string(limits::leases_max) + " leases, which is its most"));
    auto source = sources_(wanted.resources, wanted.ttl, wanted.stop_grace);
    if (!source) return refuse(asked, refused(source.error().message));
    source->request.wait = wanted.wait;
    source->request.at_least = wanted.at_least;
    source->request.id = wanted.id.empty() ? random_id() : wanted.id;
    if (!wanted.holder.empty()) source->request.holder = wanted.holder;
    const auto made = make(*source);
    made->callers.push_back(asked);
    count(lease_state::waiting, 1);
    made->keeper->start();
    return leave_with(made, asked);
  }

  void told(const std::string& id) {
    const auto known = find(id);
    if (!known) return;
    known->told = true;
    if (known->untold > 0) --known->untold;
  }

  void not_told(const std::string& id, const fence::claims_list& tokens) {
    const auto known = find(id);
    if (!known) return;
    if (known->untold > 0) --known->untold;
    if (known->untold == 0 && !known->told) release(id, tokens, [](const std::optional<lease_refusal>&) {});
  }

  void renew(const std::string& id, const fence::claims_list& tokens, clock_reading arrived, answer done) {
    const auto known = find(id);
    if (!known) return renew_unknown(id, tokens, arrived, std::move(done));
    if (!known->held) return later(std::move(done), refused("it has not been granted yet"));
    if (!is_same(known->keeper->held().claims, tokens))
      return later(std::move(done), lost("these are the tokens of another term"));
    auto answered = [self = shared_from_this(), known, id, tokens, arrived,
                     done = std::move(done)](const result<bool>& holds) {
      if (!holds) return done(unreachable(holds.error().message));
      if (!*holds) return done(lost("it was granted to another, or a mark has risen above its token"));
      if (!known->held) return self->renew_unknown(id, tokens, arrived, done);  // it ended here meanwhile
      self->stats_.renewals_total.add();
      known->told = true;
      known->tell(lease_event::kind::renewed);
      done(known->given(arrived));
    };
    known->keeper->renew(std::move(answered));
  }

  void release(const std::string& id, const fence::claims_list& tokens,
               std::function<void(const std::optional<lease_refusal>&)> done) {
    const auto answered = [done](const result<void>& outcome) {
      done(outcome ? std::nullopt : std::optional(unreachable(outcome.error().message)));
    };
    if (const auto known = find(id)) {
      if (known->held && !is_same(known->keeper->held().claims, tokens))
        return boost::asio::post(context_, [done] { done(std::nullopt); });
      known->tell(lease_event::kind::lost, "it was released");
      let_go(known);
      for (const auto& one : std::exchange(known->callers, {})) later(one->done, lost("it was released meanwhile"));
      return known->keeper->stop(release_patience, answered);
    }
    const auto source = sources_(names_of(tokens), {}, {});
    if (!source) return boost::asio::post(context_, [done, why = source.error().message] { done(refused(why)); });
    const auto by = source->by;
    const auto work = std::make_shared<int>();
    let_go_.note(id, work);
    by->identify([answered, by, work, asked = term{tokens, id}](const result<std::string>& known) {
      if (!known) return answered(known.error());
      by->release(asked, false, [answered, by, work](const result<void>& o) { answered(o); });
    });
  }

  [[nodiscard]] std::vector<lease_seen> list() const {
    std::vector<lease_seen> out;
    for (const auto& [id, one] : entries_) {
      if (id != one->ids.front()) continue;
      lease_seen seen{one->resources, {}, one->holder};
      if (one->held) {
        seen.claims = one->keeper->held().claims;
        seen.act_for = one->given(clock_reading::now()).act_for;
      }
      out.push_back(std::move(seen));
    }
    return out;
  }

  call watch(const std::string& id, std::function<void(const lease_event&)> tell) {
    const auto known = find(id);
    if (!known) return nullptr;
    auto watcher = std::make_shared<std::function<void(const lease_event&)>>(std::move(tell));
    known->watchers.push_back(watcher);
    if (!known->held) return watcher;
    boost::asio::post(context_, [known, weak = std::weak_ptr(watcher)] {
      const auto there = weak.lock();
      if (there && known->held) (*there)({lease_event::kind::granted, known->given(clock_reading::now())});
    });
    return watcher;
  }

 private:
  using entry_ref = std::shared_ptr<desk_entry>;

  [[nodiscard]] entry_ref find(const std::string& id) const {
    const auto at = entries_.find(id);
    return at == entries_.end() ? nullptr : at->second;
  }

  void later(answer done, lease_refusal why) {
    boost::asio::post(context_, [done = std::move(done), why = std::move(why)] { done(why); });
  }

  call refuse(const std::shared_ptr<desk_entry::caller>& asked, lease_refusal why) {
    stats_.grants(metrics::grant_outcome::refused).add();
    boost::asio::post(context_, [weak = std::weak_ptr(asked), why = std::move(why)] {
      if (const auto there = weak.lock()) there->done(why);
    });
    return asked;
  }

  // The entry under its first id, with a keeper that tells what becomes of it.
  entry_ref make(const lease_source& from) {
    auto made = std::make_shared<desk_entry>();
    made->ids = {from.request.id};
    made->resources = from.request.resources;
    made->holder = from.request.holder;
    const std::weak_ptr<desk_entry> weak = made;
    const auto with_it = [self = weak_from_this(), weak](auto&& call) {
      const auto desk = self.lock();
      const auto it = weak.lock();
      if (desk && it) call(*desk, it);
    };
    keeper_owner owner;
    owner.acquired = [with_it](const term& held) {
      with_it([&](state& s, const entry_ref& it) { s.on_acquired(it, held); });
    };
    owner.not_acquired = [with_it](const keeper_failure& why) {
      with_it([&](state& s, const entry_ref& it) { s.on_failure(it, why); });
    };
    owner.expiring = [with_it] { with_it([](state&, const entry_ref& it) { it->tell(lease_event::kind::expiring); }); };
    owner.lost = [with_it](const keeper_loss& why) {
      with_it([&](state& s, const entry_ref& it) { s.on_lost(it, why); });
    };
    auto request = from.request;
    request.renews = false;
    made->keeper = std::make_shared<keeper>(context_, from.by, from.places, std::move(request), std::move(owner));
    entries_.emplace(made->ids.front(), made);
    return made;
  }

  // The last who leaves before it was granted takes the wish along.
  call leave_with(const entry_ref& it, const std::shared_ptr<desk_entry::caller>& asked) {
    auto leave = [self = weak_from_this(), it, asked](void*) {
      const auto desk = self.lock();
      if (!desk || std::erase(it->callers, asked) == 0 || !it->callers.empty()) return;
      desk->stats_.grants(metrics::grant_outcome::abandoned).add();
      desk->let_go(it);
      it->keeper->stop(release_patience, [it](const result<void>&) {});
    };
    return call(asked.get(), std::move(leave));
  }

  void on_acquired(const entry_ref& it, const term& held) {
    it->held = true;
    if (it->ids.front() != held.grant) {
      it->ids.push_back(held.grant);
      entries_.emplace(held.grant, it);
    }
    count(lease_state::waiting, -1);
    count(lease_state::held, 1);
    stats_.grants(metrics::grant_outcome::granted).add();
    if (const auto took = it->keeper->handover()) stats_.handover_seconds.observe(*took);
    log::write(log::level::info, "lease granted", {{"tag", fence::write_tag(held.claims)}, {"holder", it->holder}});
    const auto callers = std::exchange(it->callers, {});
    it->untold += callers.size();
    for (const auto& one : callers) one->done(it->given(one->arrived));
    it->tell(lease_event::kind::granted);
  }

  void on_failure(const entry_ref& it, const keeper_failure& why) {
    using kind = keeper_failure::kind;
    using metrics::grant_outcome;
    it->tell(lease_event::kind::lost, why.message);
    drop(it);
    lease_refusal out = refused(why.message);
    auto counted = grant_outcome::refused;
    if (why.what == kind::busy) {
      out = {lease_refusal::kind::busy, why.message, why.resource, why.by, why.left};
      counted = grant_outcome::busy;
    } else if (why.what == kind::unreachable) {
      out = unreachable(why.message);
      counted = grant_outcome::unreachable;
    } else if (why.what == kind::over) {
      out = lost(why.message);
    }
    stats_.grants(counted).add();
    for (const auto& one : std::exchange(it->callers, {})) one->done(out);
  }

  void on_lost(const entry_ref& it, const keeper_loss& why) {
    const bool expired = why.what == keeper_loss::kind::expired;
    stats_.lost(expired ? metrics::lease_end::expired : metrics::lease_end::superseded).add();
    log::write(log::level::warn, "lease lost",
               {{"tag", fence::write_tag(it->keeper->held().claims)}, {"holder", it->holder}, {"why", why.message}});
    it->tell(lease_event::kind::lost, why.message);
    drop(it);
  }

  void drop(const entry_ref& it) {
    for (const auto& id : it->ids) {
      const auto at = entries_.find(id);
      if (at != entries_.end() && at->second == it) entries_.erase(at);
    }
    count(std::exchange(it->held, false) ? lease_state::held : lease_state::waiting, -1);
  }

  // Its id names no other grant as long as the release may be under way: that would end the other, too.
  void let_go(const entry_ref& it) {
    for (const auto& id : it->ids) let_go_.note(id, it->keeper);
    drop(it);
  }

  void count(lease_state in, std::int64_t n) { stats_.in(in).add(n); }

  // Granted by a sidecar that was started before this one; or over, and nobody has taken it since.
  void renew_unknown(const std::string& id, const fence::claims_list& tokens, clock_reading arrived, answer done) {
    const auto source = sources_(names_of(tokens), {}, {});
    if (!source) return later(std::move(done), refused(source.error().message));
    const auto by = source->by;
    by->identify([self = shared_from_this(), asked = term{tokens, id}, arrived, by,
                  done = std::move(done)](const result<std::string>& known) {
      if (!known) return done(unreachable(known.error().message));
      self->renew_at(by, asked, arrived, done);
    });
  }

  void renew_at(const std::shared_ptr<issuer>& by, const term& asked, clock_reading arrived, const answer& done) {
    const auto sent = clock_reading::now();
    auto answered = [self = shared_from_this(), asked, sent, arrived, by, done](const result<renewal>& confirmed) {
      if (!confirmed) return done(unreachable(confirmed.error().message));
      if (confirmed->claims.size() != asked.claims.size())
        return done(lost("it was released, or granted to another, or a mark has risen above its token"));
      self->take_over(asked, confirmed->ttl, sent, arrived, done);
    };
    by->renew(asked, std::move(answered));
  }

  void take_over(const term& held, milliseconds ttl, clock_reading sent, clock_reading arrived, const answer& done) {
    // Asked for by several at the same time, all of whom the issuer has answered.
    if (const auto known = find(held.grant)) {
      if (!known->held) return done(unreachable("it is asked for anew at the same time"));
      return done(is_same(known->keeper->held().claims, held.claims)
                      ? outcome(known->given(arrived))
                      : outcome(lost("these are the tokens of another term")));
    }
    if (let_go_.contains(held.grant)) return done(lost("it was released"));
    // With the TTL of its grant, which the client may have chosen, and a stop_grace that fits it: the client's is not known.
    auto source = sources_(names_of(held.claims), ttl, {});
    if (!source) source = sources_(names_of(held.claims), ttl, timing::of(ttl).stop_grace);
    if (!source) return done(refused(source.error().message));
    source->request.id = held.grant;
    const auto made = make(*source);
    made->held = made->told = true;
    count(lease_state::held, 1);
    stats_.renewals_total.add();
    made->keeper->adopt(held, sent);
    done(made->given(arrived));
  }

  boost::asio::io_context& context_;
  const lease_sources sources_;
  metrics::leases& stats_;
  std::map<std::string, entry_ref> entries_;  // by each of its ids
  let_go_ids let_go_;
};

sidecar_desk::sidecar_desk(boost::asio::io_context& context, lease_sources sources, metrics::leases& stats)
    : state_(std::make_shared<state>(context, std::move(sources), stats)) {}

sidecar_desk::~sidecar_desk() { state_->close(); }

desk::call sidecar_desk::acquire(const lease_wish& wanted, clock_reading arrived, answer done) {
  return state_->acquire(wanted, arrived, std::move(done));
}

void sidecar_desk::told(const std::string& id) { state_->told(id); }

void sidecar_desk::not_told(const std::string& id, const fence::claims_list& tokens) { state_->not_told(id, tokens); }

void sidecar_desk::renew(const std::string& id, const fence::claims_list& tokens, clock_reading arrived, answer done) {
  state_->renew(id, tokens, arrived, std::move(done));
}

void sidecar_desk::release(const std::string& id, const fence::claims_list& tokens,
                           std::function<void(const std::optional<lease_refusal>&)> done) {
  state_->release(id, tokens, std::move(done));
}

std::vector<lease_seen> sidecar_desk::list() const { return state_->list(); }

desk::call sidecar_desk::watch(const std::string& id, std::function<void(const lease_event&)> tell) {
  return state_->watch(id, std::move(tell));
}

}  // namespace fencegate::lease
