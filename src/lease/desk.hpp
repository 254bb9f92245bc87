// The leases of a sidecar's clients: what they ask for, and what they are told, without the HTTP around it. The sidecar
// takes a lease for a client, and renews it when the client asks: the lease of a client that is gone ends.
//
// All of it runs on its context's thread. Each answer comes once, later, never from within the call.
#pragma once

#include "fence/tag.hpp"
#include "lease/clock.hpp"

#include <boost/system/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::lease {

struct lease_wish {
  std::string id;                                            // 32 hexadecimal digits; "": the desk chooses it
  std::vector<std::string> resources;                        // each once, at least one
  std::optional<std::chrono::milliseconds> ttl, stop_grace;  // nullopt: the configuration's
  std::chrono::milliseconds wait{0};                         // for others to release it
  std::chrono::milliseconds at_least{0};
  std::string holder;  // for people; "": the name of the desk's process
};

struct lease_given {
  std::string id;  // of the grant: a secret
  fence::claims_list claims;
  // How long the client may begin something under it, from when it *sent* its request; at most so long behind that, what
  // is under way may end.
  std::chrono::milliseconds act_for{0}, stop{0};
};

struct lease_refusal {
  enum class kind : std::uint8_t {
    busy,         // another holds it: `resource`, `holder`, `left`
    lost,         // the lease of this id is over, or is another's: it is to be asked for anew, under another id
    unreachable,  // nobody knows; to be asked again: the issuer, or a server to be sealed, does not answer
    refused       // it cannot be had so, whenever it is asked
  } what = kind::refused;
  std::string message;  // for people
  std::string resource{}, holder{};
  std::chrono::milliseconds left{0};  // until another may have it
};

// A lease of this sidecar, without its id.
struct lease_seen {
  std::vector<std::string> resources;
  fence::claims_list claims{};  // empty: it is waited for
  std::string holder;
  std::chrono::milliseconds act_for{0};
};

struct lease_event {
  enum class kind : std::uint8_t {
    granted,  // the first one told, of a lease that is held
    renewed,
    expiring,  // nothing new may begin: no renewal was confirmed in time
    lost       // it is over; no event follows
  } what;
  lease_given given;  // its times count from now
  std::string why{};  // lost
};

class desk {
 public:
  using outcome = boost::system::result<lease_given, lease_refusal>;
  using answer = std::function<void(const outcome&)>;
  // Keeps what was asked going. Dropped before the answer: whoever asked has left, and nothing stays held for him.
  using call = std::shared_ptr<void>;

  desk() = default;
  desk(const desk&) = delete;
  desk& operator=(const desk&) = delete;
  virtual ~desk() = default;

  // `arrived`: when the request came. The id of the answer counts, which may be another than the one wished for. The same
  // wish again, by its id, answers the same lease.
  [[nodiscard]] virtual call acquire(const lease_wish& wanted, clock_reading arrived, answer done) = 0;
  // Of each lease that `acquire` has answered, one of the two is called: the client was told, or has left without knowing. It
  // is released when nobody was told.
  virtual void told(const std::string& /*id*/) {}
  virtual void not_told(const std::string& id, const fence::claims_list& tokens) {
    release(id, tokens, [](const std::optional<lease_refusal>&) {});
  }
  virtual void renew(const std::string& id, const fence::claims_list& tokens, clock_reading arrived, answer done) = 0;
  // nullopt: it is released. A lease that is over already is.
  virtual void release(const std::string& id, const fence::claims_list& tokens,
                       std::function<void(const std::optional<lease_refusal>&)> done) = 0;
  [[nodiscard]] virtual std::vector<lease_seen> list() const = 0;
  // What happens to a lease, until what is returned is dropped; nullptr: there is no such lease here.
  [[nodiscard]] virtual call watch(const std::string& id, std::function<void(const lease_event&)> tell) = 0;
};

}  // namespace fencegate::lease
