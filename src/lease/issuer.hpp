// What grants leases, and what their tokens are sealed in. Both are asked without blocking; each answer comes once, on the
// thread of the context that they were made for.
#pragma once

#include "backend/store.hpp"
#include "base/result.hpp"
#include "fence/tag.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::lease {

enum class taking : std::uint8_t {
  when_free,
  by_force,  // an operator takes it from its holder, unless it is frozen
  freezing   // by force, and nobody has it until it is thawed
};

struct grant_request {
  std::vector<std::string> resources;  // all or none
  std::string id;                      // of the grant: random, and a secret; asked again, it answers the same lease
  std::string holder;                  // for people
  std::chrono::milliseconds ttl{30'000};
  std::vector<std::int64_t> floors;  // one for each resource: its highest mark in all that is to be sealed
  std::vector<std::string> stores;   // the ids of all that is to be sealed
  std::int64_t stride = 1 << 20;     // added to a token where the issuer may have forgotten some
  std::chrono::milliseconds at_least{0};
  std::chrono::milliseconds lock_delay{0};
  taking how = taking::when_free;
  std::chrono::milliseconds wait{0};  // so long the issuer may wait for others to release it
};

struct lease_waiter {
  std::string holder;
  std::string since;  // as in lease_entry
};

// A lease as it is, or was.
struct lease_entry {
  std::string resource;
  fence::token granted;
  std::optional<fence::token> mark;  // in the issuer's own store
  std::string holder;
  std::string since;                  // of the last grant, by the issuer's clock: "2026-11-25 19:05:17+00"
  std::chrono::milliseconds left{0};  // until another may have it; 0 = it is free
  bool frozen = false;
  std::vector<lease_waiter> waiters{};  // as far as they are noted
};

// Who waits for a resource under which grant id, and for how long that is told to others; 0: he waits no more.
struct waiter_note {
  std::string resource, grant, holder;
  std::chrono::milliseconds stays{0};
};

struct grant_answer {
  enum class kind : std::uint8_t {
    granted,
    held,       // `by` another, for `left` more
    over,       // the time of this grant id has passed
    uncovered,  // former holders sealed the store `by`, which is not among `stores`
    refused,    // `detail`: what it asks for cannot be had
    failed      // `detail`; granted or not
  } what = kind::failed;
  fence::claims_list claims{};  // granted
  std::string resource{};       // held, over, uncovered
  std::string by{};
  std::chrono::milliseconds left{0};
  std::string detail{};
  std::string id{};                                    // of the grant, where it is not the one that was asked for
  std::optional<std::chrono::milliseconds> act_for{};  // as in renewal
  bool waited = false;  // held: the issuer has waited itself, and may be asked again at once
};

// Why a server did not say what it was asked for.
struct unanswered : error {
  unanswered() = default;
  unanswered(error why, bool always = false) : error(std::move(why)), lasts(always) {}  // an error is one that may pass

  bool lasts = false;  // until an operator mends it
};

template <class T>
using answer = boost::system::result<T, unanswered>;

// One term: what a grant gave.
struct term {
  fence::claims_list claims;
  std::string grant;
};

[[nodiscard]] inline std::vector<std::string> names_of(const fence::claims_list& claims) {
  std::vector<std::string> out;
  for (const auto& claim : claims) out.push_back(claim.resource);
  return out;
}

// In any order.
[[nodiscard]] inline bool are_same(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

// What an issuer has renewed of a term.
struct renewal {
  fence::claims_list claims;         // whatever is missing was lost
  std::chrono::milliseconds ttl{0};  // as it was granted; the shortest of them
  // How long the holder may act from when it sent its request, where the issuer says so itself.
  std::optional<std::chrono::milliseconds> act_for{};
};

class issuer {
 public:
  issuer() = default;
  issuer(const issuer&) = delete;
  issuer& operator=(const issuer&) = delete;
  virtual ~issuer() = default;

  // Its random id, for life.
  virtual void identify(std::function<void(const answer<std::string>&)> done) = 0;
  virtual void acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) = 0;
  // Nobody wants what is asked for at this moment: it is answered soon.
  virtual void give_up() {}
  // An error: it is not known.
  virtual void renew(const term& held, std::function<void(const result<renewal>&)> done) = 0;
  // `unused`: nobody acted on it, so that nobody has to wait for its at_least.
  virtual void release(const term& held, bool unused, std::function<void(const result<void>&)> done) = 0;
  // A store that is no more need not be sealed by later holders. False: none of them sealed it.
  virtual void forget_store(const std::string& resource, const std::string& store,
                            std::function<void(const result<bool>&)> done) = 0;
  // Ends what an operator froze. False: it is not frozen.
  virtual void thaw(const std::string& /*resource*/, std::function<void(const result<bool>&)> done) {
    done(error{"the API of a sidecar thaws no lease: name a configuration"});
  }
  // Tells when a resource was released, as far as the issuer hears of it, until what is returned is dropped. Who waits asks
  // now and then in any case. nullptr: it hears of none.
  [[nodiscard]] virtual std::shared_ptr<void> on_release(std::function<void(const std::string& resource)> /*tell*/) {
    return nullptr;
  }
  // For people alone. Nobody waits for it, or learns whether it was noted.
  virtual void note_waiter(const waiter_note& /*note*/) {}
  // All leases that were ever granted, by resource.
  virtual void list(std::function<void(const result<std::vector<lease_entry>>&)> done) = 0;
};

// A mark, and what its place knows of it.
struct listed_mark {
  std::string resource;
  fence::token mark;
  std::string raised_at{};  // by the place's clock; "" = it is not known
  std::string issuer{};     // only whose leases raise it; "" = anybody's
  std::string problem{};    // why there is no mark to be read, and all else of it says nothing; "" = there is one
};

// What an operator wants in place of a mark that is no number.
struct replacement_wish {
  std::string resource;
  fence::token to;
  std::string by, why;  // for the record
  bool lowers = false;  // running gates forget a higher mark that they have seen; else they raise it to that again
};

// What an operator wants of a mark that nobody should have raised.
struct lowering_wish {
  backend::looked_mark seen;  // what it is: where it was lowered since, this is not done. REQUIRES: there is a mark
  fence::token to;            // what it is to be
  std::string by, why;        // for the record
  bool force = false;         // below what it was before, too
};

// A gate's upstream or a store, in which marks are raised before a holder acts.
class seal_place {
 public:
  seal_place() = default;
  seal_place(const seal_place&) = delete;
  seal_place& operator=(const seal_place&) = delete;
  virtual ~seal_place() = default;

  // "gate:cache", "store:ledger".
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Its random id, for life.
  virtual void identify(std::function<void(const answer<std::string>&)> done) = 0;
  virtual void look(const std::vector<std::string>& resources,
                    std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) = 0;
  // Strictly: each mark rises to its token, or is there by this very grant. `equal` in a rejection: it is there by another.
  virtual void seal(const term& held, const std::string& issuer_id,
                    std::function<void(const backend::store_result<void>&)> done) = 0;
  // Gives a mark of the issuer `from` to the issuer `to`, and changes no other. Answers whose it is then; "": nobody's.
  virtual void move(const std::string& resource, const std::string& from, const std::string& to,
                    std::function<void(const result<std::string>&)> done) = 0;
  // All marks, by resource, or that of `only` one, if there is any.
  virtual void list_marks(const std::optional<std::string>& /*only*/,
                          std::function<void(const result<std::vector<listed_mark>>&)> done) {
    done(error{name() + " does not list its marks"});
  }
  // How many marks one raise() may name.
  [[nodiscard]] virtual std::size_t raised_at_once() const { return 1; }
  // As a gate does, without a lease: all rise to their tokens, or none.
  virtual void raise(const fence::claims_list& /*to*/, std::function<void(const backend::store_result<void>&)> done) {
    done(backend::unavailable(name() + " raises marks by leases only"));
  }
  // Lowers the mark, and writes down who did it and why. An error: it is as it was, or nobody knows.
  virtual void lower(const lowering_wish& /*wish*/, std::function<void(const result<void>&)> done) {
    done(error{name() + " does not lower marks"});
  }
  // Sets a mark that is no number. An error: it is one, or nothing was changed, or the outcome is not known.
  virtual void replace(const replacement_wish& /*wish*/, std::function<void(const result<void>&)> done) {
    done(error{name() + " has no mark that is no number"});
  }
  // Whose the mark is; "": nobody's. Nobody waits for it.
  void issuer_of(const std::string& resource, std::function<void(const result<std::string>&)> done) {
    const std::string nobody = "00000000-0000-0000-0000-000000000000";
    move(resource, nobody, nobody, std::move(done));
  }
};

}  // namespace fencegate::lease
